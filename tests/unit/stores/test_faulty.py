"""Stores that misbehave on purpose do so as told: before the effect, after it, in time, by the seed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from osqueue.clock import Machine
from osqueue.errors import Timeout, Unavailable
from osqueue.stores.base import (
    Delete,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    StoreRequest,
    Written,
)
from osqueue.stores.counting import CountingStore
from osqueue.stores.faulty import FaultyStore, SlowStore
from osqueue.stores.memory import MemoryStore

EVERY: tuple[StoreRequest, ...] = (
    Get("a"),
    Put("a", b"x"),
    PutIfAbsent("b", b"x"),
    PutIfMatch("a", b"x", "v"),
    List(""),
    Delete(("a",)),
    DeleteIfMatch("a", "v"),
)


class SleepingMachine(Machine):
    """Sleeps are written down, with what stood in the store at that moment, and take no time."""

    def __init__(self, memory: MemoryStore) -> None:
        self.memory = memory
        self.slept: list[tuple[float, bool]] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append((seconds, isinstance(self.memory.get(Get("a")), Found)))


@pytest.mark.parametrize("request_", EVERY, ids=lambda request: type(request).__name__)
def test_an_error_comes_before_the_effect(request_: StoreRequest) -> None:
    memory = CountingStore(MemoryStore())
    store = FaultyStore(memory, error_rate=1.0)
    for reply in (store.perform(request_), asyncio.run(store.perform_async(request_))):
        assert isinstance(reply, Failed)
        assert isinstance(reply.error, Unavailable)
    assert sum(memory.requests.values()) == 0, "the request must not reach the store"


def test_a_lost_reply_comes_after_the_effect() -> None:
    memory = MemoryStore()
    store = FaultyStore(memory, lost_reply_rate=1.0)
    reply = store.perform(PutIfAbsent("a", b"x"))
    assert isinstance(reply, Failed)
    assert isinstance(reply.error, Timeout)
    assert isinstance(memory.get(Get("a")), Found)
    reply = asyncio.run(store.perform_async(Delete(("a",))))
    assert isinstance(reply, Failed)
    assert memory.get(Get("a")) == Missing()


def test_the_methods_raise_what_perform_answers() -> None:
    broken = FaultyStore(MemoryStore(), error_rate=1.0)
    for call in (
        lambda: broken.get(Get("a")),
        lambda: broken.put(Put("a", b"x")),
        lambda: broken.put_if_absent(PutIfAbsent("a", b"x")),
        lambda: broken.put_if_match(PutIfMatch("a", b"x", "v")),
        lambda: broken.list(List("")),
        lambda: broken.delete(Delete(("a",))),
        lambda: broken.delete_if_match(DeleteIfMatch("a", "v")),
    ):
        with pytest.raises(Unavailable):
            call()
    with pytest.raises(Timeout):
        FaultyStore(MemoryStore(), lost_reply_rate=1.0).put(Put("a", b"x"))


def fates(store: FaultyStore, count: int = 2000) -> list[str]:
    def fate(reply: StoreReply) -> str:
        return type(reply.error).__name__ if isinstance(reply, Failed) else "fine"

    return [fate(store.perform(Get("a"))) for _ in range(count)]


def test_a_seed_always_tells_the_same_story() -> None:
    def story(seed: int) -> list[str]:
        return fates(FaultyStore(MemoryStore(), 0.1, 0.2, seed=seed))

    assert story(7) == story(7)
    assert story(7) != story(8)
    # Fixed for good: a story once reported must be replayable by later releases.
    told = [index for index, fate in enumerate(story(7)[:60]) if fate != "fine"]
    assert told == [0, 10, 13, 15, 18, 19, 21, 22, 26, 35, 42, 45, 48, 50]


def test_rates_are_kept() -> None:
    counted = fates(FaultyStore(MemoryStore(), error_rate=0.1, lost_reply_rate=0.2, seed=1), 20_000)
    assert 0.09 < counted.count("Unavailable") / 20_000 < 0.11
    assert 0.17 < counted.count("Timeout") / 20_000 < 0.19, "0.2 of those that did not fail before"


def test_one_rate_does_not_shift_the_other() -> None:
    only_errors = fates(FaultyStore(MemoryStore(), error_rate=0.1, seed=3))
    both = fates(FaultyStore(MemoryStore(), error_rate=0.1, lost_reply_rate=0.3, seed=3))
    assert [fate == "Unavailable" for fate in only_errors] == [fate == "Unavailable" for fate in both]


def test_without_faults_answers_pass_unchanged() -> None:
    store = FaultyStore(SlowStore(MemoryStore(), 0))
    written = store.perform(PutIfAbsent("a", b"x"))
    assert isinstance(written, Written)
    assert store.perform(PutIfAbsent("a", b"x")) == Refused()
    assert store.perform(List("")) == Listed(("a",), more=False)


def test_half_of_the_latency_comes_before_the_effect_and_half_after() -> None:
    memory = MemoryStore()
    machine = SleepingMachine(memory)
    SlowStore(memory, 30, machine).perform(Put("a", b"x"))
    assert machine.slept == [(0.015, False), (0.015, True)]


def test_slow_coroutines_wait_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SlowStore(MemoryStore(), 60)
    slept: list[float] = []
    asleep: list[int] = []  # how many at the same time, after each change
    wait, mine = asyncio.sleep, threading.get_ident()

    async def sleep(seconds: float) -> None:
        if threading.get_ident() != mine:  # a server of other tests, in a thread of its own
            return await wait(seconds)
        slept.append(seconds)
        asleep.append(asleep[-1] + 1 if asleep else 1)
        await wait(0)
        asleep.append(asleep[-1] - 1)

    async def many() -> None:
        await asyncio.gather(*(store.perform_async(Put(f"{number}", b"x")) for number in range(50)))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(many())
    assert slept == [0.03] * 100
    assert max(asleep) == 50


def test_a_wrapper_passes_on_the_key_limit_and_the_clock(machine: Any) -> None:
    memory = MemoryStore(machine)
    memory.key_bytes_max = 77
    memory.name_bytes_max = 33
    store = CountingStore(SlowStore(FaultyStore(memory), 1))
    assert (store.key_bytes_max, store.name_bytes_max) == (77, 33)
    assert (store.room_below("a/"), store.room_below("a/" * 30)) == (33, 17)
    assert store.clock_ms() == machine.now_ms()


def test_failed_requests_are_counted_too() -> None:
    store = CountingStore(FaultyStore(MemoryStore(), error_rate=1.0))
    for request in EVERY:
        store.perform(request)
        asyncio.run(store.perform_async(request))
    assert store.requests == {"get": 2, "put": 6, "list": 2, "delete": 4}
    snapshot = store.requests
    store.perform(Get("a"))
    assert snapshot["get"] == 2
