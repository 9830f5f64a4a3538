"""AsyncPacer: the same pacer for coroutines.

from osqueue import AsyncPacer

stripe = AsyncPacer.connect("file://jobs", "stripe")


@stripe
async def charge(order): ...
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from ..clock import Machine
from ..commit.async_group import AsyncDriver
from ..commit.effects import Sleep
from ..core.state import Transition
from ..queue.asynchronous import AsyncRunner
from ..queue.flow_methods import Awaiting
from .base import PacerBase, ReservationBase, refuse_function

P = ParamSpec("P")
R = TypeVar("R")


class PacerDriver(AsyncDriver):
    """Sleeps by the machine's own clock where that is not the real one, as in a test."""

    async def perform(self, effect: Any, deadline: float = math.inf) -> Any:
        """Carry out one effect and return its reply."""
        if isinstance(effect, Sleep) and type(self.machine).sleep is not Machine.sleep:
            self.machine.sleep(effect.seconds)
            return await asyncio.sleep(0)
        return await super().perform(effect, deadline)


class AsyncReservation(Awaiting, ReservationBase):
    """A slot that was reserved: await it, or give it back."""


class AsyncPacer(AsyncRunner, PacerBase):
    """The same pacer for coroutines. One object belongs to one event loop; its tasks share its commits."""

    def _make_driver(self) -> None:
        super()._make_driver()
        self._driver = PacerDriver(self._place, self.machine)

    def _tell_async(self, events: Sequence[Transition]) -> None:
        """No job has its transitions here."""

    async def reserve(self, units: int = 1) -> AsyncReservation:
        """The same as ``Pacer.reserve``."""
        return AsyncReservation(self, await self._run(self._flows.reserve(units)))

    @asynccontextmanager
    async def turn(self, units: int = 1) -> AsyncIterator[AsyncReservation]:
        """Wait for a turn, then run the block: ``async with pacer.turn():``. Raises what ``reserve`` does."""
        yield AsyncReservation(self, await self._run(self._flows.take(units)), spent=True)

    async def call(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Wait for a turn, then call a function, and await what it returns if that can be awaited."""
        if not callable(function):
            raise refuse_function(function, "it is no function. Pass one, with its arguments behind it.")
        await self._run(self._flows.take())
        found: Any = function(*args, **kwargs)
        result: R = await found if inspect.isawaitable(found) else found
        return result

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a coroutine function: each call of it waits for a turn first."""
        if not inspect.iscoroutinefunction(function):
            raise refuse_function(function, "it is no coroutine function. Use a Pacer of the same name.")

        @functools.wraps(function)
        async def paced(*args: P.args, **kwargs: P.kwargs) -> R:
            await self._run(self._flows.take())
            return await function(*args, **kwargs)

        return paced

    async def close(self) -> None:
        """Release connections. The object may be used again."""
        self._place.close()

    async def __aenter__(self) -> AsyncPacer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
