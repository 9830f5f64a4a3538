"""A purge of dead letters alone: what was redriven meanwhile stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.stores.base import Get, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.staged import Meddled

LARGE = "x" * 5_000


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "emails", machine=machine)


def dead(q: Queue[Any], count: int, payload: Any = LARGE) -> list[str]:
    done = q.enqueue_many([{"payload": payload, "max_attempts": 1}] * count)
    while leases := q.claim(1_000):
        q.fail_many([{"job_id": each.job_id, "token": each.token, "error": "boom"} for each in leases])
    return [str(each.job_id) for each in done]


def test_dead_letters_are_erased_and_whatever_else_stays(q: Queue[Any]) -> None:
    *alive, gone = dead(q, 4)
    q.redrive(limit=3)
    q.claim(2)[0].complete("sent")
    report = q.purge([*alive, gone], dead_only=True)
    assert (report.jobs, report.cancelled) == ((gone,), 0)
    assert q.status(gone) is None
    states = [found.state for each in alive if (found := q.status(each)) is not None]
    assert sorted(states) == ["completed", "processing", "queued"]


def test_a_redriven_job_keeps_its_content(q: Queue[Any]) -> None:
    first, second = dead(q, 2)
    q.redrive(limit=1)
    assert q.purge([first, second], dead_only=True).jobs == (second,)
    (lease,) = q.claim(9)
    assert (lease.job_id, lease.payload) == (first, LARGE)


def test_dead_letters_in_segments_are_found(q: Queue[Any]) -> None:
    jobs = dead(q, 3_000, 1)
    q.redrive(limit=1)
    chosen = [jobs[0], jobs[1], jobs[1_500], jobs[-1]]
    assert set(q.purge(chosen, dead_only=True).jobs) == set(chosen[1:])
    assert q.stats()["failed"] == 2_996
    assert q.stats()["queued"] == 1


def test_nothing_is_looked_for_where_no_job_is_dead(q: Queue[Any]) -> None:
    job_id = str(q.enqueue(1).job_id)
    report = q.purge(job_id, dead_only=True)
    assert (report.jobs, report.state, report.left) == ((), 0, ())
    assert q.purge(job_id).cancelled == 1


def test_a_redrive_before_the_last_look_is_seen(machine: Any) -> None:
    """Somebody redrives when the purge has looked for all jobs, and has erased nothing yet."""
    inner = MemoryStore(machine)
    others = Queue[Any](inner, "emails", machine=machine)
    jobs = dead(others, 3)
    heads = 0

    def meddle(request: StoreRequest, perform: Any) -> StoreReply:
        nonlocal heads
        if isinstance(request, Get) and request.key.endswith("/head"):
            heads += 1
            if heads == len(jobs) + 1:
                others.redrive(limit=1)
        return perform(request)  # type: ignore[no-any-return]

    report = Queue[Any](Meddled(inner, meddle), "emails", machine=machine).purge(jobs, dead_only=True)
    assert report.jobs == tuple(jobs[1:])
    (lease,) = others.claim(9)
    assert (lease.job_id, lease.payload) == (jobs[0], LARGE)


def test_over_an_api_each_is_looked_at_before_it_is_erased(api_server: Any) -> None:
    store = MemoryStore()
    with api_server.api_server(store) as url:
        q = Queue.connect(url, "emails")
        alive, gone = dead(q, 2)
        q.redrive(limit=1)
        assert q.purge([alive, gone], dead_only=True).jobs == (gone,)
        assert q.purge([alive, gone], dead_only=True).jobs == ()
        assert [each.payload for each in q.claim(9)] == [LARGE]
