"""Fairness: no commit starts a job of a group while one waits whose group has fewer running, and that might start."""

from __future__ import annotations

from collections import Counter

from osqueue.core.gate import gate_of
from osqueue.core.groups import Groups
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs
from osqueue.core.labels import group_digest
from osqueue.core.state import PROCESSING, QUEUED, JobRecord, State, is_late

from .ledger import RecordedReduction, Violation
from .places import JobPlace


def check(before: State, state: State, batch: RecordedReduction, found: dict[bytes, JobPlace]) -> None:
    """A commit was made. Looked at are those in which nothing else changed what might start."""
    ops = [op for each in batch.requests for op in each.ops]
    plain = all(isinstance(op, EnqueueJobs) or (isinstance(op, ClaimJobs) and op.kinds is None) for op in ops)
    moved = {each.key for each in batch.reduction.events}
    held, holds = ({lease.token for lease in each.leases.values()} for each in (before, state))
    calm = held <= holds and not state.drops.rules  # no lease has ended
    if not (state.settings.fair and plain and calm) or state.settings != before.settings:
        return
    counts = Counter([lease.job.group for lease in before.leases.values()])
    waiting = _waiting(before, state, found, moved)
    for each in batch.reduction.events:
        if each.target != PROCESSING:
            continue
        job = state.leases[each.key].job
        for group in waiting.get(job.priority, ()) if job.group else ():
            if counts[group] < counts[job.group]:
                raise Violation(
                    f"a job of group {job.group!r} started, of which {counts[job.group]} ran, while one of"
                    f" {group!r} waited, of which {counts[group]} did"
                )
        counts[job.group] += 1


def _waiting(
    before: State, state: State, found: dict[bytes, JobPlace], moved: set[bytes]
) -> dict[int, set[str]]:
    """The groups, by priority, of which jobs wait that this commit left where they were, and that might start.

    Those of a kind that has a lane of its own come after the jobs in it, which have no group and are older.
    """
    behind = {(lane.priority, lane.kind) for each in (before, state) for lane in each.lanes}
    gate = gate_of(state.settings, state.leases, state.starts, state.now_ms)
    groups = Groups(state.settings, state.leases, state.holds, state.starts, state.now_ms)

    def might(job: JobRecord) -> bool:
        return (
            groups.opens(group_digest(job.group))
            and (job.priority, job.kind) not in behind
            and (gate is None or gate.room_for(job.kind) > 0)
            and not is_late(job, state.now_ms)
        )

    waiting: dict[int, set[str]] = {}
    for key, place in found.items():
        job = place.job
        if place.state == QUEUED and job.group and key not in moved and might(job):
            waiting.setdefault(job.priority, set()).add(job.group)
    return waiting
