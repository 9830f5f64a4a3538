"""A job that takes the turn of one that runs under its id: whoever dies in the middle leaves one of them, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Queue, Rejected, Unique
from osqueue.model.keys import key_of
from osqueue.stores.memory import MemoryStore
from tests.support.stepping import Call, reads, writes

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


def spilled(q: Queue[Any], job_id: str) -> None:
    """Jobs that are due sooner than it, until it has left the head for a segment."""
    q.enqueue_many([{"payload": "x" * 900, "delay": 10} for _ in range(12)])
    head = q._flows.writers[0].head
    assert head is not None
    assert head.state.delayed.spans
    assert key_of(job_id) not in {job.key for job in head.state.delayed.jobs}


def test_one_that_failed_and_left_the_head_meanwhile_makes_room(opened: Any) -> None:
    q = opened()
    old = running(q)
    slow = call(opened(), "slow").until(writes("/head"))
    old.fail("not now", retry_in=600)
    spilled(q, old.job_id)
    told = slow.finish()
    assert told.status == "queued"
    assert waiting(q) == [told.job_id]
    assert q.status(old.job_id).state == "cancelled"


def test_one_whose_place_another_took_meanwhile_makes_room_with_that(opened: Any) -> None:
    q = opened()
    old = running(q)
    other = call(opened(), "other").until(reads("ids/"))
    other.step()  # it has read what the id stands for
    slow = call(opened(), "slow").until(writes("/head"))
    old.release()
    replaced = other.finish()
    assert replaced.status == "replaced"
    told = slow.finish()
    assert told.status == "queued"
    assert waiting(q) == [told.job_id]
    assert q.status(replaced.job_id).state == "cancelled"


def test_who_comes_after_one_that_died_asks_for_it(opened: Any) -> None:
    q = opened()
    old = running(q)
    call(opened(), "lost").until(writes("/head"))
    later = q.enqueue("new", id="a", group="g", unique=RESTART)
    old.heartbeat()
    assert old.cancel_requested
    old.fail("not now")
    assert waiting(q) == [later.job_id]
    assert q.status(old.job_id).state == "cancelled"


def test_until_then_the_id_stands_for_the_one_that_runs(opened: Any) -> None:
    q = opened()
    old = running(q)
    call(opened(), "lost").until(writes("/head"))
    assert q.status("a").job_id == old.job_id
    (told,) = q.status_many(["a"])
    assert told.job_id == old.job_id
    assert q.enqueue("new", id="a", group="g").job_id == old.job_id
    assert q.enqueue("new", id="a").job_id == old.job_id
    assert q.cancel("a") == "processing"


def test_who_is_of_another_group_does_not_ask_for_it(opened: Any) -> None:
    q = opened()
    old = running(q)
    call(opened(), "lost").until(writes("/head"))
    with pytest.raises(Rejected, match=r"the job of this id that runs is of group 'g'"):
        q.enqueue("new", id="a", group="h", unique=RESTART)
    old.heartbeat()
    assert not old.cancel_requested
