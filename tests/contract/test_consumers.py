"""Consumers over every store and API: attached, told of, woken and worked off, detached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Queue, Rejected
from osqueue.aws import consumer
from osqueue.testing.consumers import InvocationContext, LocalWaker

TARGET = "arn:aws:lambda:eu-west-1:123456789012:function:mailer:live"


def test_a_consumer_is_attached_told_of_and_detached(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(consumers={"mailer": {"target": TARGET, "batch": 5, "max_concurrency": 3, "kinds": ["a"]}})
    told = q.stats()["settings"]["consumers"]["mailer"]
    assert (told["target"], told["batch"], told["max_concurrency"], list(told["kinds"])) == (
        TARGET,
        5,
        3,
        ["a"],
    )
    use = q.flow().consumers["mailer"]
    assert (use.target, use.held, use.fired, use.most, use.since, use.tries) == (TARGET, 0, 0, 3, None, 0)
    job_id = q.enqueue(1, kind="a").job_id
    assert "consumer mailer (not invoked yet)" in q.story(job_id).next
    q.configure(consumers={"mailer": None})
    assert q.flow().consumers == {}
    with pytest.raises(Rejected, match="target"):
        q.configure(consumers={"mailer": {"batch": 5}})


def test_jobs_run_by_wakes_alone(opened: Callable[..., Any]) -> None:
    q = opened()
    if q.transport is not None:
        pytest.skip("over an API its functions wake")
    place, waker = q.store, LocalWaker()
    mine: Queue[Any] = Queue(place, q.name, waker=waker, machine=q.machine)
    mine.configure(consumers={"mailer": {"target": TARGET, "batch": 2, "max_concurrency": 2}})
    ids = [each.job_id or "" for each in mine.enqueue_many([{"payload": n} for n in range(7)])]
    handler = consumer(threads=2)(lambda job: job.payload * 2)
    while waker.wakes:
        other: Queue[Any] = Queue(place, q.name, waker=waker, machine=q.machine)
        handler.work(other, waker.wakes.popleft(), InvocationContext(q.machine))
    assert [mine.result(each) for each in ids] == [n * 2 for n in range(7)]
    assert mine.flow().consumers["mailer"].held == 0
