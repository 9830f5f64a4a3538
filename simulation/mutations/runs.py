"""The count of a job's leases with one step left out: by (job, run) the archive tells its records apart."""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec.structs import replace

from osqueue.core import timers
from osqueue.core.backlog import BacklogDraft
from osqueue.core.draft import Draft
from osqueue.core.state import PROCESSING, QUEUED, STALLED, LeaseRecord

from .control import Control, in_runs, patched


def runs_begun_again() -> AbstractContextManager[None]:
    """``run`` begins again with ``attempt``: a release gives it back, and a redrive starts it anew."""
    real = Draft.grant

    def grant(self: Draft, lane: BacklogDraft, count: int, worker: str, lease_ms: int) -> list[LeaseRecord]:
        for at in range(min(count, len(lane.ready))):
            job = lane.ready[at]
            lane.ready[at] = replace(job, run=job.attempt)
        return real(self, lane, count, worker, lease_ms)

    return patched((Draft, "grant", grant))


_stall = timers._stall


def _once_more(draft: Draft, lease: LeaseRecord) -> None:
    if lease.cancel or lease.until_ms or lease.job.attempt != lease.job.max_attempts:
        _stall(draft, lease)
        return
    draft.expired += 1
    job = draft.end(lease, STALLED)
    draft.count("stalled")
    draft.queue_front(job)
    draft.event(job, PROCESSING, QUEUED, "stalled", lease.worker)


def one_attempt_more() -> AbstractContextManager[None]:
    """A job that stalled in its last attempt gets another one."""
    return patched((timers, "_stall", _once_more))


CONTROLS: tuple[Control, ...] = (
    Control("attempts", one_attempt_more, (in_runs("rough", "started of a job that may have"),)),
    Control(
        "run", runs_begun_again, (in_runs("rough", "endings are in no archive part|was granted before"),)
    ),
)
