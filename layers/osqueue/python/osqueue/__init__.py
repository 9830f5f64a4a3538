"""osqueue: a serverless job queue whose only infrastructure is an S3 bucket."""

from __future__ import annotations

from .errors import (
    Conflict,
    Damaged,
    LeaseLost,
    NewerFormat,
    NotFound,
    NotSupported,
    OsqueueError,
    Rejected,
    Throttled,
    Timeout,
    Unavailable,
    Unknown,
)
from .job import Attempt, Done, Enqueued, Job
from .lease import AsyncLease, Lease
from .queue import AsyncQueue, Queue
from .worker import AsyncWorkerJob, Cancel, Fail, Retry, Snooze, WorkerJob

__version__ = "0.1.0"

__all__ = [
    "AsyncLease",
    "AsyncQueue",
    "AsyncWorkerJob",
    "Attempt",
    "Cancel",
    "Conflict",
    "Damaged",
    "Done",
    "Enqueued",
    "Fail",
    "Job",
    "Lease",
    "LeaseLost",
    "NewerFormat",
    "NotFound",
    "NotSupported",
    "OsqueueError",
    "Queue",
    "Rejected",
    "Retry",
    "Snooze",
    "Throttled",
    "Timeout",
    "Unavailable",
    "Unknown",
    "WorkerJob",
    "__version__",
]
