"""What the tests of elections share: a store that meddles, and candidates on machines of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from osqueue.election.base import MARGIN, ElectionRecord, unseal
from osqueue.election.blocking import Election
from osqueue.errors import Timeout, Unavailable
from osqueue.stores.base import Failed, Found, Get, Store, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

KEY = "elections/reports"
TWO_HOURS_MS = 7_200_000
LEADS_S = 10 * (1 - MARGIN)  # how long a leader believes in itself without a beat
LOST = Failed(Timeout("the reply was lost"))
FAILED = Failed(Unavailable("no answer"))


class Meddling(WrappedStore):
    """Does what a test says around the next request of a kind; ``clockless``, it tells the time as S3 does."""

    def __init__(self, inner: Store, clockless: bool = False) -> None:
        super().__init__(inner)
        self.clockless = clockless
        self.clock_tick_ms = 1_000 if clockless else inner.clock_tick_ms
        self.before: dict[type, Callable[[], StoreReply | None]] = {}
        self.after: dict[type, Callable[[], StoreReply | None]] = {}
        self.sent: list[StoreRequest] = []

    def perform(self, request: StoreRequest) -> StoreReply:
        self.sent.append(request)
        early = self.before.pop(type(request), lambda: None)()
        if early is not None:
            return early
        reply = self.inner.perform(request)
        if self.clockless and isinstance(reply, Found):
            whole = reply.modified_ms // self.clock_tick_ms * self.clock_tick_ms
            reply = msgspec.structs.replace(reply, modified_ms=whole)
        return self.after.pop(type(request), lambda: None)() or reply

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)

    def clock_ms(self) -> int | None:
        return None if self.clockless else self.inner.clock_ms()


class Scene:
    """A store and some candidates, each on a machine of its own; time passes for all of them alike."""

    def __init__(self, new_machine: Callable[..., Any], clockless: bool = False) -> None:
        self.new_machine = new_machine
        self.clock = new_machine(seed=100)
        self.machines = [self.clock]
        self.memory = MemoryStore(self.clock)
        self.store = Meddling(self.memory, clockless)

    def candidate(self, name: str = "ada", wall_off_ms: int = 0, **options: Any) -> Election:
        machine = self.new_machine(seed=len(self.machines), now_ms=self.clock.now_ms() + wall_off_ms)
        self.machines.append(machine)
        return Election(self.store, "reports", name, machine=machine, **options)

    def later(self, seconds: float) -> None:
        for machine in self.machines:
            machine.advance(seconds)

    def record(self) -> ElectionRecord:
        found = self.memory.get(Get(KEY))
        assert isinstance(found, Found)
        return unseal(found.body, KEY)
