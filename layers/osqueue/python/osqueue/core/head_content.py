"""What a head itself holds: jobs, payloads and results, wherever in it they lie."""

from __future__ import annotations

from collections.abc import Iterator

from .rows import StoredContent
from .state import FAILED, PROCESSING, QUEUED, JobRecord, State, delayed_state


def jobs_in_memory(state: State) -> Iterator[tuple[str, JobRecord]]:
    """Every unfinished job the head itself holds, with its state."""
    for lane in state.lanes:
        for job in lane.backlog.ready:
            yield QUEUED, job
        for job in lane.backlog.tail:
            yield QUEUED, job
    for lease in state.leases.values():
        yield PROCESSING, lease.job
    for job in state.delayed.jobs:
        yield delayed_state(job), job
    for job in state.dead.ready:
        yield FAILED, job
    for job in state.dead.tail:
        yield FAILED, job


def contents_in_memory(state: State) -> Iterator[StoredContent]:
    """Every payload and result that the head itself refers to or holds."""
    for _, job in jobs_in_memory(state):
        yield from job.contents
    for row in state.finished:
        yield row.result
        if row.payload is not None:
            yield row.payload
    for schedule in state.schedules:
        yield schedule.payload
