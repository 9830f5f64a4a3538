"""A worker of a queue with a window: its turns gather what comes while jobs run, and never hold up its end."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, WorkerJob
from osqueue.stores.memory import MemoryStore
from osqueue.worker.loop import Worker
from tests.support.at_work import until

LONG = 10.0  # seconds; no test waits for so long


@pytest.mark.parametrize("stops", [False, True], ids=["last ending", "stop"])
@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_worker_gathers_endings_until_a_job_or_the_worker_ends(kind: type[Any], stops: bool) -> None:
    store = MemoryStore()
    producer: Queue[Any] = Queue(store, "mail")
    producer.enqueue_many([{"payload": text} for text in ("quick", "quick", "slow")])
    q = kind(store, "mail", window=LONG)
    gathered: list[int] = []
    reported = threading.Event()

    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        if job.payload == "quick":
            return
        until(lambda: len(worker._hand.ended) == 2)
        gathered.append(producer.stats()["processing"])
        if stops:
            worker.stop()
            until(lambda: producer.stats()["processing"] == 1)
        reported.set()

    worker = Worker(q, concurrency=3, until_empty=not stops, signals=False)
    tally = worker.run()
    assert reported.is_set()
    assert (tally.completed, gathered) == (3, [3])
    assert q._window_s == LONG


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_an_ending_is_reported_before_its_time_limit_ends_although_jobs_run(kind: type[Any]) -> None:
    store = MemoryStore()
    producer: Queue[Any] = Queue(store, "mail")
    producer.enqueue("limited", run_within=2.0)  # seconds; less than the worker gathers
    producer.enqueue("slow")
    q = kind(store, "mail", window=LONG)

    @q.handler
    def work(job: WorkerJob[Any]) -> None:
        if job.payload == "slow":
            until(lambda: producer.stats()["processing"] == 1)

    tally = Worker(q, concurrency=2, until_empty=True, signals=False).run()
    assert (tally.completed, tally.lost) == (2, 0)
