"""Which function takes which kind of job."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..errors import Rejected, shown
from ..model import validation
from ..model.job_options import OPTIONS
from ..model.payload_type import T
from .job import AsyncWorkerJob, WorkerJob
from .logs import running
from .outcomes import (
    Directive,
    RunOutcome,
    RunReleased,
    outcome_of_error,
    outcome_of_return,
    outcomes_of_batch,
)

if TYPE_CHECKING:
    import asyncio

    from .places import HandlerPlaces

Handler = Callable[[Any], Any]
F = TypeVar("F", bound=Handler)
P = TypeVar("P")
R = TypeVar("R")

# As type checkers see one of a queue with payloads of type P that returns R.
BlockingHandler: TypeAlias = Callable[[WorkerJob[P]], R]
AsyncHandler: TypeAlias = Callable[[AsyncWorkerJob[P]], Coroutine[Any, Any, R]]
BlockingBatchHandler: TypeAlias = Callable[[list[WorkerJob[P]]], R]
AsyncBatchHandler: TypeAlias = Callable[[list[AsyncWorkerJob[P]]], Coroutine[Any, Any, R]]


class HandlerDecorator(Protocol[T]):
    """What registers a function of either sort and returns it."""

    @overload
    def __call__(self, function: AsyncHandler[T, R], /) -> AsyncHandler[T, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: BlockingHandler[T, R], /) -> BlockingHandler[T, R]: ...


class BatchHandlerDecorator(Protocol[T]):
    """The same for one that takes several jobs at once."""

    @overload
    def __call__(self, function: AsyncBatchHandler[T, R], /) -> AsyncBatchHandler[T, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: BlockingBatchHandler[T, R], /) -> BlockingBatchHandler[T, R]: ...


class HandlerRule(Struct, frozen=True, eq=False):
    """A handler, and how it is called."""

    function: Handler
    run_within: float | None = None  # seconds that one run may take
    batch: int | None = None  # it takes a list of up to so many jobs; None: one job
    within: float = 0.0  # seconds for which the first of them waits for others
    places: HandlerPlaces | None = None  # of calls at once; None: as many as the worker has

    @property
    def claims_apart(self) -> bool:
        """Are its jobs claimed by themselves?"""
        return self.batch is not None or self.places is not None


class Handlers:
    """The handlers of one queue, by kind. The one without a kind takes whatever no other does."""

    def __init__(self) -> None:
        self._rules: dict[str | None, HandlerRule] = {}
        self._wrappers: list[Callable[[Handler], Handler]] = []
        self.schedules: list[
            dict[str, Any]
        ] = []  # to be added when a worker starts, as ``schedule`` takes them

    def add(
        self,
        function: F,
        kind: str | None,
        run_within: float | None = None,
        batch: int | None = None,
        within: float = 0,
        concurrency: int | None = None,
    ) -> F:
        """Register a handler and answer it; raises Rejected when the kind has one already.

        A run that takes longer than ``run_within`` seconds is a failed attempt. A job may say less itself. With
        ``batch`` it takes a list of up to so many jobs, and the first waits up to ``within`` seconds for others. At
        most ``concurrency`` calls of it run at once in this process.
        """
        if not callable(function):
            raise Rejected(f"handler: {shown(function)} cannot be called.", field="handler")
        check_arity(function, batch is not None)
        name = None if kind is None else validation.kind(kind)
        if name in self._rules:
            which = "without a kind" if name is None else f"of kind {name!r}"
            raise Rejected(
                f"kind: there is a handler for jobs {which} already. Give each its own.", field="kind"
            )
        places = None
        if concurrency is not None:
            from .places import HandlerPlaces  # where a handler has any

            most = validation.whole_number(concurrency, "concurrency", 1, limits.HANDLER_CONCURRENCY_MAX)
            places = HandlerPlaces(most)
        called: Handler = function
        for wrapper in self._wrappers:
            called = wrapper(called)
        rule = HandlerRule(
            called,
            None if run_within is None else OPTIONS["run_within"].read(run_within) / 1000,
            None if batch is None else validation.whole_number(batch, "batch", 1, limits.HANDLER_BATCH_MAX),
            validation.milliseconds(within, "within", 0, limits.HANDLER_WITHIN_MS_MAX) / 1000,
            places,
        )
        _check_within(rule)
        rules = {**self._rules, name: rule}
        if None in rules and len(rules) > 1 and any(each.claims_apart for each in rules.values()):
            raise Rejected(
                "kind: a handler without a kind takes jobs of any, so a worker cannot leave those where they are that"
                " have a handler with batch or concurrency. Give it the kinds that it takes; kind='' is jobs without.",
                field="kind",
            )
        self._rules = rules
        return function

    def wrap(self, wrapper: Callable[[Handler], Handler]) -> None:
        """Call every handler through what ``wrapper`` makes of it, also those that are registered later."""
        self._wrappers.append(wrapper)
        self._rules = {
            kind: replace(rule, function=wrapper(rule.function)) for kind, rule in self._rules.items()
        }

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
        twin._rules = dict(self._rules)
        twin._wrappers = list(self._wrappers)
        twin.schedules.extend(self.schedules)
        return twin

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._rules)

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """The kinds to claim; None: all. Raises Rejected when there is no handler at all."""
        if not self._rules:
            raise Rejected(
                "handler: the queue has none. Decorate a function with @q.handler before it runs.",
                field="handler",
            )
        if None in self._rules:
            return None
        return validation.kinds(kind for kind in self._rules if kind is not None)

    def lines(self) -> list[tuple[HandlerRule | None, tuple[str, ...] | None]]:
        """What is claimed together: the kinds of all handlers without a rule of their own, and each of the others.

        Raises Rejected when there is no handler at all.
        """
        every = self.kinds
        apart = [(kind, rule) for kind, rule in self._rules.items() if rule.claims_apart]
        if not apart:
            return [(None, every)]
        rest = self._rules.keys() - {kind for kind, _ in apart}
        found: list[tuple[HandlerRule | None, tuple[str, ...] | None]] = [
            (rule, None if kind is None else (kind,)) for kind, rule in apart
        ]
        return [*found, (None, validation.kinds(rest))] if rest else found

    def rule(self, kind: str | None) -> HandlerRule:
        """How jobs of this kind are handled."""
        rule = self._rules.get(kind or "") or self._rules.get(None)
        assert rule is not None, "only kinds with a handler are claimed"
        return rule

    def run_within(self, job: WorkerJob[Any]) -> float | None:
        """How many seconds the attempt may run, by its job and its handler; None: there is no limit."""
        found = [seconds for seconds in (job.run_within, self.rule(job.kind).run_within) if seconds]
        return min(found, default=None)


def _check_within(rule: HandlerRule) -> None:
    if not rule.within:
        return
    if rule.batch is None:
        raise Rejected(
            "within: it is for how long a batch waits for more jobs. Say batch, too.", field="within"
        )
    if rule.run_within is not None and rule.within >= rule.run_within:
        raise Rejected(
            f"within: {rule.within:g} s; an attempt has {rule.run_within:g} s in all, and its time runs while it waits"
            " for others. Wait for less, or raise run_within.",
            field="within",
        )


def check_arity(function: Handler, batch: bool = False) -> None:
    """Raises TypeError for a function that cannot be called with one argument: it would fail every attempt."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of one that is not written in Python
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(function, "__qualname__", None) or type(function).__name__
        what, which = ("the list of jobs", "jobs") if batch else ("the job", "job")
        use = "" if batch else " with job.payload and the rest of job"
        remedy = f"Write def handler({which}){use}, and give others a default."
        if inspect.isclass(function):
            remedy = f"Register a function or an object with __call__(self, {which})."
        raise TypeError(
            f"handler {name}{signature}: it is called with one argument, {what} ({error}). {remedy}"
        ) from None


def is_coroutine(handler: Handler) -> bool:
    """Does a call of it return a coroutine?"""
    import inspect

    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def perform(rule: HandlerRule, jobs: Sequence[WorkerJob[Any]]) -> list[RunOutcome]:
    """Run a blocking handler: one ending for each job. Whatever it does, there are as many."""
    try:
        with running(jobs):
            return _endings(rule, jobs, rule.function(_argument(rule, jobs)))
    except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler fails the job, not the worker
        return _failed(jobs, error)


async def perform_async(
    rule: HandlerRule, jobs: Sequence[WorkerJob[Any]], program: asyncio.Task[Any] | None = None
) -> list[RunOutcome]:
    """Run a coroutine handler. ``program`` is the task it works for; None: this very one."""
    try:
        with running(jobs):
            return _endings(rule, jobs, await rule.function(_argument(rule, jobs)))
    except BaseException as error:  # noqa: BLE001
        if _was_cancelled(error, jobs, program):
            return [RunReleased() for _ in jobs]
        return _failed(jobs, error)


def _argument(rule: HandlerRule, jobs: Sequence[WorkerJob[Any]]) -> Any:
    return jobs[0] if rule.batch is None else list(jobs)


def _endings(rule: HandlerRule, jobs: Sequence[WorkerJob[Any]], value: Any) -> list[RunOutcome]:
    if rule.batch is None:
        return [outcome_of_return(value)]
    if isinstance(value, list | tuple) and len(value) == len(jobs):
        for job, each in zip(jobs, value, strict=True):
            if isinstance(each, BaseException) and not isinstance(each, Directive):
                job.error = each
    return outcomes_of_batch(value, len(jobs))


def _was_cancelled(
    error: BaseException, jobs: Sequence[WorkerJob[Any]], program: asyncio.Task[Any] | None
) -> bool:
    """Was it cancelled by the worker, which took its jobs from it, or with the whole program?

    That is no fault of theirs. A cancel by the handler's own code is.
    """
    import asyncio

    task = program or asyncio.current_task()
    if not isinstance(error, asyncio.CancelledError):
        return False
    return all(job.lease_lost for job in jobs) or (task is not None and task.cancelling() > 0)


def _failed(jobs: Sequence[WorkerJob[Any]], error: BaseException) -> list[RunOutcome]:
    for job in jobs:
        job.error = error
    return [outcome_of_error(error)] * len(jobs)
