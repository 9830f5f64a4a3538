"""What callers see of jobs: plain frozen data, times as aware datetimes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..core import state as stored
from ..errors import OsqueueError
from .job_options import ViewedOptions, viewed
from .keys import job_id

if TYPE_CHECKING:
    from ..core.archive_record import AttemptRecord


class Enqueued(Struct, frozen=True):
    """What became of one job given to enqueue."""

    # "queued", "duplicate", "completed" or "rejected" (an item of enqueue_many, see error: if its code is "unknown" or
    # "timeout", the job may be there all the same)
    status: str
    job_id: str | None  # of the job that now does the work, or did it
    state: str | None = None  # the state that job is in
    result: Any = None  # completed: what the job answered
    error: OsqueueError | None = None


class Done(Struct, frozen=True):
    """What became of one item of complete_many, heartbeat_many and their kin."""

    job_id: str
    ok: bool
    code: str = "ok"  # "ok", "lease_lost", "failing", "failed", "cancelled", "stale" or "rejected"
    cancel_requested: bool = False  # heartbeats: somebody wants the job cancelled
    error: OsqueueError | None = None  # rejected: what was wrong with the item


class Attempt(Struct, frozen=True):
    """One lease that ended."""

    run: int
    worker: str
    started_at: datetime
    ended_at: datetime
    outcome: str  # completed, failed, stalled, released or cancelled
    error: str | None
    error_type: str | None = None  # the exception's class, where there was one
    heartbeat_at: datetime | None = None  # stalled: the last sign of life


class Job(ViewedOptions, frozen=True):
    """A job as the queue's state shows it."""

    job_id: str
    state: str
    enqueued_at: datetime
    attempt: int
    payload_bytes: int
    due_at: datetime | None = None  # scheduled and failing: when it becomes claimable
    worker: str | None = None  # processing: who holds the lease
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    expires_at: datetime | None = None  # processing: when the lease ends; finished: when the result does
    cancel_requested: bool = False
    finished_at: datetime | None = None
    error: str | None = None  # of the last attempt that failed
    attempts: tuple[Attempt, ...] = ()  # those that ended, the latest few
    run: int = (
        0  # leases ever granted, and redrives: with job_id it identifies a repeated record of the archive
    )


def moment(ms: int) -> datetime:
    """A stored time as an aware datetime, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def attempt_view(each: stored.PastAttempt | AttemptRecord) -> Attempt:
    """The public view of a lease that ended, as the queue or the archive keeps it."""
    return Attempt(
        each.run,
        each.worker,
        moment(each.started_ms),
        moment(each.ended_ms),
        each.outcome,
        each.error or None,
        each.error_type or None,
        moment(each.beat_ms) if each.beat_ms else None,
    )


def job_view(state: str, job: stored.JobRecord, **more: Any) -> Job:
    """The public view of a stored job."""
    errors = [attempt.error for attempt in job.history if attempt.error]
    return Job(
        job_id=job_id(job.key),
        state=state,
        enqueued_at=moment(job.enqueued_ms),
        attempt=job.attempt,
        payload_bytes=more.pop("payload_bytes", stored.content_bytes(job.payload)),
        due_at=moment(job.due_ms) if job.due_ms else None,
        error=errors[-1] if errors else None,
        attempts=tuple(map(attempt_view, job.history)),
        run=job.run,
        **viewed(job),
        **more,
    )


def lease_view(lease: stored.LeaseRecord) -> Job:
    """The public view of a job being worked on."""
    return job_view(
        stored.PROCESSING,
        lease.job,
        worker=lease.worker,
        started_at=moment(lease.started_ms),
        heartbeat_at=moment(lease.beat_ms),
        expires_at=moment(lease.expires_ms),
        cancel_requested=lease.cancel,
    )


def finished_view(row: stored.FinishedJob) -> Job:
    """The public view of a job that is over."""
    return job_view(
        row.state,
        row.job,
        finished_at=moment(row.finished_ms),
        expires_at=moment(row.expires_ms),
        payload_bytes=row.payload_bytes,
    )
