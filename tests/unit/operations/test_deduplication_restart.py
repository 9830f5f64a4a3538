"""A job that takes the turn of one that runs under its id: whoever dies in the middle leaves one of them, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Queue, Unique
from osqueue.stores.memory import MemoryStore
from tests.support.stepping import Call, writes

RESTART = Unique(on_duplicate="restart")


@pytest.fixture
def opened(machine: Any) -> Callable[..., Queue[Any]]:
    store = MemoryStore(machine)
    return lambda **more: Queue(store, "mail", machine=machine, **more)


def call(q: Queue[Any], payload: str) -> Call:
    q.claim(kinds=["none"])  # it has seen the head
    return Call(q, q._enqueue(payload, id="a", group="g", unique=RESTART))


def waiting(q: Queue[Any]) -> list[Any]:
    return [job.job_id for job in q.jobs(state="queued")[0]]


def running(q: Queue[Any]) -> Any:
    q.enqueue("old", id="a", group="g", unique=RESTART)
    return q.claim()[0]


def test_a_caller_that_dies_before_its_commit_leaves_the_one_that_runs(opened: Any) -> None:
    q = opened()
    old = running(q)
    call(opened(), "lost").until(writes("/head"))  # and is never heard of again
    old.heartbeat()
    assert not old.cancel_requested
    assert waiting(q) == []
    later = q.enqueue("new", id="a", group="g", unique=RESTART)
    assert waiting(q) == [later.job_id]
    assert q.status("a").job_id == later.job_id


def test_of_two_at_the_same_moment_one_waits(opened: Any) -> None:
    q = opened()
    old = running(q)
    slow = call(opened(), "slow").until(writes("/head"))
    fast = q.enqueue("fast", id="a", group="g", unique=RESTART)
    told = slow.finish()
    (left,) = waiting(q)
    assert q.status("a").job_id == left
    assert left in (fast.job_id, told.job_id)
    old.heartbeat()
    assert old.cancel_requested
    old.cancel()
    assert [lease.job_id for lease in q.claim(5)] == [left]


def test_one_that_has_ended_meanwhile_is_left_alone(opened: Any) -> None:
    q = opened()
    old = running(q)
    slow = call(opened(), "slow").until(writes("/head"))
    old.complete("done")
    told = slow.finish()
    assert told.status == "queued"
    assert q.result(old.job_id) == "done"
    assert waiting(q) == [told.job_id]


def test_one_that_went_back_to_wait_meanwhile_makes_room(opened: Any) -> None:
    q = opened()
    old = running(q)
    slow = call(opened(), "slow").until(writes("/head"))
    old.release()
    told = slow.finish()
    assert waiting(q) == [told.job_id]
    assert q.status(old.job_id).state == "cancelled"
