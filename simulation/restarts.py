"""Jobs that restart an id: whoever runs under it is asked to end, and the new one waits behind it in their group.

Both happen in one commit or neither. From then on the old job never waits again, and until it is over the new one does
not start, nor does whatever takes the place of that. Callers of such ids leave one job of each that waits, but for
those that somebody redrove. Where a caller dies who has not come to ask, whoever enqueues in its place does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from osqueue.core.drop_rules import matches, rule_of
from osqueue.core.job_ops import CancelJob, EnqueueJobs, JobSpec
from osqueue.core.ops import Op
from osqueue.core.queue_ops import CancelJobs
from osqueue.core.state import LeaseRecord, State
from osqueue.model.unique import Unique

from .ledger import RecordedReduction, Violation
from .places import JobPlace
from .uniques import TAKEN, WAITING, replacements

RESTART = Unique(on_duplicate="restart")


def restart_of(dice: Random, share: float, name: str) -> dict[str, Any]:
    """What a caller says of an id, all of whose jobs are of one group."""
    return {"group": f"of {name}"} | ({"unique": RESTART} if dice.random() < share else {})


class Restarts:
    """Who waits behind whom, in one shard."""

    def __init__(self) -> None:
        self.behind: dict[bytes, set[bytes]] = {}  # by the new job: those that it restarted
        self.heirs: dict[bytes, bytes] = {}  # of jobs whose places were taken
        self.asked: set[bytes] = set()  # jobs that were restarted

    def commit(
        self,
        before: State | None,
        state: State,
        batch: RecordedReduction,
        found: Mapping[bytes, JobPlace],
        excused: set[bytes],
    ) -> None:
        """A commit was made; ``found``: where jobs are after it. ``excused``: jobs that may wait beside others."""
        self.heirs |= {row.key: row.successor for row in state.finished if row.successor is not None}
        fresh = {new: self._heir(old) for new, old in _restarted(batch)}
        for item, code in replacements(batch):
            if code in TAKEN:
                self.behind[item.new.key] = set(self.behind.get(item.old.key, ()))
        for new, old in fresh.items():
            self.behind.setdefault(new, set()).add(old)
            lease = state.leases.get(old)
            if lease is not None and not lease.cancel:
                raise Violation("a job was accepted that restarts one which was not asked to end")
        self.asked |= set(fresh.values())
        for key in self.asked - excused:
            if key in found and found[key].state in WAITING:
                raise Violation(f"a job that was restarted is {found[key].state}")
        for key, olds in self.behind.items():
            if key in state.leases and not olds.isdisjoint(state.leases):
                raise Violation("a job started before the one that it restarts was over")
        if before is not None:
            self._asked_for(before, state, batch, set(fresh.values()))
        self._alone(found, excused | set(map(self._heir, excused)))

    def _heir(self, key: bytes) -> bytes:
        """Who was there when a job was to make room."""
        while key in self.heirs:
            key = self.heirs[key]
        return key

    def _asked_for(
        self, before: State, state: State, batch: RecordedReduction, restarted: set[bytes]
    ) -> None:
        """Nobody is asked to end for a job that was not accepted."""
        ops = [op for each in batch.requests for op in each.ops]
        for key, lease in state.leases.items():
            held = before.leases.get(key)
            if held is None or held.token != lease.token or held.cancel or not lease.cancel:
                continue
            if key not in restarted and not any(_asks(op, lease, state) for op in ops):
                raise Violation("a job was asked to end, and none was accepted for it")

    def _alone(self, found: Mapping[bytes, JobPlace], excused: set[bytes]) -> None:
        """Raise Violation if several jobs wait under an id that is restarted.

        A job that was redriven may wait beside another one, and so may the job that replaced it.
        """
        first: dict[str, bytes] = {}
        restarted = {place.job.client_id for key, place in found.items() if key in self.behind}
        for key, place in found.items():
            name = place.job.client_id
            if name not in restarted or name is None or key in excused or place.state not in WAITING:
                continue
            if name in first:
                raise Violation(f"two jobs wait under {name}, which was restarted")
            first[name] = key


def _restarted(batch: RecordedReduction) -> Iterator[tuple[bytes, bytes]]:
    """The jobs that were accepted, with those that they restart."""
    for spec in _accepted(batch):
        if spec.restarts is not None:
            yield spec.key, spec.restarts.key


def _accepted(batch: RecordedReduction) -> Iterator[JobSpec]:
    for request in batch.requests:
        outcomes = batch.reduction.outcomes.get(request.identity, ())
        for op, answer in zip(request.ops, outcomes, strict=False):
            if isinstance(op, EnqueueJobs):
                yield from (new for new, code in zip(op.jobs, answer.codes, strict=True) if code in TAKEN)
    yield from (item.new for item, code in replacements(batch) if code in TAKEN)


def _asks(op: Op, lease: LeaseRecord, state: State) -> bool:
    """Is a running job asked to end by a cancel?"""
    if isinstance(op, CancelJobs):
        return matches(rule_of(op, state.seq, state.now_ms), lease.job)
    return isinstance(op, CancelJob) and op.key == lease.job.key
