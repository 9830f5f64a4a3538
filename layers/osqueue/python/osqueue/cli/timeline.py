"""The story of a job in readable words: what happened when, and what will happen next."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from ..core.state import COMPLETED, FAILED, FAILING, PROCESSING, QUEUED, SCHEDULED
from ..job import Attempt, Job


def span(seconds: float) -> str:
    """A length of time as people say it."""
    seconds = abs(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if round(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}".replace(".0 ", " ")
    return f"{seconds:.1f} s".replace(".0 ", " ")


def _distance(at: datetime, now: datetime) -> str:
    gap = (at - now).total_seconds()
    return f"in {span(gap)}" if gap > 0 else f"{span(gap)} ago"


def _ended(attempt: Attempt) -> str:
    took = span((attempt.ended_at - attempt.started_at).total_seconds())
    error = f": {attempt.error}" if attempt.error else ""
    words = {
        "failed": f"failed after {took}",
        "stalled": f"stalled: no heartbeat came, the lease ended after {took}",
        "released": f"given back after {took}; the attempt does not count",
        "completed": f"completed after {took}",
        "cancelled": f"cancelled by its worker after {took}",
    }
    return words.get(attempt.outcome, f"{attempt.outcome} after {took}") + error


def timeline(job: Job, now: datetime) -> list[tuple[datetime, str]]:
    """(time, what happened) in order; what lies ahead comes last."""
    about = [f"kind {job.kind}"] if job.kind else []
    about += [f"priority {job.priority}", f"{job.payload_bytes:,} bytes"]
    found = [(job.enqueued_at, f"enqueued ({', '.join(about)})")]
    if job.attempts and job.attempts[0].run > 1:
        found.append(
            (job.attempts[0].started_at, f"({job.attempts[0].run - 1} earlier leases are not shown)")
        )
    for attempt in job.attempts:
        found.append((attempt.started_at, f"lease {attempt.run}: claimed by {attempt.worker}"))
        found.append((attempt.ended_at, f"lease {attempt.run}: {_ended(attempt)}"))
    found += _present(job, now)
    return found


def _present(job: Job, now: datetime) -> list[tuple[datetime, str]]:
    """Where the job stands."""
    found: list[tuple[datetime, str]] = []
    if job.state == PROCESSING and job.started_at and job.expires_at:
        found.append(
            (job.started_at, f"claimed by {job.worker} (attempt {job.attempt} of {job.max_attempts})")
        )
        if job.heartbeat_at and job.heartbeat_at > job.started_at:
            found.append((job.heartbeat_at, f"last heartbeat, {_distance(job.heartbeat_at, now)}"))
        if job.cancel_requested:
            found.append((now, "a cancel was requested; its worker sees it at the next heartbeat"))
        if job.expires_at > now:
            found.append(
                (job.expires_at, f"the lease ends {_distance(job.expires_at, now)} without a heartbeat")
            )
        else:
            found.append((job.expires_at, "the lease ended; the next write or reap takes the job back"))
    elif job.state in (SCHEDULED, FAILING) and job.due_at:
        what = f"attempt {job.attempt + 1} of {job.max_attempts}"
        if job.due_at > now:
            found.append((job.due_at, f"claimable {_distance(job.due_at, now)} ({what})"))
        else:
            found.append((job.due_at, f"due; the next write or reap queues it ({what})"))
    elif job.state == QUEUED:
        found.append((now, f"waiting for a worker (attempt {job.attempt + 1} of {job.max_attempts})"))
    elif job.state == FAILED:
        found.append((now, "dead: not tried again, unless redriven ('osqueue queue redrive')"))
    elif job.finished_at is not None:
        found.append((job.finished_at, "completed" if job.state == COMPLETED else "cancelled"))
    return found


def job_record(job: Job, now: datetime) -> dict[str, Any]:
    """A job as JSON, its timeline included."""
    fields: dict[str, Any] = msgspec.structs.asdict(job)
    fields["timeline"] = [{"at": at, "what": what} for at, what in timeline(job, now)]
    return fields
