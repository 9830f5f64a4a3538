"""Looking for a job in the archive: how far, and what is said when that was not far enough."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import NotFound, Queue
from osqueue.limits import DAY_MS, HOUR_MS
from osqueue.operations import explain
from osqueue.stores.memory import MemoryStore


@pytest.fixture
def q(machine: Any) -> Queue[Any]:
    return Queue(MemoryStore(machine), "mail", machine=machine)


def done(q: Queue[Any], **options: Any) -> str:
    """A job that was completed and archived; its id."""
    job_id = str(q.enqueue(1, **options).job_id)
    for lease in q.claim():
        lease.complete()
    q.reap()
    return job_id


def forgotten(q: Queue[Any], machine: Any) -> None:
    machine.advance(2 * DAY_MS / 1000)
    q.reap()


def test_a_search_has_an_end_and_says_how_to_go_on(
    q: Queue[Any], machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = str(q.enqueue(1, delay=5 * HOUR_MS / 1000).job_id)
    for _ in range(4):
        done(q)
        machine.advance(HOUR_MS / 1000)
    machine.advance(2 * HOUR_MS / 1000)
    q.claim()[0].complete()
    forgotten(q, machine)
    assert q.story(late).source == "archive"
    monkeypatch.setattr(explain, "PARTS_MAX", 3)
    with pytest.raises(NotFound, match=r"not in the first 3 archive parts .* --job"):
        q.story(late)


@pytest.mark.parametrize("hours", [2, 23], ids=lambda hours: f"{hours} h ahead")
def test_a_job_is_found_although_the_clock_of_its_client_was_ahead(machine: Any, hours: int) -> None:
    class Ahead(type(machine)):  # type: ignore[misc]
        def now_ms(self) -> int:
            return int(machine.now_ms()) + hours * HOUR_MS

    class Right(MemoryStore):
        """A store with a clock of its own, which is right."""

        def clock_ms(self) -> None:
            return None

    store = Right(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    client: Queue[Any] = Queue(store, "mail", machine=Ahead(seed=5))
    job_id = str(client.enqueue("x").job_id)
    q.claim()[0].complete()
    q.reap()
    for _ in range(30):
        machine.advance(HOUR_MS / 1000)
        done(q)
    forgotten(q, machine)
    assert q.status(job_id) is None
    assert q.story(job_id).source == "archive"


def test_whatever_lies_before_a_job_was_drawn_is_looked_at_last(
    q: Queue[Any], machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        done(q)
        machine.advance(HOUR_MS / 2 / 1000)
    machine.advance(2 * HOUR_MS / 1000)
    job_id = done(q)
    forgotten(q, machine)
    monkeypatch.setattr(explain, "PARTS_MAX", 2)
    assert q.story(job_id).source == "archive"


def test_parts_of_other_shards_are_not_read(q: Queue[Any], machine: Any) -> None:
    q.configure(shards=3)
    ids = [done(q) for _ in range(6)]
    forgotten(q, machine)
    before = q.requests["get"]
    assert q.story(ids[0]).state == "completed"
    assert q.requests["get"] - before < 8


def test_the_attempts_of_all_records_are_told_once_and_in_order(q: Queue[Any], machine: Any) -> None:
    job_id = str(q.enqueue(1, max_attempts=2).job_id)
    for _ in range(2):
        q.claim()[0].fail("no", retry_in=0)
    q.reap()
    q.redrive()
    q.claim()[0].complete()
    q.reap()
    forgotten(q, machine)
    story = q.story(job_id)
    assert [(each.run, each.outcome) for each in story.job.attempts] == [
        (1, "failed"),
        (2, "failed"),
        (4, "completed"),  # the redrive was the third run
    ]


def test_a_dead_letter_that_was_let_go_is_told_as_failed(q: Queue[Any], machine: Any) -> None:
    job_id = str(q.enqueue(1, id="order-7").job_id)
    q.claim()[0].fail("no", retry=False)
    q.reap()
    machine.advance(15 * DAY_MS / 1000)
    q.reap()
    assert "let go of as a dead letter" in q.story(job_id).now
    forgotten(q, machine)
    story = q.story(job_id)
    assert (story.source, story.state, story.id) == ("archive", "failed", "order-7")
    assert "it is no dead letter any more" in story.now


def test_who_cancelled_it_is_told(q: Queue[Any], machine: Any) -> None:
    asked = str(q.enqueue(1, delay=60).job_id)
    q.cancel(asked)
    assert "on request, while no worker held it" in q.why(asked)
    q.enqueue(2)
    (lease,) = q.claim(worker="w1")
    lease.cancel("it makes no sense")
    assert "by its worker w1: it makes no sense" in q.why(lease.job_id)


def test_priorities_and_kinds_count_for_how_long_the_queue_is(q: Queue[Any]) -> None:
    q.enqueue_many([{"payload": 1, "priority": 1} for _ in range(3)])
    q.enqueue_many([{"payload": 1, "kind": "other"} for _ in range(2)])
    mine = q.enqueue_many([{"payload": 1, "kind": "mine"} for _ in range(2)])[1]
    q.enqueue_many([{"payload": 1, "kind": "other"} for _ in range(5)])
    assert "behind about 6 jobs" in q.why(str(mine.job_id))


# ── Groups ───────────────────────────────────────────────────────────────────
@pytest.fixture
def behind(q: Queue[Any]) -> str:
    """The second job of a group; its id."""
    q.enqueue(1, group="order-42")
    return str(q.enqueue(2, group="order-42").job_id)


def test_a_job_whose_group_is_busy_says_with_what(q: Queue[Any], behind: str) -> None:
    (lease,) = q.claim(worker="w3")
    told = q.why(behind)
    assert f"its group 'order-42' is at 1 of 1: job {lease.job_id} runs since " in told
    assert "(worker w3)" in told
    assert "next: one more starts when one of them ends" in told


def test_and_for_which_failed_job_it_waits(q: Queue[Any], behind: str) -> None:
    (lease,) = q.claim()
    lease.fail("x", retry_in=60)
    told = q.why(behind)
    assert f"its group 'order-42' waits for job {lease.job_id}, which failed and is tried again 20" in told
    assert "(in 60 s)" in told


def test_and_for_which_job_that_was_put_off(q: Queue[Any], behind: str) -> None:
    (lease,) = q.claim()
    lease.release(delay=60)
    assert f"waits for job {lease.job_id}, which was put off 20" in q.why(behind)


def test_and_which_dead_letter_stopped_it(q: Queue[Any], behind: str) -> None:
    q.configure(group_on_dead="stop")
    (lease,) = q.claim()
    lease.fail("x", retry=False)
    told = q.why(behind)
    assert f"its group 'order-42' was stopped by dead letter {lease.job_id}" in told
    assert (
        "next: redrive it, or resume the group ('osqueue queue resume ADDRESS mail --group order-42')" in told
    )


def test_and_that_it_is_paused(q: Queue[Any], behind: str) -> None:
    q.pause(group="order-42")
    told = q.why(behind)
    assert "its group 'order-42' is paused" in told
    assert "'osqueue queue resume ADDRESS mail --group order-42'" in told


def test_and_that_too_many_groups_are_held(
    q: Queue[Any], behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    q.pause(group="another")
    monkeypatch.setattr("osqueue.limits.GROUP_HOLDS_MAX", 1)
    assert "too many groups of its shard are held (1)" in q.why(behind)


def test_of_a_group_that_may_start_nothing_is_said(q: Queue[Any], behind: str) -> None:
    assert "group" not in q.why(behind)
