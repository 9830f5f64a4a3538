"""Ageing: no commit starts a job while one whose turn comes before it might start."""

from __future__ import annotations

from osqueue.core.ageing import since_ms
from osqueue.core.gate import gate_of
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs
from osqueue.core.state import MIXED, PROCESSING, State

from .ledger import RecordedReduction, Violation


def check(before: State, state: State, batch: RecordedReduction) -> None:
    """A commit was made. Looked at are those in which nothing else changed what might start."""
    ageing_ms = state.settings.ageing_ms
    ops = [op for each in batch.requests for op in each.ops]
    plain = all(isinstance(op, EnqueueJobs) or (isinstance(op, ClaimJobs) and op.kinds is None) for op in ops)
    if not ageing_ms or state.settings != before.settings or not plain:
        return
    started = [state.leases[each.key].job for each in batch.reduction.events if each.target == PROCESSING]
    if not started:
        return
    latest = max(since_ms(job) + job.priority * ageing_ms for job in started)
    gate = gate_of(state.settings, state.leases, state.starts, state.now_ms)
    was = {job.key for lane in before.lanes for job in (*lane.backlog.ready, *lane.backlog.tail)}
    moved = {(job.priority, job.kind) for job in started}
    for lane in state.lanes:
        if (
            lane.kind == MIXED
            or (lane.priority, lane.kind) in moved
            or (gate is not None and gate.room_for(lane.kind) <= 0)
        ):
            continue
        for job in lane.backlog.ready[:1]:
            turn = since_ms(job) + job.priority * ageing_ms
            if job.key in was and turn < latest:
                raise Violation(f"a job was passed by one whose turn comes {latest - turn} ms after its own")
