"""Which functions run the jobs of a queue object."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from ..model.payload_type import T
from ..worker.handlers import (
    AsyncHandler,
    BatchHandlerDecorator,
    BlockingHandler,
    HandlerDecorator,
    Handlers,
)

R = TypeVar("R")


class HandlerSchedule(TypedDict, total=False):
    """When the jobs of a handler come by the clock, beside its crontab line."""

    tz: str
    every: float | timedelta
    missed: Literal["once", "all", "skip"]
    overlap: Literal["allow", "skip", "queue"]
    payload: Any


class QueueHandlers(Generic[T]):
    """The part of a queue object that its handlers are registered with."""

    def __init__(self) -> None:
        self.handlers = Handlers()

    @overload
    def handler(self, function: AsyncHandler[T, R], /) -> AsyncHandler[T, R]: ...  # type: ignore[overload-overlap]
    @overload
    def handler(self, function: BlockingHandler[T, R], /) -> BlockingHandler[T, R]: ...
    @overload
    def handler(
        self,
        *,
        kind: str | None = None,
        run_within: float | None = None,
        concurrency: int | None = None,
        cron: str | None = None,
        **schedule: Unpack[HandlerSchedule],
    ) -> HandlerDecorator[T]: ...
    @overload
    def handler(
        self,
        *,
        batch: int,
        within: float = 0,
        kind: str | None = None,
        run_within: float | None = None,
        concurrency: int | None = None,
        cron: str | None = None,
        **schedule: Unpack[HandlerSchedule],
    ) -> BatchHandlerDecorator[T]: ...
    def handler(
        self,
        function: Any = None,
        *,
        kind: str | None = None,
        run_within: float | None = None,
        batch: int | None = None,
        within: float = 0,
        concurrency: int | None = None,
        cron: str | None = None,
        **schedule: Unpack[HandlerSchedule],
    ) -> Any:
        """Register the function or coroutine function that runs jobs: of one ``kind``, or all that no other takes.

        It gets a ``WorkerJob`` and returns the result, or Snooze, Retry, Fail or Cancel. ``run`` calls it. An attempt
        that takes longer than ``run_within`` seconds, or than its job says, has failed: a coroutine is cancelled, a
        function is told by ``job.timed_out``.

        With ``batch`` it gets a list of up to so many jobs, 1 to 1,000, and returns None, one ending for each of them
        in a list, or one for all. The first job waits up to ``within`` seconds for others, at most an hour. At most
        ``concurrency`` calls of it run at once in this process, and no more jobs are claimed than could start.
        Raises Rejected, and TypeError for a function that cannot be called so.

        With ``cron``, a crontab line, or ``every``, seconds, its jobs come by the clock: a worker that starts adds the
        schedule, named as the kind or as the function; ``payload``, ``tz``, ``missed`` and ``overlap`` are those of
        ``schedule``.
        """
        wish = schedule if cron is None else {"cron": cron, **schedule}

        def add(function: Any) -> Any:
            if wish:
                self.handlers.schedule(function, kind, wish)
            return self.handlers.add(function, kind, run_within, batch, within, concurrency)

        return add if function is None else add(function)
