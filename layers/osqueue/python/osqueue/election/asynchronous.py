"""AsyncElection: the same election for coroutines.

from osqueue.election import AsyncElection

election = AsyncElection.connect("file://jobs", "reports")
async with election.lead() as fence:
    while election.is_leader:
        await report(fence)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from ..commit.async_group import AsyncDriver
from ..commit.effects import Flow
from ..queue.flow_methods import Awaiting
from ..stores.base import Store
from .base import ElectionBase

T = TypeVar("T")


class AsyncElection(Awaiting, ElectionBase):
    """A candidate in an election, with coroutines. One object belongs to one event loop."""

    def __init__(self, store: Store, name: str, candidate: str | None = None, **options: Any) -> None:
        super().__init__(store, name, candidate, **options)
        self._driver = AsyncDriver(self.store, self.machine)

    async def _run(self, flow: Flow[T]) -> T:
        return await self._driver.run(flow)

    @contextlib.asynccontextmanager
    async def lead(self, timeout: float | None = None) -> AsyncIterator[int]:
        """The same as ``Election.lead``; a task beats."""
        fence = await self._run(self._await_leadership(timeout))
        beats = asyncio.create_task(self._run(self._keep_leading(fence)))
        try:
            yield fence
        finally:
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)
            await self._run(self._step_down())
