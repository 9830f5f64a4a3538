"""Which function takes which kind of job."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

from ..errors import Rejected, shown
from ..model import validation
from ..model.job_options import OPTIONS
from ..model.payload_type import T
from .job import AsyncWorkerJob, WorkerJob
from .logs import running
from .outcomes import RunOutcome, RunReleased, outcome_of_error, outcome_of_return

if TYPE_CHECKING:
    import asyncio

Handler = Callable[[Any], Any]
F = TypeVar("F", bound=Handler)
P = TypeVar("P")
R = TypeVar("R")

# As type checkers see one of a queue with payloads of type P that returns R.
BlockingHandler: TypeAlias = Callable[[WorkerJob[P]], R]
AsyncHandler: TypeAlias = Callable[[AsyncWorkerJob[P]], Coroutine[Any, Any, R]]


class HandlerDecorator(Protocol[T]):
    """What registers a function of either sort and returns it."""

    @overload
    def __call__(self, function: AsyncHandler[T, R], /) -> AsyncHandler[T, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: BlockingHandler[T, R], /) -> BlockingHandler[T, R]: ...


class Handlers:
    """The handlers of one queue, by kind. The one without a kind takes whatever no other does."""

    def __init__(self) -> None:
        self._by_kind: dict[str | None, Handler] = {}
        self._seconds: dict[str | None, float] = {}  # that one run may take, by the same keys
        self.schedules: list[
            dict[str, Any]
        ] = []  # to be added when a worker starts, as ``schedule`` takes them

    def add(self, function: F, kind: str | None, run_within: float | None = None) -> F:
        """Register a handler and answer it; raises Rejected when the kind has one already.

        A run that takes longer than ``run_within`` seconds is a failed attempt. A job may say less itself.
        """
        if not callable(function):
            raise Rejected(f"handler: {shown(function)} cannot be called.", field="handler")
        check_arity(function)
        name = None if kind is None else validation.kind(kind)
        if name in self._by_kind:
            which = "without a kind" if name is None else f"of kind {name!r}"
            raise Rejected(
                f"kind: there is a handler for jobs {which} already. Give each its own.", field="kind"
            )
        if run_within is not None:
            self._seconds[name] = OPTIONS["run_within"].read(run_within) / 1000
        self._by_kind[name] = function
        return function

    def schedule(self, function: Handler, kind: str | None, wish: Mapping[str, Any]) -> None:
        """Let a handler's jobs come by the clock: under its kind's name, or its own. Raises Rejected."""
        name = kind or getattr(function, "__name__", "")
        known = {"cron": None, "tz": "UTC", "every": None, "missed": "once", "overlap": "allow"} | dict(wish)
        payload = known.pop("payload", None)
        options = {} if kind is None else {"kind": kind}
        from ..model.schedule import schedule_row  # where one has a schedule

        schedule_row(name, **known, codec="json", options=options)  # refused here, and not when it runs
        self.schedules.append({"name": name, "payload": payload, "options": options, **known})

    def copy(self) -> Handlers:
        """The same handlers in a registry of its own."""
        twin = Handlers()
        twin._by_kind.update(self._by_kind)
        twin._seconds.update(self._seconds)
        twin.schedules.extend(self.schedules)
        return twin

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._by_kind)

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

    def run_within(self, job: WorkerJob[Any]) -> float | None:
        """How many seconds the attempt may run, by its job and its handler; None: there is no limit."""
        kind = job.kind if job.kind in self._by_kind else None
        limits = [seconds for seconds in (job.run_within, self._seconds.get(kind)) if seconds]
        return min(limits, default=None)


def check_arity(function: Handler) -> None:
    """Raises TypeError for a function that cannot be called with a job alone: it would fail every attempt."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of one that is not written in Python
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(function, "__qualname__", None) or type(function).__name__
        remedy = "Write def handler(job): with job.payload and the rest of job, and give others a default."
        if inspect.isclass(function):
            remedy = "Register a function or an object with __call__(self, job)."
        raise TypeError(
            f"handler {name}{signature}: it is called with one argument, the job ({error}). {remedy}"
        ) from None


def is_coroutine(handler: Handler) -> bool:
    """Does a call of it return a coroutine?"""
    import inspect

    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def perform(handler: Handler, job: WorkerJob[Any]) -> RunOutcome:
    """Run a blocking handler. Whatever it does, there is an ending."""
    try:
        with running(job):
            return outcome_of_return(handler(job))
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler fails the job, not the worker
        return _failed(job, error)


async def perform_async(
    handler: Handler, job: WorkerJob[Any], program: asyncio.Task[Any] | None = None
) -> RunOutcome:
    """Run a coroutine handler. ``program`` is the task it works for; None: this very one."""
    try:
        with running(job):
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
    return outcome_of_error(error)
