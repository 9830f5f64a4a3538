"""A worker that ends when nothing is left: what it waits for where groups are closed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from osqueue import Queue, WorkerJob
from osqueue.worker.loop import Worker
from tests.support.patience import PATIENCE


@pytest.fixture
def q() -> Queue[Any]:
    queue: Queue[Any] = Queue.connect("memory://", "orders")
    queue.configure(backoff_base=0.001)
    return queue


def test_it_waits_for_the_jobs_behind_one_that_another_worker_runs(q: Queue[Any]) -> None:
    done: list[int] = []
    rests = threading.Event()
    q.handler(lambda job: done.append(job.payload))
    for at in range(3):
        q.enqueue(at, group="order-42")
    (lease,) = q.claim()
    worker = Worker(q, until_empty=True, poll=0.05, signals=False)
    rest = q._flows.rest

    def seen(*args: Any) -> Any:
        rests.set()
        return rest(*args)

    q._flows.rest = seen  # type: ignore[method-assign]
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert rests.wait(PATIENCE)
    assert done == []
    lease.complete()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert done == [1, 2]


def test_it_waits_for_the_jobs_behind_one_that_is_tried_again(q: Queue[Any]) -> None:
    done: list[int] = []

    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        if job.payload == 0 and job.attempt == 1:
            raise ValueError("not yet")
        done.append(job.payload)

    for at in range(3):
        q.enqueue(at, group="order-42")
    assert q.run(until_empty=True).completed == 3
    assert done == [0, 1, 2]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("by", ["pause", "dead letter"])
def test_it_does_not_wait_for_a_group_that_somebody_has_to_resume(
    q: Queue[Any], by: str, shards: int
) -> None:
    q.configure(group_on_dead="stop", shards=shards)

    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        if by != "pause" and job.payload == 0:
            raise ValueError("never")

    for at in range(3):
        q.enqueue(at, group="order-42", max_attempts=1)
    if by == "pause":
        q.pause(group="order-42")
    tally = q.run(until_empty=True)
    assert tally.completed == 0
    none = q.claim()
    assert (none.reason, none.scope, none.retry_after) == ("groups_closed", "group", None)
    q.resume(group="order-42") if by == "pause" else q.redrive()
    q.enqueue(3, group="order-42")
    assert q.claim()
