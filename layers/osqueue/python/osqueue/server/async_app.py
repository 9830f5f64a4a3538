"""The server for coroutines: the requests of one event loop share their commits, and those who wait hold no thread."""

from __future__ import annotations

from typing import Any

from ..commit.async_group import AsyncDriver
from ..queue.asynchronous import AsyncQueue
from .app import ApiBase, ApiRequest, ApiResponse, failed, success
from .queues import ServedQueue


class AsyncServedQueue(ServedQueue, AsyncQueue[Any]):
    """One for coroutines."""


class AsyncApi(ApiBase[AsyncServedQueue]):
    """Answers requests about the queues of one store. One object belongs to one event loop."""

    _queue_class = AsyncServedQueue

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer a request, within about ``deadline_s``. Raises nothing.

        Where its task is cancelled, what it was granted is given back.
        """
        notes: dict[str, Any] = {}
        try:
            queue, flow = self._call(request, notes)
            if queue is None:
                return success(await AsyncDriver(self.store, self.machine).run(flow), notes)
            return success(await queue._run(flow), notes)
        except Exception as error:  # noqa: BLE001 - told in the answer
            return failed(error, notes)

    async def close(self) -> None:
        """Send slow sinks what is still unsent, and release connections."""
        for queue in list(self._queues.values()):
            await queue.close()
        self.store.close()
