"""The list of workers: what they say of themselves, beside what the heads say of their leases."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue, Unavailable
from osqueue.model.worker import WorkerEntry
from osqueue.objects.layout import root_of
from osqueue.objects.worker_registry import KEPT_MS, folder_of
from osqueue.operations.workers import LOST_AFTER
from osqueue.stores.base import (
    Failed,
    List,
    Put,
    PutIfAbsent,
    PutIfMatch,
    StoreReply,
    StoreRequest,
)
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore


class Gate(WrappedStore):
    """A store whose clock has to be measured, which counts requests and may let nobody write."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.read_only = False
        self.asked: list[StoreRequest] = []

    def clock_ms(self) -> int | None:
        return None

    def perform(self, request: StoreRequest) -> StoreReply:
        self.asked.append(request)
        if self.read_only and isinstance(request, Put | PutIfAbsent | PutIfMatch):
            return Failed(Unavailable("403", permanent=True))
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    queue: Queue[Any] = Queue(store, "mail", machine=machine)
    queue.configure(priority=5)
    return queue


def say(q: Queue[Any], worker_id: str, **entry: Any) -> None:
    assert q._run(q._flows.put_worker(worker_id, WorkerEntry(**{"name": worker_id, **entry})))


def states(q: Queue[Any]) -> list[tuple[str, str]]:
    return [(each.name, each.state) for each in q.workers()]


@pytest.mark.parametrize("every", [1.0, 60.0])
def test_a_worker_is_lost_after_three_periods_of_its_own(q: Queue[Any], machine: Any, every: float) -> None:
    say(q, "w-1", every=every)
    machine.advance(LOST_AFTER * every)
    assert states(q) == [("w-1", "running")]
    machine.advance(0.001)
    assert states(q) == [("w-1", "lost")]
    say(q, "w-1", every=every)
    assert states(q) == [("w-1", "running")]


def test_one_that_is_lost_is_told_of_for_an_hour_also_without_a_reaper(q: Queue[Any], machine: Any) -> None:
    say(q, "w-1")
    machine.advance(KEPT_MS / 1000)
    assert states(q) == [("w-1", "lost")]
    machine.advance(0.001)
    assert states(q) == []


def test_those_that_are_lost_come_first_and_then_it_goes_by_name(q: Queue[Any], machine: Any) -> None:
    say(q, "z")
    machine.advance(600)
    for name in ("b", "c"):
        say(q, name)
    q.enqueue(1)
    q.claim(1, worker="a")
    assert states(q) == [("z", "lost"), ("a", "unregistered"), ("b", "running"), ("c", "running")]


def test_leases_of_all_shards_are_counted_by_name_with_the_oldest_start(q: Queue[Any], machine: Any) -> None:
    q.configure(shards=4)
    began = machine.now_ms()
    for _ in range(12):
        q.enqueue(1)
        machine.advance(1)
        q.claim(1, worker="w-1", lease=3600)
    say(q, "w-1")
    (found,) = q.workers()
    assert found.holds == 12
    assert found.oldest_start is not None
    assert began + 1_000 <= found.oldest_start.timestamp() * 1000 < began + 3_000


def test_times_are_the_stores_and_how_long_it_ran_is_the_workers(q: Queue[Any], machine: Any) -> None:
    say(q, "w-1", uptime=90.5)
    machine.advance(30)
    (found,) = q.workers()
    assert found.seen is not None
    assert found.since is not None
    assert found.seen.timestamp() * 1000 == machine.now_ms() - 30_000
    assert (found.seen - found.since).total_seconds() == 90.5


def test_where_nobody_may_ask_for_the_time_the_latest_word_tells_it(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    say(q, "old")
    machine.advance(600)
    gate = Gate(store)
    gate.read_only = True
    reader: Queue[Any] = Queue(gate, "mail", machine=machine)
    assert states(reader) == [("old", "running")]  # nothing tells how much later it is
    say(q, "new")
    assert states(reader) == [("old", "lost"), ("new", "running")]


def test_a_look_costs_a_list_and_a_get_for_each_and_the_time_is_asked_for_every_ten_minutes(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    gate = Gate(store)
    reader: Queue[Any] = Queue(gate, "mail", machine=machine)
    reader.workers()
    assert not any(isinstance(each, Put) for each in gate.asked)  # of no use without an entry
    for name in ("a", "b", "c"):
        say(q, name)
    reader.workers()
    gate.asked.clear()
    assert len(reader.workers()) == 3
    folder = folder_of("mail")
    head = root_of("mail", 0) + "head"
    assert [each.prefix for each in gate.asked if isinstance(each, List)] == [folder]
    keys = sorted(getattr(each, "key", "") for each in gate.asked if not isinstance(each, List))
    assert keys == sorted([head, head, *(folder + name for name in "abc")])  # settings; leases


def test_a_word_is_one_look_at_the_head_and_one_put(q: Queue[Any], store: MemoryStore, machine: Any) -> None:
    gate = Gate(store)
    worker: Queue[Any] = Queue(gate, "mail", machine=machine)
    say(worker, "w-1")
    gate.asked.clear()
    say(worker, "w-1", busy=1)
    assert [type(each).__name__ for each in gate.asked] == ["Get", "Put"]
    assert gate.asked[1].durable is False  # type: ignore[union-attr]


def test_a_store_that_cannot_be_read_is_said(q: Queue[Any], store: MemoryStore, machine: Any) -> None:
    say(q, "w-1")

    class Broken(Gate):
        def perform(self, request: StoreRequest) -> StoreReply:
            if "workers/" in str(getattr(request, "key", "")):
                return Failed(Unavailable("gone"))
            return super().perform(request)

    with pytest.raises(Unavailable, match="a worker's entry"):
        Queue(Broken(store), "mail", machine=machine).workers()
