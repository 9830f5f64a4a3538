"""osqueue: a serverless job queue whose only infrastructure is an S3 bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import (
    Conflict,
    Damaged,
    LeaseLost,
    NewerFormat,
    NotFound,
    NotInstalled,
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
from .queue import Queue
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
    "Done",
    "Enqueued",
    "Fail",
    "Job",
    "Lease",
    "LeaseLost",
    "NewerFormat",
    "NotFound",
    "NotInstalled",
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
