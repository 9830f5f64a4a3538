"""Handlers that run longer than they may: coroutines are cancelled, threads keep their slot until they return."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Timeout, WorkerJob
from osqueue.worker import in_hand
from tests.support.patience import PATIENCE


@pytest.fixture
def q() -> Queue[Any]:
    queue: Queue[Any] = Queue.connect("memory://", "emails")
    queue.configure(backoff_base=0.001)
    return queue


def test_a_coroutine_that_runs_for_too_long_is_cancelled_and_has_failed() -> None:
    stopped: list[str] = []

    async def main() -> Any:
        async with AsyncQueue.connect("memory://", "emails") as queue:
            await queue.enqueue(1, max_attempts=1)

            @queue.handler(run_within=0.05)
            async def hang(job: WorkerJob[Any]) -> None:
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    stopped.append("timed out" if job.timed_out else "otherwise")

            tally = await queue.run(until_empty=True)
            letters, _ = await queue.dead_letters()
            return tally, letters

    tally, letters = asyncio.run(main())
    assert stopped == ["timed out"]
    assert (tally.failed, tally.stuck) == (1, 0)
    assert [letter.error_type for letter in letters] == ["TimedOut"]
    assert "limit of 0.05 s" in letters[0].error


def test_a_thread_that_runs_for_too_long_keeps_its_slot_and_the_others_go_on(q: Queue[Any]) -> None:
    over = threading.Event()
    done: list[int] = []

    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        if job.payload == 0:
            assert job.timed_out.wait(PATIENCE)
            over.wait(PATIENCE)
        done.append(job.payload)
        if len(done) == 5:
            over.set()

    q.enqueue(0, max_attempts=1, run_within=0.05)
    q.enqueue_many({"payload": at} for at in range(1, 6))
    tally = q.run(concurrency=2, until_empty=True)
    over.set()
    assert sorted(done[:5]) == [1, 2, 3, 4, 5]
    assert (tally.completed, tally.failed, tally.stuck) == (5, 1, 1)


def test_a_worker_whose_handlers_all_hang_ends_with_an_error(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_hand, "HANG_SECONDS", 0.05)
    over = threading.Event()
    q.handler(lambda job: over.wait(PATIENCE), run_within=0.05)
    q.enqueue_many({"payload": at, "max_attempts": 1} for at in range(3))
    with pytest.raises(Timeout, match="all 2 handlers hang"):
        q.run(concurrency=2)
    over.set()


def test_handlers_that_stop_when_they_are_told_end_nothing(q: Queue[Any]) -> None:
    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        if job.payload:
            assert job.timed_out.wait(PATIENCE)

    limit = {"max_attempts": 1, "run_within": 0.05}
    q.enqueue_many({"payload": at, **(limit if at else {})} for at in (1, 2, 0, 0))
    tally = q.run(concurrency=1, until_empty=True)
    assert (tally.failed, tally.completed) == (2, 2)


def test_a_coroutine_keeps_its_slot_until_it_has_ended() -> None:
    running, most = [0], [0]

    async def main() -> Any:
        async with AsyncQueue.connect("memory://", "emails") as queue:
            await queue.enqueue_many({"payload": at, "max_attempts": 1} for at in range(3))

            @queue.handler(run_within=0.02)
            async def work(job: WorkerJob[Any]) -> None:
                running[0] += 1
                most[0] = max(most[0], running[0])
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    await asyncio.sleep(0.05)  # tidies up
                    running[0] -= 1

            return await queue.run(concurrency=1, until_empty=True)

    assert asyncio.run(main()).failed == 3
    assert (most[0], running[0]) == (1, 0)


def test_the_limit_of_the_job_holds_where_it_is_shorter(q: Queue[Any]) -> None:
    seconds: list[float | None] = []
    q.handler(lambda job: seconds.append(q.handlers.run_within(job)), run_within=30)
    q.handler(lambda job: seconds.append(q.handlers.run_within(job)), kind="free")
    q.enqueue(1, run_within=10)
    q.enqueue(1, run_within=60)
    q.enqueue(1)
    q.enqueue(1, kind="free")
    q.run(concurrency=1, until_empty=True)
    assert seconds == [10.0, 30.0, 30.0, None]
