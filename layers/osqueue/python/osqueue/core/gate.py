"""The gate: how many jobs a claim may start now, of the queue and of each kind.

What runs is counted from the leases and never kept beside them, so it cannot drift: a lease that ends, whatever ended
it, frees its place in the same commit. What may start by a rate is one time of a bucket. All limits are asked in the
one step that grants the lease, and all of them are charged or none: of the queue's limiter slots (``lending``).
A queue without any limit has no gate.

Over several shards each has its share of a limit, the limit divided by their number. Nobody has to ask another shard,
and together they never start more than the limit (of rates: see there).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from .lending import LentSlots
from .ops import Code
from .rates import Allowance, Whose, share_of, with_lent
from .settings import QueueSettings
from .state import JobRecord, LeaseRecord, Starts

ENDLESS = 1 << 62  # more jobs than ever run


class Closed(NamedTuple):
    """Why nothing may start."""

    code: Code
    wait_ms: int = 0  # nothing starts sooner; 0: that is no matter of time alone


class Gate:
    """What one shard may still start."""

    def __init__(
        self, settings: QueueSettings, leases: Mapping[bytes, LeaseRecord], starts: Starts, now_ms: int
    ) -> None:
        self._now_ms = now_ms
        self._paused = {row.kind: row.paused_until_ms or 0 for row in settings.kinds if row.paused}
        limits = {row.kind: row.max_running for row in settings.kinds if row.max_running}
        running = Counter([lease.job.kind for lease in leases.values()]) if limits else {}
        self._room: dict[Whose, int] = {
            kind: share_of(most, settings) - running.get(kind, 0) for kind, most in limits.items()
        }  # how many more may run
        if settings.max_running:
            self._room[None] = share_of(settings.max_running, settings) - len(leases)
        self.rates = Allowance(settings, starts, now_ms)
        limiter = settings.limiter
        self.slots = (
            LentSlots(limiter, starts.lent, now_ms * 1000) if limiter else None
        )  # None: there is no limiter

    def room(self, whose: Whose = None) -> int:
        """How many more jobs may run, of a kind or in all, whatever else holds them."""
        return self._room.get(whose, ENDLESS)

    def _most(self, whose: Whose) -> int:
        if whose is not None:
            return min(self._room.get(whose, ENDLESS), self.rates.left.get(whose, ENDLESS))
        return self.most_otherwise if self.slots is None else min(self.most_otherwise, self.slots.most)

    def room_for(self, kind: str) -> int:
        """How many jobs of a kind may start, if each is of one unit."""
        return 0 if kind in self._paused else min(self._most(None), self._most(kind))

    def first_of(self, jobs: Iterable[JobRecord], kind: str, most: int) -> int:
        """How many of these jobs of a kind, the first ones, may start together: ``most`` at most."""
        room, count = self.room_for(kind), 0
        for job in islice(jobs, most):
            if room <= 0:
                break
            room -= job.units
            count += 1
        return count

    def closed_kinds(self) -> frozenset[str]:
        """Kinds with limits of their own of which none may start."""
        spent = {kind for left in (self._room, self.rates.left) for kind, room in left.items() if room <= 0}
        return frozenset(kind for kind in spent.union(self._paused) if kind is not None)

    @property
    def most_otherwise(self) -> int:
        """How many may start, of all kinds together, as far as the queue's other limits say."""
        return min(self._room.get(None, ENDLESS), self.rates.left.get(None, ENDLESS))

    @property
    def lacks_slots(self) -> bool:
        """Does it take slots of the limiter to start anything, whatever else allows it?"""
        return self.slots is not None and self.slots.is_lacking

    @property
    def is_shut(self) -> bool:
        """May nothing start, of whatever kind?"""
        return self._most(None) <= 0

    def charge(self, kind: str, started: Sequence[LeaseRecord]) -> None:
        """These jobs of a kind have started. Each counts once among those that run, and its units in rates."""
        count, units = len(started), sum([lease.job.units for lease in started])
        for whose in (None, kind):
            if whose in self._room:
                self._room[whose] -= count
            self.rates.take(whose, units)
        if self.slots is not None:
            self.slots.take(units)

    def starts(self) -> Starts:
        """What is owed after what it let start."""
        starts = self.rates.starts()
        return starts if self.slots is None else with_lent(starts, self.slots.rest())

    def why_closed(self, kinds: Iterable[str]) -> Closed | None:
        """Why none of these kinds may start, if that is so for one of them, and how long so at least."""
        closed = {kind for kind in kinds if self.room_for(kind) <= 0}
        if not closed:
            return None
        slots = 0 if self.slots is None else self.slots.wait_ms()
        if wait := max(slots, self.rates.wait_ms(None)):
            return Closed(Code.RATE_LIMITED, wait)
        if self.room() <= 0:
            return Closed(Code.RUNNING_LIMIT)
        waits = {kind: self._wait_ms(kind) for kind in closed}
        wait = min((each for each in waits.values() if each), default=0)
        if any(each and kind not in self._paused for kind, each in waits.items()):
            return Closed(Code.KINDS_RATE_LIMITED, wait)
        running = any(kind not in self._paused for kind in closed)
        return Closed(Code.RUNNING_LIMIT if running else Code.KINDS_PAUSED, wait)

    def _wait_ms(self, kind: str) -> int:
        """How long a kind starts nothing, where time alone ends that; else 0."""
        if self.room(kind) <= 0:
            return 0
        until = self._paused.get(kind)
        if until is None:
            return self.rates.wait_ms(kind)
        return max(until - self._now_ms, self.rates.wait_ms(kind)) if until else 0


def gate_of(
    settings: QueueSettings, leases: Mapping[bytes, LeaseRecord], starts: Starts, now_ms: int
) -> Gate | None:
    """The gate of a shard at a moment; None where nothing is limited."""
    limited = (
        settings.max_running
        or settings.rate[0]
        or settings.limiter
        or any(row.max_running or row.paused or row.rate for row in settings.kinds)
    )
    return Gate(settings, leases, starts, now_ms) if limited else None
