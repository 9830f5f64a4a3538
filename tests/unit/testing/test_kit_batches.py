"""The test kit: handlers of several jobs at once, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Snooze, WorkerJob
from osqueue.testing import inline, manual


@pytest.fixture
def q() -> Queue[Any]:
    return Queue.connect("memory://", "emails")


def test_a_batch_is_run_as_one_and_told_job_by_job(q: Queue[Any]) -> None:
    sizes: list[int] = []

    @q.handler(kind="row", batch=3)
    def load(jobs: list[WorkerJob[Any]]) -> list[Any]:
        sizes.append(len(jobs))
        for job in jobs:
            job.heartbeat()
        return [Snooze(60) if job.payload == 1 and job.run == 1 else job.payload for job in jobs]

    with manual(q) as test:
        q.enqueue_many({"payload": at, "kind": "row"} for at in range(4))
        ran = test.run_next()
        assert ran is not None
        assert (ran.payload, [each.outcome for each in test.ran]) == (
            0,
            ["completed", "released", "completed"],
        )
        assert [each.result for each in test.drain()] == [3, 1]
    assert sizes == [3, 1, 1]


def test_a_drained_batch_waits_for_jobs_in_virtual_time(q: Queue[Any]) -> None:
    seen: list[list[int]] = []
    q.handler(kind="row", batch=3, within=120)(lambda jobs: seen.append([job.payload for job in jobs]))
    with manual(q) as test:
        for at, delay in enumerate((0, 60, 100, 130, 1000)):
            q.enqueue(at, kind="row", delay=delay)
        began = test.clock.now
        assert [each.outcome for each in test.drain()] == ["completed"] * 5
        assert seen == [[0, 1, 2], [3], [4]]
        assert (test.clock.now - began).total_seconds() == pytest.approx(1120, abs=1)
        q.enqueue(5, kind="row")
        test.drain(advance=False)
        assert seen[-1] == [5]
        assert (test.clock.now - began).total_seconds() == pytest.approx(1120, abs=1)


def test_what_a_batch_raises_is_told_of_each_job(q: Queue[Any]) -> None:
    @q.handler(kind="row", batch=3)
    def load(jobs: list[WorkerJob[Any]]) -> None:
        raise ValueError("no")

    with manual(q) as test:
        q.enqueue_many({"payload": at, "kind": "row", "max_attempts": 1} for at in range(2))
        ran = test.drain()
        assert [(each.outcome, str(each.error)) for each in ran] == [("failed", "no")] * 2
        q.enqueue(3, kind="row", max_attempts=1)
        with pytest.raises(ValueError, match="no"):
            test.drain(raise_errors=True)


def test_an_async_kit_awaits_a_batch() -> None:
    async def main() -> Any:
        queue: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")

        @queue.handler(kind="row", batch=3)
        async def load(jobs: list[Any]) -> int:
            await jobs[0].heartbeat()
            return len(jobs)

        with manual(queue) as test:
            await queue.enqueue_many({"payload": at, "kind": "row"} for at in range(2))
            return [each.result for each in await test.drain()]

    assert asyncio.run(main()) == [2, 2]


def test_inline_a_batch_has_what_was_enqueued_together(q: Queue[Any]) -> None:
    sizes: list[int] = []
    q.handler(kind="row", batch=3, within=60)(lambda jobs: sizes.append(len(jobs)))
    with inline(q):
        q.enqueue_many({"payload": at, "kind": "row"} for at in range(4))
        q.enqueue(4, kind="row")
    assert sizes == [3, 1, 1]
