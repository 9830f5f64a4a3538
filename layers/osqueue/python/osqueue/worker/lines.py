"""What a worker claims, and when: a line for all plain handlers, and one for each that has a rule of its own.

A handler that takes several jobs at once, or of which only so many calls may run, has a claim of its own, so that no
job is leased that could not start. The claims of one turn share its commit, and the free hands are dealt out among
them one by one, so no line starves another. A line that found nothing rests, by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from .. import limits
from ..operations.claims import ClaimResult, again_at, closed_until
from ..operations.head_board import WorkWaiter
from .handlers import HandlerRule, Handlers
from .heartbeats import FlowRunner
from .in_hand import HandlerCall

LOOKS_PER_WAIT = 4  # claims while a batch waits for more jobs, so that each of them is not a commit
# Reasons of a claim: there are jobs, and they start without anybody's doing, but in groups that are to be resumed.
LIMITS = ("in_flight_limit", "running_limit", "rate_limited", "groups_closed")


class LineClaim:
    """What one line claims in one turn."""

    def __init__(self, line: ClaimLine, limit: int, hands: int) -> None:
        self.line = line
        self.limit = limit
        self.hands = hands  # calls that it may begin


class ClaimLine:
    """The jobs of some kinds, claimed together."""

    def __init__(self, rule: HandlerRule | None, kinds: Sequence[str] | None, waiter: WorkWaiter) -> None:
        self.rule = rule  # None: each kind has its own, and no limits
        self.kinds = kinds
        self.waiter = waiter
        self.rest: asyncio.Task[None] | None = None  # after an empty claim, until one may find something
        self.rested_alone = False  # was nothing in hand when it began?
        self.over = False  # its last claim found nothing while nothing was in hand
        self.collecting: HandlerCall | None = None  # waits for more jobs
        self.not_before = 0.0  # monotonic: no claim before, while it does
        self.claiming = False  # a claim is under way
        self.is_late = False  # and after it what waits for more jobs begins with what there is

    @property
    def spare(self) -> int:
        """How many jobs the call takes that waits for more."""
        if self.collecting is None or self.rule is None:
            return 0
        return (self.rule.batch or 1) - len(self.collecting.jobs)

    def room(self, free: int) -> int:
        """How many calls it could begin with so many free hands."""
        if self.rule is None:
            return free
        places = free if self.rule.places is None else self.rule.places.free
        return min(free, places, -(-limits.CLAIM_LIMIT_MAX // (self.rule.batch or 1)))

    def wants(self, free: int) -> bool:
        """Could it start a job?"""
        return self.spare > 0 or self.room(free) > 0

    def take(self, hands: int) -> int:
        """Take places for so many calls; answers how many there were."""
        if self.rule is None or self.rule.places is None:
            return hands
        return self.rule.places.take(hands)

    def give(self, hands: int) -> None:
        """Give back the places of calls that did not begin."""
        if hands and self.rule is not None and self.rule.places is not None:
            self.rule.places.give(hands)

    def claim(self, hands: int) -> LineClaim | None:
        """What it claims with so many hands."""
        hands = self.take(hands)
        each = 1 if self.rule is None else self.rule.batch or 1
        limit = min(limits.CLAIM_LIMIT_MAX, self.spare + hands * each)
        self.claiming = limit > 0
        if not limit:
            return None
        self.waiter.begin_claim()
        return LineClaim(self, limit, hands)


class ClaimLines:
    """All lines of a worker."""

    def __init__(
        self, handlers: Handlers, flows: Any, poll: float, call: FlowRunner, wake: Callable[[], object]
    ) -> None:
        self._flows = flows
        self._call = call
        self._wake = wake
        self._lines = [
            ClaimLine(rule, kinds, flows.work_waiter(kinds, poll)) for rule, kinds in handlers.lines()
        ]
        self.places = [line.rule.places for line in self._lines if line.rule and line.rule.places]

    # ── Claims ───────────────────────────────────────────────────────────────
    def deal(self, free: int, now: float, riding: bool) -> list[LineClaim]:
        """What to claim now with so many free hands. ``riding``: also for those that rest, if hands are left."""
        hands: dict[ClaimLine, int] = {}
        for resting in (False, True) if riding else (False,):
            lines = [
                line
                for line in self._lines
                if (line.rest is not None) == resting and now >= line.not_before and line.wants(free)
            ]
            for line in lines:
                hands[line] = 0
            while free and lines:
                share = max(1, free // len(lines))
                for line in list(lines):
                    more = min(share, free, line.room(free + hands[line]) - hands[line])
                    hands[line] += more
                    free -= more
                    if more < share:
                        lines.remove(line)
        claims = [claim for line, count in hands.items() if (claim := line.claim(count)) is not None]
        if len(self._lines) > 1 and claims:  # another is the first to choose next time
            self._lines.append(self._lines.pop(0))
        return claims

    def next_at(self, free: int, at: float) -> float | None:
        """When the next claim is to be made, not before a time; None: nobody wants one."""
        times = [line.not_before for line in self._lines if line.rest is None and line.wants(free)]
        return max(at, min(times)) if times else None

    # ── Rests ────────────────────────────────────────────────────────────────
    def hear(self, line: ClaimLine, claimed: ClaimResult, alone: bool, now: float) -> None:
        """What a claim found. ``alone``: nothing is in hand."""
        if claimed.leases:
            line.waiter.empty = 0
            for each in self._lines:  # a handler may make jobs for any of them
                each.over = each.rested_alone = False
            return
        line.waiter.limited = claimed.reason in LIMITS and claimed.scope != "group"
        line.over = alone and not line.waiter.limited
        line.waiter.empty += 1
        line.waiter.closed_until, line.waiter.again_at = closed_until(claimed, now), again_at(claimed, now)

    def begin_rest(self, line: ClaimLine, alone: bool) -> None:
        """Have a line rest that found nothing, unless it does."""
        if line.rest is None:
            line.waiter.stopped = False
            line.rested_alone = alone
            line.rest = asyncio.create_task(self._call(self._flows.rest(line.waiter)))
            line.rest.add_done_callback(lambda _: self._wake())

    def end_rests(self, free: int, stopping: bool, idle: bool) -> list[asyncio.Task[None]]:
        """Let lines claim again whose rest is over; answers these rests. Who cannot start a job need not look.

        ``idle``: nothing is in hand, and somebody wants to know whether the work is done.
        """
        done = []
        for line in self._lines:
            if line.rest is None:
                continue
            if line.rest.done():
                done.append(line.rest)
                line.rest = None
            elif stopping or not line.wants(free) or (idle and not line.rested_alone):
                line.waiter.stop()
        return done

    @property
    def are_over(self) -> bool:
        """Has every line found nothing, with nothing in hand?"""
        return all(line.over for line in self._lines)

    def stop(self) -> list[asyncio.Task[None]]:
        """End all rests; answers those that are not over yet."""
        for line in self._lines:
            line.waiter.stop()  # its thread may end, too
        return [line.rest for line in self._lines if line.rest is not None]
