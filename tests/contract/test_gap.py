"""A queue on a server that takes few writes a second of one object, as Google does: nothing is lost or in vain."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from osqueue import AsyncQueue, Queue
from osqueue.stores.base import Failed, Put, PutIfAbsent, PutIfMatch, Written
from osqueue.stores.gcs import SWAP_GAP_S, GcsStore
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
