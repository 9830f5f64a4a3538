"""An event loop in virtual time: asyncio's own tasks and futures, on the world's heap of events."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from .fibers import Host


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one process."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.failure: BaseException | None = None
        super().__init__()
        host.ends = self._abandon

    def begin(self, body: Callable[[], Coroutine[Any, Any, Any]], after: float = 0.0) -> None:
        """Run a coroutine as a task, ``after`` so many seconds. Its error fails the run."""

        def ended(task: asyncio.Task[Any]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.failure = error

        def start() -> None:
            events._set_running_loop(self)
            try:
                task = self.create_task(body())
            finally:
                events._set_running_loop(None)
            task.add_done_callback(ended)

        self.host.later(after, start)

    def time(self) -> float:
        return self.host.world.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.host.later(0.0, partial(self._run, handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.host.later(max(0.0, when - self.time()), partial(self._run, handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Never."""

    def is_running(self) -> bool:
        return self.host.alive

    def is_closed(self) -> bool:
        return not self.host.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.host.alive:  # what a dead process left undone is no news
            self.failure = context.get("exception") or RuntimeError(context["message"])

    def _abandon(self) -> None:
        """Its process is over: what its tasks wait for never comes."""
        for task in asyncio.all_tasks(self):
            coroutine = task.get_coro()
            assert coroutine is not None
            coroutine.close()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
