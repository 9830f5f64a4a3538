"""Which functions run the jobs of a queue object."""

from __future__ import annotations

import functools
from typing import Any, Generic, TypeVar, overload

from ..model.payload_type import T
from ..worker.handlers import AsyncHandler, BlockingHandler, HandlerDecorator, Handlers

R = TypeVar("R")


class QueueHandlers(Generic[T]):
    """The part of a queue object that its handlers are registered with."""

    def __init__(self) -> None:
        self.handlers = Handlers()

    @overload
    def handler(self, function: AsyncHandler[T, R], /) -> AsyncHandler[T, R]: ...  # type: ignore[overload-overlap]
    @overload
    def handler(self, function: BlockingHandler[T, R], /) -> BlockingHandler[T, R]: ...
    @overload
    def handler(self, *, kind: str | None = None, run_within: float | None = None) -> HandlerDecorator[T]: ...
    def handler(
        self, function: Any = None, *, kind: str | None = None, run_within: float | None = None
    ) -> Any:
        """Register the function or coroutine function that runs jobs: of one ``kind``, or all that no other takes.

        It gets a ``WorkerJob`` and returns the result, or Snooze, Retry, Fail or Cancel. ``run`` calls it. An attempt
        that takes longer than ``run_within`` seconds, or than its job says, has failed: a coroutine is cancelled, a
        function is told by ``job.timed_out``.
        """
        if function is None:
            return functools.partial(self.handlers.add, kind=kind, run_within=run_within)
        return self.handlers.add(function, kind, run_within)
