"""The numbers of a queue: what counts as finished, and how long."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from osqueue.commit.effects import Submit
from osqueue.core.queue_ops import RunTimers
from osqueue.objects import listing
from osqueue.stores.memory import MemoryStore


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue_many([{"payload": at, "max_attempts": 1} for at in range(40)])
    leases = q.claim(limit=30)
    q.complete_many(leases[:20])
    leases[20].cancel()
    leases[21].fail("no")
    return q


def flush(q: Queue[Any]) -> None:
    def flow() -> Any:
        yield Submit(0, (RunTimers(flush=True),))

    q._run(flow())


def finished(q: Queue[Any]) -> tuple[int, int, int]:
    stats = q.stats()
    return stats["finished"], stats["completed"], stats["cancelled"]


def test_jobs_that_are_over_are_counted_wherever_they_lie(q: Queue[Any]) -> None:
    assert finished(q) == (21, 20, 1)
    flush(q)
    assert finished(q)[0] in (21, 22)  # the failed job's row for the archive may be among them
    assert finished(q)[1:] == (0, 0)  # those are of the head alone
    q.reap()
    q.reap()
    assert finished(q)[0] in (21, 22)
    assert (q.stats()["queued"], q.stats()["processing"], q.stats()["failed"]) == (10, 8, 1)


def test_the_counters_count_whatever_was_ever_finished(q: Queue[Any], machine: Any) -> None:
    flush(q)
    machine.advance(3 * 86_400)
    for _ in range(3):
        q.reap()
    counters = q.stats()["counters"]
    assert (counters["completed"], counters["cancelled"]) == (20, 1)
    assert finished(q)[0] < 20  # what the queue has forgotten, only the archive knows


def test_the_number_costs_no_request(q: Queue[Any]) -> None:
    flush(q)
    before = q.requests
    q.stats()
    after = q.requests
    assert after["get"] - before["get"] <= 2


def test_a_listing_shows_finished_jobs_of_the_head_alone(q: Queue[Any]) -> None:
    assert len(q.jobs(state="completed")[0]) == 20
    job_id = q.jobs(state="completed")[0][0].job_id
    flush(q)
    assert q.jobs(state="completed") == ([], None)
    assert q.status(job_id).state == "completed"  # type: ignore[union-attr]


def test_a_page_looks_at_so_many_jobs_and_the_cursor_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    q.enqueue_many([{"payload": n, "kind": "rare" if n % 1_000 == 999 else "usual"} for n in range(3_000)])
    wanted = [each.job_id for each in q.jobs(limit=1_000, kinds=["rare"])[0]]
    monkeypatch.setattr(listing, "PASSED_MAX", 700)
    found: list[str] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        page, cursor = q.jobs(limit=10, cursor=cursor, kinds=["rare"])
        found += [each.job_id for each in page]
        pages += 1
    assert (sorted(found), len(found)) == (sorted(wanted), 3)
    assert pages == 5  # 700 jobs each


def gets(q: Queue[Any], **which: Any) -> int:
    before = q.requests["get"]
    q.jobs(**which)
    return int(q.requests["get"] - before)


def test_a_page_of_a_deep_queue_reads_little_however_few_match() -> None:
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    for _ in range(10):
        q.enqueue_many([{"payload": "x" * 300, "kind": "usual"} for _ in range(10_000)])
    assert gets(q, limit=50) <= 5
    assert gets(q, kinds=["rare"]) <= 10
    assert gets(q, headers={"tenant": "acme"}) <= 10
    assert gets(q, worker="nobody") <= 2  # jobs that run lie in the head
    assert gets(q, id="none") <= 3


def test_a_page_reads_so_many_segments_and_the_cursor_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SEGMENTS_MAX", 3)
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    for _ in range(8):
        q.enqueue_many([{"payload": n, "kind": "rare" if n == 1_000 else "usual"} for n in range(1_001)])
    found: list[str] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        page, cursor = q.jobs(limit=100, cursor=cursor, kinds=["rare"])
        found += [each.job_id for each in page]
        pages += 1
    assert (len(found), len(set(found))) == (8, 8)
    assert pages == 6  # of 16 segments: each call made one for either kind


def test_a_group_is_looked_for_where_it_is_at_home() -> None:
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    q.configure(shards=8)
    q.enqueue_many([{"payload": n, "group": f"order-{n}"} for n in range(40)])
    assert [len(q.jobs(group=f"order-{n}")[0]) for n in range(40)] == [1] * 40
    assert gets(q, group="order-7") <= 3
