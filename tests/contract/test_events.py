"""Events for everybody: whoever commits, whoever listens, over every store and API, blocking and async."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osqueue import Expired, NotFound, Queue, Rejected, limits
from osqueue.stores.base import Delete, List

HOUR_MS = 3_600_000


def read(q: Any, since: Any = None, wait: float = 0) -> list[Any]:
    return list(q.events(since, wait=wait))


def begin(q: Any) -> str:
    """Listen to a queue that is there, from now on: the cursor to go on with."""
    q.resume()
    q.on()(lambda event: None)
    cursor: str = q.listen(wait=0)
    return cursor


def happens(q: Any) -> list[str]:
    """Four jobs end in every way; the names of what happened."""
    q.enqueue("done", id="mine", kind="k", headers={"for": "ada"})
    q.enqueue("dead", max_attempts=1)
    q.enqueue("later", delay=3600)
    q.enqueue("again")
    done, dead, again = q.claim(3, worker="ada")
    done.complete("a result")
    dead.fail("broken")
    again.release()
    q.cancel(q.jobs("scheduled")[0][0].job_id)
    q.redrive()
    names = ["queued", "queued", "scheduled", "queued", *["processing"] * 3]
    return [*names, "completed", "failed", "queued", "cancelled", "queued"]


def test_whatever_anybody_commits_is_told_once_and_in_order(opened: Callable[..., Any]) -> None:
    listener, other = opened(), opened()
    cursor = begin(listener)
    assert cursor
    names = happens(other)
    found = read(listener, cursor)
    assert [each.name for each in found] == names
    first, started = found[0], found[4]
    assert (first.id, first.kind, first.headers, first.cause) == ("mine", "k", ("for",), "enqueue")
    assert (started.job_id, started.worker, started.attempt) == (first.job_id, "ada", 1)
    assert all("result" not in repr(each) and "broken" not in repr(each) for each in found)
    assert read(listener, found[-1].cursor) == []


def test_every_event_has_a_cursor_to_go_on_behind_it(opened: Callable[..., Any]) -> None:
    q = opened()
    cursor = begin(q)
    happens(q)
    found = read(q, cursor)
    for at, each in enumerate(found):
        rest = read(opened(), each.cursor)
        assert [(one.job_id, one.name) for one in rest] == [(one.job_id, one.name) for one in found[at + 1 :]]


def test_a_cursor_survives_restarts_and_objects_beside_the_head(opened: Callable[..., Any]) -> None:
    q = opened()
    cursor = begin(q)
    for _ in range(3):
        q.enqueue_many([{"payload": at} for at in range(400)])
    found = read(opened(), cursor)
    assert len({each.job_id for each in found}) == 1_200
    assert len(found) == 1_200
    for at in (0, 150, 399, 400, 450, 799, 1_150):
        assert len(read(opened(), found[at].cursor)) == 1_199 - at


@pytest.mark.embedded
def test_a_listener_that_catches_up_over_shards_reads_all(opened: Callable[..., Any]) -> None:
    q = opened()
    cursor = begin(q)
    q.configure(shards=2)
    for _ in range(4):
        for at in range(0, 900, 90):
            q.enqueue_many([{"payload": at} for at in range(90)])
    found = read(opened(), cursor)
    assert len({each.job_id for each in found}) == len(found) == 3_600
    for at in range(0, 3_600, 450):
        assert len(read(opened(), found[at].cursor)) == 3_599 - at


def test_a_time_reads_what_is_kept_since(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    begin(q)
    for _ in range(3):
        q.enqueue_many([{"payload": at} for at in range(400)])
    clock.shift_ms += HOUR_MS
    q.enqueue("late")
    begins = datetime.now(UTC) + timedelta(minutes=30)
    assert [each.name for each in read(q, begins)] == ["queued"]
    assert len(read(q, 0)) == 1_201
    assert len(read(q, begins.timestamp() - 24 * 3600)) == 1_201


def test_a_bulk_is_told_as_a_whole(opened: Callable[..., Any]) -> None:
    q = opened()
    cursor = begin(q)
    q.enqueue_many([{"payload": at, "kind": "k"} for at in range(limits.ITEMS_PER_REQUEST_MAX + 500)])
    found = read(q, cursor)
    assert sum(each.count for each in found) == limits.ITEMS_PER_REQUEST_MAX + 500


def test_events_of_all_shards_come_with_one_cursor(opened: Callable[..., Any]) -> None:
    q = opened()
    cursor = begin(q)
    ids = {q.enqueue("first").job_id}
    q.configure(shards=4)
    ids |= {q.enqueue(at).job_id for at in range(20)}
    found = read(q, cursor)
    assert {each.job_id for each in found} == ids
    assert len(found) == 21
    for at in (0, 7, 19):
        assert len(read(opened(), found[at].cursor)) == 20 - at


@pytest.mark.embedded
def test_a_time_reads_on_behind_a_gap(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    begin(q)
    for _ in range(3):
        q.enqueue_many([{"payload": at} for at in range(400)])
    clock.shift_ms += limits.EVENTS_KEPT_MS + HOUR_MS
    q.enqueue("unheard")
    begin(q)
    q.enqueue("heard")
    since = datetime.now(UTC).timestamp() - 60
    first = list(q.events(since, wait=0))
    assert len(first) == 1_201
    with pytest.raises(Expired):  # whoever goes on behind an event is told
        read(q, first[1_199].cursor)


def test_nothing_is_recorded_before_anybody_listens(opened: Callable[..., Any]) -> None:
    q = opened()
    q.enqueue(1)
    assert read(q, 0) == []
    q.enqueue(2)
    assert len(read(q, 0)) == 1


def test_recording_ends_a_day_after_the_last_listener(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    cursor = begin(q)
    q.enqueue(1)
    clock.shift_ms += limits.EVENTS_KEPT_MS - HOUR_MS
    assert len(read(q, cursor)) == 1
    clock.shift_ms += limits.EVENTS_KEPT_MS - HOUR_MS
    q.enqueue(2)
    assert len(read(q, cursor)) == 2
    clock.shift_ms += limits.EVENTS_KEPT_MS + HOUR_MS
    q.enqueue(3)
    with pytest.raises(Expired, match="not there any more: they are kept for a day"):
        read(q, cursor)
    assert read(q) == []


def test_those_that_wait_hear_of_others_commits(
    opened: Callable[..., Any], new_store: Any, clock: Any
) -> None:
    q = opened()
    events = q.events(begin(q), wait=60, poll=0.05)
    later = threading.Timer(0.3, lambda: Queue(new_store(), "mail", machine=clock).enqueue("hello"))
    later.start()
    assert next(events).name == "queued"
    later.join()


def test_a_listener_may_come_before_the_first_job(opened: Callable[..., Any], address: str) -> None:
    q = opened("new")
    if address.startswith(("http", "lambda")):  # asking over an API makes no queue
        with pytest.raises(NotFound, match="nobody has used it yet"):
            read(q)
        q.enqueue(0)
    assert read(q) == []
    q.enqueue(1)
    assert [each.name for each in read(q, 0)] == ["queued"]


@pytest.mark.embedded
def test_collected_objects_are_missed_and_said_to_be(opened: Callable[..., Any], behind: Any) -> None:
    q = opened()
    cursor = begin(q)
    for _ in range(3):
        q.enqueue_many([{"payload": at} for at in range(400)])
    keys = behind.perform(List("")).keys
    behind.perform(Delete(tuple(key for key in keys if "/events/" in key)))
    with pytest.raises(Expired, match="not there any more"):
        read(q, cursor)
    assert len(read(q, 0)) == 400  # what is still there


@pytest.mark.parametrize("since", ["yesterday", "ev1-", -1, datetime(2030, 1, 1), True])  # noqa: DTZ001
def test_a_beginning_that_is_none_is_refused(opened: Callable[..., Any], since: Any) -> None:
    with pytest.raises(Rejected, match="since") as caught:
        read(opened(), since)
    assert caught.value.field == "since"


def test_the_cursor_of_another_queue_is_refused(opened: Callable[..., Any]) -> None:
    cursor = begin(opened("other"))
    begin(opened("mail"))
    with pytest.raises(Expired, match="another one's cursor"):
        read(opened("mail"), cursor)


@pytest.mark.parametrize(("field", "value"), [("wait", -1), ("wait", "x"), ("poll", 0), ("poll", 10**6)])
def test_bad_waits_are_refused(opened: Callable[..., Any], field: str, value: Any) -> None:
    with pytest.raises(Rejected, match=field):
        list(opened().events(**{"wait": 0, field: value}))
