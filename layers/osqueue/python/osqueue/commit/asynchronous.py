"""The commit layer for coroutines: a driver that awaits, and group commit among the tasks of one event loop.

A module of its own, so that a program without coroutines never loads asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ..clock import Machine
from ..core.ops import Op
from ..core.state import Event
from ..errors import Unavailable
from ..stores.base import Store
from .effects import All, Effect, Flow, Sleep
from .group import Flight, Rider, boarding, give_back
from .protocol import Answer
from .writer import Writer

T = TypeVar("T")


OnEventsAsync = Callable[[Sequence[Event]], Awaitable[None] | None]


class AsyncDriver:
    """Performs effects on the running event loop."""

    def __init__(self, store: Store, machine: Machine) -> None:
        self.store = store
        self.machine = machine

    async def perform(self, effect: Effect) -> Any:
        """Carry out one effect and answer its reply."""
        if isinstance(effect, Sleep):
            await asyncio.sleep(effect.seconds)
            return None
        if isinstance(effect, All):
            return tuple(await asyncio.gather(*map(self.store.perform_async, effect.requests)))
        return await self.store.perform_async(effect)

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end."""
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            reply = await self.perform(effect)


class AsyncGroup:
    """Group commit for coroutines: a flight is a task of its own, so a cancelled caller cannot take it down."""

    def __init__(self, writer: Writer, driver: AsyncDriver, on_events: OnEventsAsync | None = None) -> None:
        self.writer = writer
        self.driver = driver
        self.on_events = on_events
        self._waiting: list[Rider] = []
        self._task: asyncio.Task[None] | None = None

    def board(self, ops: tuple[Op, ...], deadline: float, look: bool = False) -> Rider:
        """Commit operations together with those of other callers; the rider's ``wake`` brings this caller's answer.

        A caller that is cancelled while it awaits that has to ``leave``.
        """
        rider = Rider(ops, deadline, asyncio.Future(), look)
        self._board(rider)
        return rider

    def leave(self, rider: Rider) -> None:
        """Nobody waits for this rider any more; leases that just arrived for it are given back."""
        rider.gone = True
        if rider.answer is not None and (chores := give_back(rider.answer)):
            self._board(Rider(tuple(chores), rider.deadline, None))

    def _board(self, rider: Rider) -> None:
        self._waiting.append(rider)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._fly())

    async def _fly(self) -> None:
        while self._waiting:
            riders = boarding(self._waiting)
            if not riders:
                return
            flight = Flight(self.writer, riders)
            answer: Answer | None = None
            try:
                answer = await self.driver.run(flight.flow)
            except Exception as error:  # noqa: BLE001 - whatever it is, every rider hears it
                flight.crash(error)
            except BaseException as error:
                flight.crash(Unavailable("the event loop ended while the operation was under way"))
                _wake(flight.riders)
                raise error
            else:
                chores = flight.land(answer)
                if chores:
                    self._waiting.append(Rider(tuple(chores), riders[0].deadline, None))
            _wake(flight.riders)
            if answer is not None and answer.events and self.on_events is not None:
                told = self.on_events(answer.events)
                if told is not None:
                    await told  # before the next flight, so that events keep their order
            # Let those who just landed speak first: their next requests then share the next flight.
            await asyncio.sleep(0)


def _wake(riders: Sequence[Rider]) -> None:
    for rider in riders:
        if rider.wake is None or rider.wake.done():
            continue
        if rider.error is not None:
            rider.wake.set_exception(rider.error)
        else:
            rider.wake.set_result(rider.answer)
