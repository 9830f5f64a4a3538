"""Operators who cancel many jobs at once, and what must hold of it in every commit.

What waits and matches when such a call is committed is *doomed*: no attempt of it ever starts. What comes later is not.
Of jobs that come, start or end an attempt in the very commit of a call nobody can say whether they were first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from osqueue.commit.effects import Flow
from osqueue.core.drop_rules import matches, rule_of
from osqueue.core.ops import Code
from osqueue.core.queue_ops import CancelJobs
from osqueue.core.state import FAILING, PROCESSING, QUEUED, SCHEDULED, FinishedJob, State

from .ledger import RecordedReduction, Violation
from .places import JobPlace

if TYPE_CHECKING:
    from .clients import Client

BY_RULE = "by drop rule "
WAITING = (QUEUED, SCHEDULED, FAILING)
AGES_MS = (0, 0, 5_000, 60_000)
RECENT = 6  # batches that are worth cancelling: others are mostly over


def cancel_many(client: Client, pause_seconds: float) -> Flow[None]:
    """Cancel jobs of some kinds, of a group, of an age, of a batch, or all."""
    dice = client.dice
    while True:
        yield from client.pause(pause_seconds * 4)
        if client.book.batches and dice.random() < 0.6:
            yield from client.call(CancelJobs(batch=dice.choice(client.book.batches[-RECENT:])))
            continue
        kinds = None if dice.random() < 0.3 else tuple(sorted(dice.sample(client.kinds, 1)))
        group = f"g{dice.randrange(client.groups)}" if client.groups and dice.random() < 0.4 else None
        age = dice.choice(AGES_MS)
        before = client.writer.machine.now_ms() - age if age else 0
        yield from client.call(CancelJobs(kinds, group, max(0, before)))


class MassCancels:
    """Who is doomed."""

    def __init__(self) -> None:
        self.doomed: set[bytes] = set()
        self._perhaps: set[bytes] = set()  # whoever came or moved in the commit of a call
        self._epoch = 0

    def commit(
        self,
        before: State | None,
        state: State,
        batch: RecordedReduction,
        was: dict[bytes, JobPlace],
        found: dict[bytes, JobPlace],
    ) -> None:
        """A commit was made; ``was`` and ``found`` are the places of all jobs before and after it."""
        if before is None or state.epoch != self._epoch:  # a restored head may know nothing of it, or all
            self._perhaps |= self.doomed
            self.doomed, self._epoch = set(), state.epoch
        started = {each.key for each in batch.reduction.events if each.target == PROCESSING}
        if self.doomed & started:
            raise Violation("a job started that was cancelled with many others")
        if self.doomed & {each.key for each in batch.reduction.events if each.cause == "replaced"}:
            raise Violation("a job was replaced that was cancelled with many others")
        for op in _applied(batch):
            rule = rule_of(op, state.seq, state.now_ms)
            mine = {key for key, place in was.items() if place.state in WAITING and matches(rule, place.job)}
            self.doomed |= mine - started
            touched = {each.key for each in batch.reduction.events}
            self._perhaps |= touched | (found.keys() - was.keys())
            for key, lease in state.leases.items():
                held = before.leases.get(key) if before is not None else None
                if (
                    held is not None
                    and held.token == lease.token
                    and matches(rule, lease.job)
                    and not lease.cancel
                ):
                    raise Violation("a job that runs was not asked to stop with all others")
        for row in _fresh(before, state):
            if row.why.startswith(BY_RULE) and row.key not in self.doomed | self._perhaps:
                raise Violation("a job was cancelled with others although it came later")

    def end(self, state: State | None, over: frozenset[bytes]) -> None:
        """Everything has ended, and reapers have been there."""
        if state is not None and state.drops.rules:
            raise Violation(f"{len(state.drops.rules)} drop rules are left over")
        if self.doomed - over:
            raise Violation("a job that was cancelled with others never ended")


def _applied(batch: RecordedReduction) -> list[CancelJobs]:
    found = []
    for request in batch.requests:
        outcomes = batch.reduction.outcomes.get(request.identity, ())
        for op, answer in zip(request.ops, outcomes, strict=False):
            if isinstance(op, CancelJobs) and answer.code != Code.CROWDED:
                found.append(op)
    return found


def _fresh(before: State | None, state: State) -> list[FinishedJob]:
    known = {row.key for row in before.finished} if before is not None else set()
    return [row for row in state.finished if row.key not in known]
