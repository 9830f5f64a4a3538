"""osqueue: a serverless job queue whose only infrastructure is an S3 bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .embedded import Purged
from .errors import (
    Conflict,
    Damaged,
    Expired,
    JobCancelled,
    JobFailed,
    LeaseLost,
    NewerFormat,
    NotFinished,
    NotFound,
    NotInstalled,
    NotSupported,
    OsqueueError,
    Rejected,
    Throttled,
    Timeout,
    Unavailable,
    Unknown,
    WaitTimeout,
)
from .job import Attempt, Done, Enqueued, Job
from .lease import AsyncLease, Lease
from .letters import DeadGroup, DeadLetter
from .queue import Queue
from .story import Story
from .worker import AsyncWorkerJob, Cancel, Fail, Retry, Snooze, WorkerJob

if TYPE_CHECKING:
    from .async_queue import AsyncQueue

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """AsyncQueue is loaded when it is first asked for: a program without coroutines never needs asyncio."""
    if name == "AsyncQueue":
        from .async_queue import AsyncQueue

        return AsyncQueue
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is to use, AsyncQueue included although it may not be loaded yet."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})


__all__ = [
    "AsyncLease",
    "AsyncQueue",
    "AsyncWorkerJob",
    "Attempt",
    "Cancel",
    "Conflict",
    "Damaged",
    "DeadGroup",
    "DeadLetter",
    "Done",
    "Enqueued",
    "Expired",
    "Fail",
    "Job",
    "JobCancelled",
    "JobFailed",
    "Lease",
    "LeaseLost",
    "NewerFormat",
    "NotFinished",
    "NotFound",
    "NotInstalled",
    "NotSupported",
    "OsqueueError",
    "Purged",
    "Queue",
    "Rejected",
    "Retry",
    "Snooze",
    "Story",
    "Throttled",
    "Timeout",
    "Unavailable",
    "Unknown",
    "WaitTimeout",
    "WorkerJob",
    "__version__",
]
