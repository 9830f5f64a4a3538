"""A queue on a server that takes few writes a second of one object, as Google does: nothing is lost or in vain."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from osqueue import AsyncQueue, OsqueueError, Queue, Unavailable
from osqueue.bulk.writer import BulkWriter
from osqueue.commit.writer import ShardWriter
from osqueue.stores.base import Failed, Put, PutIfAbsent, PutIfMatch, StoreReply, StoreRequest, Written
from osqueue.stores.gcs import SWAP_GAP_S, GcsStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support import gcs_server

WRITES_A_SECOND = 2.0
REQUESTS_MAX = 5  # of an operation
CALLERS, CALLS = 8, 4


@pytest.fixture
def place(gcs: gcs_server.GcsServer, gcs_bucket: str, monkeypatch: pytest.MonkeyPatch) -> GcsStore:
    monkeypatch.setattr(gcs, "writes_a_second", WRITES_A_SECOND)
    return opened(gcs, gcs_bucket)


def opened(gcs: gcs_server.GcsServer, bucket: str) -> GcsStore:
    store = GcsStore(bucket, "jobs", gcs.endpoint)
    store.swap_gap_s = 1 / WRITES_A_SECOND
    return store


class Busy(WrappedStore):
    """It takes no head any more. Each request takes 30 ms."""

    def __init__(self, inner: Any, machine: Any) -> None:
        super().__init__(inner)
        self.machine = machine
        self.asked = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        self.asked += 1
        self.machine.sleep(0.03)
        if isinstance(request, PutIfMatch):
            return Failed(Unavailable("429"), too_soon=True)
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def heads_written(asked: list[str]) -> int:
    return sum(line.startswith("PUT") and line.endswith("%2Fhead") for line in asked)


def test_only_servers_of_google_want_a_gap() -> None:
    assert GcsStore("b").swap_gap_s == SWAP_GAP_S
    assert GcsStore("b", endpoint="https://storage-mine.p.googleapis.com").swap_gap_s == SWAP_GAP_S
    assert GcsStore("b", endpoint="http://127.0.0.1:1").swap_gap_s == 0


def test_a_write_too_soon_is_told_from_one_without_an_answer(place: GcsStore) -> None:
    first = place.perform(PutIfAbsent("a", b"1"))
    assert isinstance(first, Written)
    for request in (PutIfMatch("a", b"2", first.version), Put("a", b"2")):
        reply = place.perform(request)
        assert isinstance(reply, Failed)
        assert reply.too_soon


def test_writers_of_their_own_wait_together(
    gcs: gcs_server.GcsServer, gcs_bucket: str, place: GcsStore
) -> None:
    queues = [Queue[int](opened(gcs, gcs_bucket), "mail") for _ in range(CALLERS)]

    def call(at: int) -> None:
        for number in range(CALLS):
            queues[at].enqueue(at * CALLS + number)

    queues[0].enqueue(-1)
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(lambda q: q.enqueue(-1), queues))  # they get to know the queue, and the store's clock
        before = len(gcs.asked)
        list(pool.map(call, range(CALLERS)))
    asked = gcs.asked[before:]
    done = [lease.payload for lease in Queue[int](place, "mail").claim(99)]
    assert sorted(done) == [-1] * (1 + CALLERS) + list(range(CALLERS * CALLS))
    assert len(asked) <= REQUESTS_MAX * CALLERS * CALLS, asked


def test_callers_of_one_queue_object_share_what_the_store_takes(
    gcs: gcs_server.GcsServer, place: GcsStore
) -> None:
    q = Queue[int](place, "mail")
    q.enqueue(-1)
    before = len(gcs.asked)
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(q.enqueue, range(CALLERS)))
    assert heads_written(gcs.asked[before:]) == 1
    assert len(q.claim(99)) == 1 + CALLERS


def test_a_bulk_knows_of_the_gap(place: GcsStore) -> None:
    flows = BulkWriter(place, "mail")._flows
    assert flows._writer(ShardWriter, 0).swap_gap_s == place.swap_gap_s


def test_where_no_gap_is_known_writes_that_are_too_soon_are_tried_less_and_less_often(machine: Any) -> None:
    """A server that is busy says the same as one that wants a gap."""
    store = MemoryStore(machine)
    Queue(store, "mail", machine=machine).enqueue(1)
    busy = Busy(store, machine)
    with pytest.raises(Unavailable):
        Queue(busy, "mail", machine=machine, timeout=20).enqueue(2)
    assert 10 < busy.asked < 150


def test_a_call_with_less_time_than_the_gap_sends_nothing(machine: Any) -> None:
    """Else whoever commits next applies it: a claim would lease a job to a caller who has given up."""
    store = MemoryStore(machine)
    store.swap_gap_s = 1.0
    others, mine = Queue(store, "mail", machine=machine), Queue(store, "mail", machine=machine, timeout=0.5)
    others.enqueue(1)
    machine.sleep(2)
    assert len(mine.claim(1)) == 1
    machine.sleep(2)
    others.enqueue(2)
    with pytest.raises(OsqueueError, match="not sent"):
        mine.claim(1)
    machine.sleep(2)
    assert [lease.payload for lease in others.claim(1)] == [2]


def test_tasks_share_it_as_well(gcs: gcs_server.GcsServer, place: GcsStore) -> None:
    async def run() -> list[str]:
        async with AsyncQueue[int](place, "mail") as q:
            await q.enqueue(-1)
            before = len(gcs.asked)

            async def late(number: int) -> None:
                for _ in range(number):
                    await asyncio.sleep(0)
                await q.enqueue(number)

            await asyncio.gather(*map(late, range(CALLERS)))
            return gcs.asked[before:]

    assert heads_written(asyncio.run(run())) == 1
