"""What callers see of jobs: plain frozen data, times as aware datetimes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct

from ..core import state as stored
from ..core.archive_record import ArchiveRecord
from ..core.follow_ups import follow_up_keys, follow_ups_of
from ..core.state import content_bytes
from ..errors import OsqueueError
from .fields import meaning, moment, seen_in
from .job_options import ViewedOptions, linked, viewed
from .keys import job_id


class Enqueued(Struct, frozen=True):
    """What became of one job given to enqueue."""

    # "queued", "duplicate", "completed", "replaced" or "postponed" (it took the place of one that waited)
    # or "rejected" (an item of enqueue_many, see error: if its code is "unknown" or "timeout", the job may be there all
    # the same)
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


# What the API's schema, the tables of Spark and the pages say of a job and its attempts is made of the meanings here.
class Attempt(Struct, frozen=True):
    """One lease that ended."""

    run: Annotated[int, meaning("Which lease of the job it was, from 1; a redrive takes a number, too.")]
    worker: Annotated[str, meaning("Who held the lease.")]
    started_at: Annotated[datetime, meaning("When the job was claimed.")]
    ended_at: Annotated[datetime, meaning("When the lease ended.")]
    outcome: Annotated[str, meaning("Completed, failed, stalled, released or cancelled.")]
    error: Annotated[str, meaning("What went wrong.")] | None
    error_type: Annotated[str, meaning("The exception's class, where there was one.")] | None = None
    heartbeat_at: (
        Annotated[datetime, meaning("Stalled: the last heartbeat, or the claim.", "beat_ms")] | None
    ) = None


class Job(ViewedOptions, frozen=True):
    """A job as the queue's state shows it."""

    job_id: Annotated[str, meaning("The job's key.")]
    state: Annotated[str, meaning(f"One of {', '.join(stored.STATES)}.")]
    enqueued_at: Annotated[datetime, meaning("When it was accepted.")]
    attempt: Annotated[int, meaning("Attempts used; a release gives one back, a redrive starts again.")]
    payload_bytes: Annotated[int, meaning("Its payload's size as stored.")]
    due_at: (
        Annotated[datetime, meaning("When it becomes claimable; finished: when it was to. None: at once.")]
        | None
    ) = None
    worker: Annotated[str, meaning("Processing: who holds the lease.")] | None = None
    started_at: Annotated[datetime, meaning("Processing: when it was claimed.")] | None = None
    heartbeat_at: Annotated[datetime, meaning("Processing: the last sign of life.", "beat_ms")] | None = None
    expires_at: (
        Annotated[datetime, meaning("Processing: when the lease ends; finished: when the result does.")]
        | None
    ) = None
    progress: (
        Annotated[float, meaning("Processing: how far its worker says it is, from 0 to 1.", "progress")]
        | None
    ) = None
    note: Annotated[str, meaning("Processing: what the worker says beside.")] | None = None
    told_at: Annotated[datetime, meaning("Processing: when it said so.", "told_ms")] | None = None
    cancel_requested: Annotated[
        bool, meaning("Processing: somebody asked for it to be cancelled.", "cancel")
    ] = False
    finished_at: Annotated[datetime, meaning("When it ended.")] | None = None
    error: Annotated[str, meaning("Of the last attempt that failed.")] | None = None
    attempts: Annotated[tuple[Attempt, ...], meaning("The latest eight leases that ended.", "history")] = ()
    run: Annotated[
        int, meaning("Leases ever granted, and redrives: tells a repeated record of the archive.")
    ] = 0
    replaced: Annotated[
        int, meaning("How many jobs of its id it took the place of; it was enqueued as the first of them.")
    ] = 0
    due_by_at: (
        Annotated[datetime, meaning("Debounced: when it is due at the latest.", "due_by_ms")] | None
    ) = None
    replaced_by: Annotated[str, meaning("The job of its id that took its place.", "successor")] | None = None
    parent: Annotated[str, meaning("The job, or the batch, with whose end it came.")] | None = None
    then: Annotated[int, meaning("How many follow-ups come when it completes.")] = 0
    follow_ups: Annotated[tuple[str, ...], meaning("Completed: the jobs that came when it did.")] = ()


def attempt_view(each: stored.PastAttempt) -> Attempt:
    """The public view of a lease that ended, as the queue or the archive keeps it."""
    return Attempt(**seen_in(Attempt, each))


def _past(history: Sequence[stored.PastAttempt]) -> dict[str, Any]:
    return {
        "error": next((each.error for each in reversed(history) if each.error), None),
        "attempts": tuple(map(attempt_view, history)),
    }


def job_view(state: str, job: stored.JobRecord, **more: Any) -> Job:
    """The public view of a stored job."""
    found = {
        **seen_in(Job, job),
        **viewed(job),
        **_past(job.history),
        "job_id": job_id(job.key),
        "state": state,
        "payload_bytes": content_bytes(job.payload),
        "parent": linked(job, "parent"),
        "then": 0 if job.links is None else len(follow_ups_of(job.links.then)),
        **more,
    }
    return Job(**found)


def lease_view(lease: stored.LeaseRecord) -> Job:
    """The public view of a job being worked on."""
    found = seen_in(Job, lease)
    found["progress"] = None if lease.progress < 0 else lease.progress / 1000
    return job_view(stored.PROCESSING, lease.job, **found)


def finished_view(row: stored.FinishedJob) -> Job:
    """The public view of a job that is over."""
    found = seen_in(Job, row)
    found["replaced_by"] = None if row.successor is None else job_id(row.successor)
    if row.job.links is not None:
        keys = follow_up_keys(row.key, row.job.run, row.finished_ms, row.job.links.followed)
        found["follow_ups"] = tuple(map(job_id, keys))
    return job_view(found.pop("state"), row.job, **found)


def archived_view(record: ArchiveRecord) -> Job:
    """The public view of a job in the archive."""
    due_at = moment(record.scheduled_ms) if record.scheduled_ms else None
    found = {**seen_in(Job, record), **viewed(record), **_past(record.attempts)}
    return Job(**{**found, "parent": linked(record, "parent"), "due_at": due_at})
