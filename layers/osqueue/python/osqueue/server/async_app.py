"""The server for coroutines: the requests of one event loop share their commits, and those who wait hold no thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..commit.async_group import AsyncDriver
from ..commit.effects import AwaitNews
from ..queue.asynchronous import AsyncQueue
from .app import ApiBase, ApiRequest, ApiResponse, failed, success
from .queues import ServedQueue

if TYPE_CHECKING:
    from ..pacer.asynchronous import AsyncPacer


class AsyncServedQueue(ServedQueue, AsyncQueue[Any]):
    """One for coroutines, of a server through which everything passes: its callers need not reach the store."""

    presigns = False

    def _make_driver(self) -> None:
        super()._make_driver()
        self._asleep: dict[Any, None] = {}  # those who wait for news

    async def _await(self, effect: AwaitNews) -> None:
        self._asleep[effect.sleeper] = None
        try:
            if not self.flows.closing:
                await super()._await(effect)
        finally:
            self._asleep.pop(effect.sleeper, None)

    def end_waits(self) -> None:
        """Answer now, as if its time were over, each request that waits for a job, a result, an event or a window."""
        self.flows.closing = True
        self._suspend_window(True)
        for sleeper in list(self._asleep):
            sleeper.tell()


class AsyncApi(ApiBase[AsyncServedQueue, "AsyncPacer"]):
    """Answers requests about the queues of one store. One object belongs to one event loop.

    >>> asyncio.run(AsyncApi("memory://").answer(ApiRequest("GET", "/healthz"))).status
    200
    """

    _queue_class = AsyncServedQueue

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer a request, within about ``deadline_s``. Raises nothing.

        Where its task is cancelled, what it was granted is given back.
        """
        notes: dict[str, Any] = {}
        try:
            runner, flow = self._call(request, notes)
            if runner is None:
                return success(await AsyncDriver(self.store, self.machine).run(flow), notes)
            return success(await runner._run(flow), notes)
        except Exception as error:  # noqa: BLE001 - told in the answer
            return failed(error, notes)

    def _new_pacer(self, name: str) -> AsyncPacer:
        from ..pacer.asynchronous import AsyncPacer  # here: few requests are about pacers

        return AsyncPacer(self.store, name, machine=self.machine)

    def end_waits(self) -> None:
        """End the waits of all requests, those to come too: the process is about to end."""
        self._window = 0.0
        for queue in list(self._queues.values()):
            queue.end_waits()

    async def close(self) -> None:
        """Send slow sinks what is still unsent, and release connections."""
        for queue in list(self._queues.values()):
            await queue.close()
        self.store.close()
