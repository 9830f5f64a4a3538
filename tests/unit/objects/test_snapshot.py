"""One committed state of a queue's live jobs, in pieces that anybody may read later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from osqueue import NotFound, Queue, Rejected
from osqueue.clock import MACHINE
from osqueue.commit.driver import BlockingDriver
from osqueue.model.keys import job_id
from osqueue.objects.snapshot import LiveJob, Piece, pieces, read
from osqueue.stores.base import Delete, List, Listed
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited


@pytest.fixture
def small() -> Iterator[None]:
    """Budgets so small that a few jobs overflow the head."""
    budgets = {
        "READY_BYTES_MAX": 600,
        "TAIL_BYTES_MAX": 500,
        "DELAYED_BYTES_MAX": 600,
        "DEAD_BYTES_MAX": 800,
        "BLOCK_BYTES_MAX": 200,
        "FANOUT": 4,
    }
    with limited(budgets):
        yield


def taken(store: Any, **options: Any) -> list[Piece]:
    return BlockingDriver(store, MACHINE).run(pieces("q", **options))


def lives(store: Any, found: list[Piece]) -> list[LiveJob]:
    driver = BlockingDriver(store, MACHINE)
    return [live for piece in found for live in driver.run(read("q", piece))]


def listed(q: Queue[Any]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    cursor = None
    while True:
        jobs, cursor = q.jobs(limit=1_000, cursor=cursor)
        found.update((job.job_id, job.state) for job in jobs if job.finished_at is None)
        if cursor is None:
            return found


def told(found: list[LiveJob]) -> list[tuple[str, str]]:
    return [(job_id(live.job.key), live.state) for live in found]


def busy_queue(store: Any, shards: int = 1) -> Queue[Any]:
    """Jobs in every live state, in the head and far outside it, and some that were cancelled there."""
    q = Queue(store, "q")
    q.configure(shards=shards, backoff_base=3_600)
    done = []
    for at in range(300):
        done.append(q.enqueue(at, priority=at % 3, max_attempts=1 + at % 2))
        q.enqueue(at, delay=60 + at)
    for lease in q.claim(40):
        lease.fail("broken")
    q.claim(10)
    for each in done[150:170]:
        q.cancel(each.job_id)
    q.complete_many(q.claim(3))
    return q


@pytest.mark.parametrize("shards", [1, 3])
def test_a_snapshot_has_every_live_job_once_in_the_state_it_is_listed_in(small: None, shards: int) -> None:
    store = MemoryStore()
    q = busy_queue(store, shards)
    found = told(lives(store, taken(store)))
    assert len(found) == len(set(found))
    assert set(found) == listed(q)
    assert {state for _, state in found} == {"queued", "processing", "scheduled", "failing", "failed"}


def test_a_snapshot_shows_its_own_commit_whatever_is_committed_later(small: None) -> None:
    store = MemoryStore()
    q = busy_queue(store)
    before = listed(q)
    found = taken(store)
    assert sum(bool(piece.spans) for piece in found) >= 3
    for at in range(100):
        q.enqueue(at)
    q.complete_many(q.claim(100))
    q.redrive()
    q.reap()
    assert listed(q) != before
    assert set(told(lives(store, found))) == before


def test_jobs_of_some_states_are_read_without_the_others(small: None) -> None:
    store = MemoryStore()
    q = busy_queue(store)
    for state in ("queued", "processing", "scheduled", "failing", "failed"):
        found = told(lives(store, taken(store, wanted=(state,))))
        assert set(found) == {each for each in listed(q) if each[1] == state}
    assert len(taken(store, wanted=("processing",))) == 1
    with pytest.raises(Rejected, match="state: 'completed' is none of queued"):
        taken(store, wanted=("completed",))


def test_neighbouring_small_segments_are_one_piece(small: None) -> None:
    store = MemoryStore()
    q = Queue(store, "q")
    for at in range(300):
        q.enqueue(at)
    found = [piece for piece in taken(store) if piece.spans]
    assert len(found) == 1
    assert len(found[0].spans) > 20


def test_a_queue_that_is_not_there_has_no_pieces() -> None:
    assert taken(MemoryStore()) == []


def test_a_snapshot_whose_segments_are_gone_says_to_take_a_new_one(small: None) -> None:
    store = MemoryStore()
    busy_queue(store)
    found = taken(store)
    keys = store.perform(List(""))
    assert isinstance(keys, Listed)
    store.perform(Delete(tuple(key for key in keys.keys if "/segments/" in key)))
    with pytest.raises(NotFound, match="Take a new one"):
        lives(store, found)
