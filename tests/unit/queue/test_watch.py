"""How far a job is: said on heartbeats, seen by whoever looks at it or watches it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from osqueue import AsyncQueue, Job, NotFound, Queue, Rejected, WorkerJob
from osqueue.stores.memory import MemoryStore
from tests.support.patience import PATIENCE


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "mail", machine=machine)


def only(q: Queue[Any]) -> Job:
    (job,), _ = q.jobs()
    return job


def test_a_heartbeat_tells_how_far_the_job_is(q: Queue[Any], machine: Any) -> None:
    q.enqueue(1)
    (lease,) = q.claim()
    assert (only(q).progress, only(q).note, only(q).told_at) == (None, None, None)
    lease.heartbeat(progress=0.4, note="page 40 of 100")
    machine.advance(8)
    lease.heartbeat()
    seen = only(q)
    assert (seen.progress, seen.note) == (0.4, "page 40 of 100")
    assert "at 40%: page 40 of 100 (8 s ago)" in q.why(seen.job_id)
    lease.heartbeat(progress=1)
    assert (only(q).progress, only(q).note) == (1.0, "page 40 of 100")
    lease.heartbeat(note="")
    assert only(q).note is None


def test_many_at_once(q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": at} for at in range(2)])
    one, other = q.claim(2)
    done = q.heartbeat_many(
        [one, {"job_id": other.job_id, "token": other.token, "progress": 0.5}, {"job_id": "x", "token": "y"}]
    )
    assert [each.ok for each in done] == [True, True, False]
    told = {job.job_id: job.progress for job in q.jobs()[0]}
    assert told == {one.job_id: None, other.job_id: 0.5}


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.4", True, float("nan")])
def test_what_is_no_share_is_refused(q: Queue[Any], value: Any) -> None:
    q.enqueue(1)
    (lease,) = q.claim()
    with pytest.raises(Rejected, match=r"^progress: ") as caught:
        lease.heartbeat(progress=value)
    assert caught.value.field == "progress"
    with pytest.raises(Rejected, match=r"^note: "):
        lease.heartbeat(note="n" * 81)


def test_the_next_attempt_begins_at_nothing(q: Queue[Any]) -> None:
    q.enqueue(1)
    (lease,) = q.claim()
    lease.heartbeat(progress=0.4, note="first")
    lease.release()
    q.claim()
    assert (only(q).progress, only(q).note) == (None, None)


def test_a_handler_says_it_and_a_watcher_sees_it() -> None:
    seen: list[float | None] = []
    told = threading.Event()
    with Queue.connect("memory://", "emails") as queue:
        job_id = queue.enqueue(1).job_id or ""

        @queue.handler
        def work(job: WorkerJob[Any]) -> None:
            job.progress(0.25, "half of the half")
            job.heartbeat()
            assert told.wait(PATIENCE)

        def look() -> None:
            for job in queue.watch(job_id, poll=0.01):
                seen.append(job.progress)
                if job.progress is not None:
                    told.set()

        watcher = threading.Thread(target=look)
        watcher.start()
        assert queue.run(until_empty=True).completed == 1
        watcher.join(PATIENCE)
        assert not watcher.is_alive()
    assert 0.25 in seen
    assert seen[-1] is None  # it is over


def test_a_job_that_is_over_is_told_once() -> None:
    async def main() -> list[str]:
        async with AsyncQueue.connect("memory://", "emails") as queue:
            job_id = (await queue.enqueue(1)).job_id or ""
            (lease,) = await queue.claim()
            await lease.complete("done")
            return [job.state async for job in queue.watch(job_id)]

    assert asyncio.run(main()) == ["completed"]


def test_nobody_watches_what_is_not_there(q: Queue[Any]) -> None:
    with pytest.raises(NotFound):
        next(q.watch("order-7"))
    with pytest.raises(Rejected, match=r"^poll: "):
        next(q.watch("order-7", poll=0))
