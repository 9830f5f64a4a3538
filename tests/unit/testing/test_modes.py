"""Several queue objects in one test: an application's and its worker's, of one kind or two, on one queue or more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Rejected
from osqueue.testing import assert_enqueued, inline, manual


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/jobs?fsync=off"


@pytest.fixture
def app(address: str) -> AsyncQueue[Any]:
    """Of an application whose routes are coroutines."""
    return AsyncQueue.connect(address, "emails")


@pytest.fixture
def worker(address: str) -> Queue[Any]:
    """Of the worker beside it."""
    q = Queue.connect(address, "emails")
    q.handler(lambda job: f"to {job.payload}")
    return q


def test_what_the_application_enqueues_the_worker_s_handlers_run(
    app: AsyncQueue[Any], worker: Queue[Any], tmp_path: Path
) -> None:
    with manual(worker, app) as test:
        job = asyncio.run(app.enqueue("ada"))
        assert_enqueued(worker, payload="ada", count=1)
        (ran,) = test.drain()
        assert (ran.job_id, ran.result) == (job.job_id, "to ada")
        assert worker.result(job.job_id) == "to ada"
    assert list(tmp_path.iterdir()) == []  # nothing went into the folder


def test_the_other_way_round_the_kit_is_awaited(
    app: AsyncQueue[Any], worker: Queue[Any], tmp_path: Path
) -> None:
    async def main() -> None:
        with manual(app, worker) as test:
            worker.enqueue("ada", delay=60)
            await app.enqueue("bob")
            assert [(ran.payload, ran.result) for ran in await test.drain()] == [
                ("bob", "to bob"),
                ("ada", "to ada"),
            ]

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("first", ["app", "worker"])
def test_afterwards_each_object_is_what_it_was(first: str, app: AsyncQueue[Any], worker: Queue[Any]) -> None:
    before = [dict(each.__dict__) for each in (app, worker)]
    with manual(app, worker) if first == "app" else manual(worker, app):
        worker.handler(kind="more")(lambda job: None)
    assert [dict(each.__dict__) for each in (app, worker)] == before


def test_queues_of_two_names_are_drained_together(address: str) -> None:
    mails, images = (Queue.connect(address, name) for name in ("mails", "images"))
    images.handler(lambda job: mails.enqueue(f"{job.payload} is ready"))
    mails.handler(lambda job: job.payload)
    with manual(mails, images) as test:
        images.enqueue("cat.png")
        assert [ran.result for ran in test.drain()][1:] == ["cat.png is ready"]
        assert (images.stats()["completed"], mails.stats()["completed"]) == (1, 1)


def test_the_clock_moves_on_to_what_is_due_in_any_of_them(address: str) -> None:
    mails, images = (Queue.connect(address, name) for name in ("mails", "images"))
    for each in (mails, images):
        each.handler(lambda job: job.payload)
    with manual(mails, images) as test:
        mails.enqueue("late", delay=3600)
        images.enqueue("soon", delay=60)
        assert [ran.result for ran in test.drain()] == ["soon", "late"]
        assert test.clock.monotonic() >= 3600


def test_a_queue_without_handlers_may_be_among_them(address: str) -> None:
    q, other = Queue.connect(address, "mails"), Queue.connect(address, "of-somebody-else")
    q.handler(lambda job: other.enqueue("told"))
    with manual(q, other) as test:
        q.enqueue(1)
        assert len(test.drain()) == 1
        assert_enqueued(other, payload="told", count=1)


def test_without_any_handler_the_remedy_is_told(app: AsyncQueue[Any], address: str) -> None:
    with manual(Queue.connect(address, "emails"), app) as test, pytest.raises(Rejected, match="Decorate"):
        test.drain()


def test_a_handler_that_a_test_adds_is_run_too(app: AsyncQueue[Any], address: str) -> None:
    with manual(Queue.connect(address, "emails"), app) as test:
        app.handler(kind="added")(lambda job: "ran")
        asyncio.run(app.enqueue(1, kind="added"))
        assert [ran.result for ran in test.drain()] == ["ran"]


def test_inline_whoever_enqueues_the_handler_runs_at_once(app: AsyncQueue[Any], worker: Queue[Any]) -> None:
    with inline(worker, app) as test:
        asyncio.run(app.enqueue("ada"))
        worker.enqueue("bob")
        assert [ran.result for ran in test.ran] == ["to ada", "to bob"]


def test_inline_a_request_is_answered_over_either_object(app: AsyncQueue[Any], worker: Queue[Any]) -> None:
    with inline(worker, app):
        assert asyncio.run(app.enqueue_and_wait("ada", timeout=5)) == "to ada"
        assert worker.enqueue_and_wait("bob", timeout=5) == "to bob"


def test_inline_two_async_objects_share_their_jobs(address: str) -> None:
    app, other = (AsyncQueue.connect(address, "emails") for _ in range(2))

    @other.handler
    async def send(job: Any) -> str:
        return f"to {job.payload}"

    async def main() -> Any:
        with inline(app, other):
            return await app.enqueue_and_wait("ada", timeout=5)

    assert asyncio.run(main()) == "to ada"


def test_inline_a_blocking_object_cannot_come_second(app: AsyncQueue[Any], worker: Queue[Any]) -> None:
    with pytest.raises(Rejected, match="pass the blocking Queue first"):
        inline(app, worker)


def test_an_address_is_no_queue_object(worker: Queue[Any]) -> None:
    with pytest.raises(Rejected, match="pass a Queue or an AsyncQueue"), manual(worker, "file://jobs"):  # type: ignore[arg-type]
        pass


def test_an_object_that_is_named_twice_is_one(worker: Queue[Any]) -> None:
    with manual(worker, worker) as test:
        worker.enqueue("ada")
        assert len(test.drain()) == 1


def test_in_a_block_the_kit_is_no_worker_and_who_claims_by_hand_is_told_of(worker: Queue[Any]) -> None:
    with manual(worker) as test:
        worker.enqueue("ada")
        test.drain()
        assert worker.workers() == []
        worker.enqueue("bob")
        worker.claim(1, worker="by hand")
        assert [(each.name, each.state, each.holds) for each in worker.workers()] == [
            ("by hand", "unregistered", 1)
        ]
