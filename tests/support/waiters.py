"""Callers who wait, driven by hand: they go on when a test lets time pass, or when they are woken."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from operator import attrgetter
from typing import Any

from osqueue import Queue
from osqueue.commit.effects import AwaitNews
from osqueue.errors import OsqueueError
from osqueue.model.keys import key_of
from osqueue.objects.layout import root_of
from osqueue.stores.base import Get, Store, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support.stepping import LOST

ROOT = root_of("mail", 0)
HEAD = ROOT + "head"
WAITING = "waiting"


class Process(WrappedStore):
    """The store as another process sees it, with every request and its time noted."""

    def __init__(self, inner: MemoryStore, machine: Any) -> None:
        super().__init__(inner)
        self.remote = True
        self.look_pace = Store.look_pace
        self.machine = machine
        self.seen: list[tuple[float, StoreRequest]] = []
        self.silent = 0  # requests that get no answer
        self.refusal: StoreReply | None = None  # of every GET

    @property
    def place(self) -> object:
        return self

    def perform(self, request: StoreRequest) -> StoreReply:
        self.seen.append((self.machine.monotonic(), request))
        if self.silent:
            self.silent -= 1
            return LOST
        if self.refusal is not None and isinstance(request, Get):
            return self.refusal
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)

    def looks(self) -> list[float]:
        """When the head was read."""
        return [at for at, request in self.seen if isinstance(request, Get) and request.key == HEAD]

    def reads(self, folder: str) -> Counter[str]:
        """How often each object of a folder was read."""
        gets = [request for _, request in self.seen if isinstance(request, Get)]
        return Counter(each.key for each in gets if each.key.startswith(ROOT + folder))


class Waiter:
    """One caller who waits for a job; it goes on when its time has come or when it is woken."""

    def __init__(self, q: Queue[Any], job: str, timeout: float = 100.0) -> None:
        self.q = q
        self.flow = q._flows.wait(key_of(job), timeout)
        self.answer: Any = WAITING
        self.until = 0.0  # when it goes on by itself
        self.ended = 0.0
        self._asleep = ExitStack()
        self.resume()

    def resume(self) -> None:
        """Go on until it waits again, or is done."""
        self._asleep.close()
        reply: Any = None
        while True:
            try:
                effect = self.flow.send(reply)
            except StopIteration as stop:
                self.answer, self.ended = stop.value, self.q.machine.monotonic()
                return
            except OsqueueError as error:
                self.answer, self.ended = error, self.q.machine.monotonic()
                return
            if isinstance(effect, AwaitNews):
                self.until = self.q.machine.monotonic() + effect.seconds
                self._asleep.enter_context(effect.sleeper.waking(self._wake))
                return
            reply = self.q._driver.perform(effect)

    def _wake(self) -> None:
        self.until = self.q.machine.monotonic()

    @property
    def over(self) -> bool:
        return self.answer is not WAITING


def let_pass(machine: Any, seconds: float, waiters: list[Waiter]) -> None:
    """Time goes by; whoever's turn it is goes on."""
    end = machine.seconds + seconds
    going = [each for each in waiters if not each.over]
    while going:
        first = min(going, key=attrgetter("until"))
        if first.until > end:
            break
        machine.advance(max(0.0, first.until - machine.seconds) + 1e-9)  # no sleep is shorter than asked
        first.resume()
        if first.over:
            going.remove(first)
    machine.advance(max(0.0, end - machine.seconds))


def enqueue(q: Queue[Any], **options: Any) -> str:
    return str(q.enqueue(1, **options).job_id)
