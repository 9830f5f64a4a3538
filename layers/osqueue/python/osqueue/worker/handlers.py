"""Which function takes which kind of job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Rejected, shown
from ..model import validation
from .job import WorkerJob
from .outcomes import RunOutcome, RunReleased, outcome_of_error, outcome_of_return, raised_at

if TYPE_CHECKING:
    import asyncio

Handler = Callable[[Any], Any]
F = TypeVar("F", bound=Handler)
log = logging.getLogger("osqueue.worker")


class Handlers:
    """The handlers of one queue, by kind. The one without a kind takes whatever no other does."""

    def __init__(self) -> None:
        self._by_kind: dict[str | None, Handler] = {}

    def add(self, function: F, kind: str | None) -> F:
        """Register a handler and answer it; raises Rejected when the kind has one already."""
        if not callable(function):
            raise Rejected(f"handler: {shown(function)} cannot be called.", field="handler")
        name = None if kind is None else validation.kind(kind)
        if name in self._by_kind:
            which = "without a kind" if name is None else f"of kind {name!r}"
            raise Rejected(
                f"kind: there is a handler for jobs {which} already. Give each its own.", field="kind"
            )
        self._by_kind[name] = function
        return function

    def copy(self) -> Handlers:
        """The same handlers in a registry of its own."""
        twin = Handlers()
        twin._by_kind.update(self._by_kind)
        return twin

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """The kinds to claim; None: all. Raises Rejected when there is no handler at all."""
        if not self._by_kind:
            raise Rejected(
                "handler: the queue has none. Decorate a function with @q.handler before it runs.",
                field="handler",
            )
        if None in self._by_kind:
            return None
        return validation.kinds(kind for kind in self._by_kind if kind is not None)

    def of(self, kind: str | None) -> Handler:
        """The handler of a job of this kind."""
        handler = self._by_kind.get(kind or "") or self._by_kind.get(None)
        assert handler is not None, "only kinds with a handler are claimed"
        return handler


def is_coroutine(handler: Handler) -> bool:
    """Does a call of it return a coroutine?"""
    import inspect

    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def perform(handler: Handler, job: WorkerJob[Any]) -> RunOutcome:
    """Run a blocking handler. Whatever it does, there is an ending."""
    try:
        return outcome_of_return(handler(job))
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler fails the job, not the worker
        return _failed(job, error)


async def perform_async(
    handler: Handler, job: WorkerJob[Any], program: asyncio.Task[Any] | None = None
) -> RunOutcome:
    """Run a coroutine handler. ``program`` is the task it works for; None: this very one."""
    try:
        return outcome_of_return(await handler(job))
    except BaseException as error:  # noqa: BLE001
        return RunReleased() if _was_cancelled(error, job, program) else _failed(job, error)


def _was_cancelled(error: BaseException, job: WorkerJob[Any], program: asyncio.Task[Any] | None) -> bool:
    """Was it cancelled by the worker, which took the job from it, or with the whole program?

    That is no fault of the job's. A cancel by the handler's own code is.
    """
    import asyncio

    task = program or asyncio.current_task()
    if not isinstance(error, asyncio.CancelledError):
        return False
    return bool(job.lease_lost) or (task is not None and task.cancelling() > 0)


def _failed(job: WorkerJob[Any], error: BaseException) -> RunOutcome:
    job.error = error
    where = raised_at(error)
    log.info(
        "job %s: attempt %d/%d raised %s at %s",
        job.job_id,
        job.attempt,
        job.max_attempts,
        type(error).__name__,
        where,
    )
    return outcome_of_error(error)
