"""The worker: claims jobs, runs their handlers, keeps their leases and reports their endings.

    @q.handler
    def send(job):
        mail(job.payload["to"], key=job.idempotency_key)

    q.run(concurrency=8)

One module per duty: ``handlers`` (which function takes which kind), ``job`` (what a handler gets), ``outcomes`` (what a
handler may ask for), ``logs`` (what is logged of jobs), ``reporter`` (what is reported to the queue, as flows),
``lines`` (what is claimed together, and when), ``places`` (how many calls of a handler run at once), ``in_hand`` (jobs
and the calls of handlers that they are of), ``heartbeats``, ``signals``, ``threads``, ``loop`` (the worker itself).
"""

from __future__ import annotations

from typing import Any

from .job import AsyncWorkerJob, Signal, WorkerJob
from .logs import JobLogFilter
from .outcomes import Cancel, Fail, Retry, Snooze, Tally, Throttle

__all__ = [
    "AsyncWorkerJob",
    "Cancel",
    "Fail",
    "JobLogFilter",
    "Retry",
    "Signal",
    "Snooze",
    "Tally",
    "Throttle",
    "WorkerJob",
    "run_worker",
]


def run_worker(queue: Any, **options: Any) -> Tally:
    """Work on a queue, blocking or async, until a signal or until it is empty: see ``osqueue.worker.loop.Worker``."""
    from .loop import Worker

    return Worker(queue, **options).run()
