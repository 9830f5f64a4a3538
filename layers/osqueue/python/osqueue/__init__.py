"""osqueue: a serverless job queue whose only infrastructure is an S3 bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from .model.batch import BatchStatus
    from .model.dead_letters import DeadGroup, DeadLetter, DeadLetterDetails
    from .model.explain import Story
    from .model.follow_ups import Next
    from .model.included import JobDetails
    from .model.job import Attempt, Done, Enqueued, Job
    from .model.pacer import PacerStatus
    from .model.reports import CancelledMany, Purged
    from .model.settings import Kind
    from .model.unique import Unique
    from .model.worker import WorkerStatus
    from .pacer import AsyncPacer, AsyncReservation, Pacer, Reservation
    from .queue.asynchronous import AsyncQueue
    from .queue.batches import AsyncBatch, Batch
    from .queue.blocking import Queue
    from .queue.lease import AsyncLease, Lease
    from .worker import AsyncWorkerJob, Cancel, Fail, Retry, Snooze, Throttle, WorkerJob

__version__ = "0.1.0"

# Loaded when first asked for: a handler that enqueues pays neither for asyncio nor for an operator's tools, and the
# command line's help for nothing at all.
_LATER = {
    **dict.fromkeys(("Attempt", "Done", "Enqueued", "Job"), "model.job"),
    **dict.fromkeys(("AsyncLease", "Lease"), "queue.lease"),
    **dict.fromkeys(
        ("AsyncWorkerJob", "Cancel", "Fail", "Retry", "Snooze", "Throttle", "WorkerJob"), "worker"
    ),
    **dict.fromkeys(("AsyncPacer", "AsyncReservation", "Pacer", "Reservation"), "pacer"),
    "AsyncQueue": "queue.asynchronous",
    "DeadGroup": "model.dead_letters",
    "DeadLetter": "model.dead_letters",
    "DeadLetterDetails": "model.dead_letters",
    "JobDetails": "model.included",
    "Kind": "model.settings",
    "PacerStatus": "model.pacer",
    "CancelledMany": "model.reports",
    "Purged": "model.reports",
    "Queue": "queue.blocking",
    "Story": "model.explain",
    "Unique": "model.unique",
    "BatchStatus": "model.batch",
    "WorkerStatus": "model.worker",
    "Next": "model.follow_ups",
    **dict.fromkeys(("AsyncBatch", "Batch"), "queue.batches"),
}


def __getattr__(name: str) -> Any:
    """The public names that are not loaded with the package."""
    if name in _LATER:
        from importlib import import_module

        globals()[name] = found = getattr(import_module(f".{_LATER[name]}", __name__), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is to use, whether or not it is loaded yet."""
    return sorted({*globals(), *__all__} - {"Any", "TYPE_CHECKING", "annotations"})


__all__ = [
    "AsyncBatch",
    "AsyncLease",
    "AsyncPacer",
    "AsyncQueue",
    "AsyncReservation",
    "AsyncWorkerJob",
    "Attempt",
    "Batch",
    "BatchStatus",
    "Cancel",
    "CancelledMany",
    "Conflict",
    "Damaged",
    "DeadGroup",
    "DeadLetter",
    "DeadLetterDetails",
    "Done",
    "Enqueued",
    "Expired",
    "Fail",
    "Job",
    "JobCancelled",
    "JobDetails",
    "JobFailed",
    "Kind",
    "Lease",
    "LeaseLost",
    "NewerFormat",
    "Next",
    "NotFinished",
    "NotFound",
    "NotInstalled",
    "NotSupported",
    "OsqueueError",
    "Pacer",
    "PacerStatus",
    "Purged",
    "Queue",
    "Rejected",
    "Reservation",
    "Retry",
    "Snooze",
    "Story",
    "Throttle",
    "Throttled",
    "Timeout",
    "Unavailable",
    "Unique",
    "Unknown",
    "WaitTimeout",
    "WorkerJob",
    "WorkerStatus",
    "__version__",
]
