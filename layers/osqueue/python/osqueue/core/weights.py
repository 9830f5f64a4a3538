"""About how many bytes rows of the head take, encoded: upper estimates that cost less than to encode them."""

from __future__ import annotations

from .state import FinishedJob, JobRecord, LeaseRecord, Links, Session

LIMITS_WEIGHT = 26  # a run-time limit, a start deadline, and the end that a lease has by the former
UNIQUE_WEIGHT = 26  # a window, the latest due time, the jobs whose place it took
BODY_WEIGHT = 60  # a reference to a body, encoded
LINKS_WEIGHT = 50  # what ties a job to others, but for what follows it and its input
JOB_WEIGHT = 73  # the rest of a job, but for its texts
LEASE_WEIGHT = 74  # what a lease adds to its job, but for its texts
LEASE_WEIGHT_MIN = JOB_WEIGHT + LEASE_WEIGHT
FINISHED_WEIGHT = 90  # what the end adds to a job, but for the result and texts
SUCCESSOR_WEIGHT = 18
FINISHED_WEIGHT_MIN = JOB_WEIGHT + FINISHED_WEIGHT


def job_weight(job: JobRecord) -> int:
    """An upper estimate of a job's encoded bytes. A grant does not change it."""
    payload = job.payload
    total = JOB_WEIGHT + (len(payload) if type(payload) is bytes else BODY_WEIGHT)
    if job.kind or job.client_id or job.trace or job.history or job.headers or job.schedule or job.group:
        total += _texts_weight(job)
    if job.run_within_ms or job.start_by_ms:
        total += LIMITS_WEIGHT
    if job.client_id and (job.window_ms or job.due_by_ms or job.replaced):
        total += UNIQUE_WEIGHT
    if job.links is not None:
        total += links_weight(job.links)
    return total


def links_weight(links: Links) -> int:
    """The share of what ties a job to others."""
    told = links.input
    inline = 0 if told is None else len(told) if type(told) is bytes else BODY_WEIGHT
    return LINKS_WEIGHT + len(links.then) + inline + len(links.input_codec.encode())


def _texts_weight(job: JobRecord) -> int:
    """The share of what most jobs lack."""
    total = len(job.kind.encode()) if job.kind else 0
    if job.client_id:
        total += 3 + len(job.client_id.encode())
    if job.schedule:
        total += 3 + len(job.schedule.encode())
    if job.group:
        total += 3 + len(job.group.encode())
    if job.trace:
        total += 3 + len(job.trace.encode())
    if job.headers:
        total += headers_weight(job)
    for attempt in job.history:
        total += 60 + len(attempt.worker.encode())
        if attempt.error or attempt.error_type:
            total += len(attempt.error.encode()) + len(attempt.error_type.encode())
    return total


def headers_weight(job: JobRecord) -> int:
    """The share of a job's headers."""
    return sum([8 + len(name.encode()) + len(value.encode()) for name, value in job.headers or ()])


def lease_weight(lease: LeaseRecord) -> int:
    """An upper estimate of a lease's encoded bytes."""
    told = 12 + len(lease.note.encode()) if lease.told_ms else 0
    return job_weight(lease.job) + LEASE_WEIGHT + len(lease.worker.encode()) + told


def finished_weight(row: FinishedJob) -> int:
    """An upper estimate of a finished row's encoded bytes."""
    result = row.result
    inline = len(result) if type(result) is bytes else BODY_WEIGHT
    spent = BODY_WEIGHT if row.spent is not None else 0
    why = len(row.why.encode()) if row.why else 0
    bounded = LIMITS_WEIGHT if row.job.run_within_ms or row.job.start_by_ms else 0
    payload = row.payload
    kept = 0 if payload is None else len(payload) if type(payload) is bytes else BODY_WEIGHT
    job = row.job
    unique = UNIQUE_WEIGHT if job.client_id and (job.window_ms or job.due_by_ms or job.replaced) else 0
    heir = SUCCESSOR_WEIGHT if row.successor is not None else 0
    ties = 0 if job.links is None else links_weight(job.links)
    return (
        FINISHED_WEIGHT_MIN
        + _texts_weight(job)
        + inline
        + why
        + spent
        + bounded
        + kept
        + unique
        + heir
        + ties
    )


OUTCOMES_FREE = (
    32  # bytes of outcomes that every session row is charged for, so that small requests always fit
)


def session_weight(env: str, row: Session) -> int:
    """An upper estimate of a session row's encoded bytes."""
    return session_weight_of(env, len(row.outcomes))


def session_weight_of(env: str, outcomes_bytes: int) -> int:
    """The same for a row that is yet to be written."""
    return 40 + len(env) + max(OUTCOMES_FREE, outcomes_bytes)
