"""Many jobs cancelled at once, over every store and transport: however deep they lie, and none that comes later."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from osqueue import JobCancelled, Next, Rejected


def test_all_of_a_kind_are_cancelled_and_no_others(q: Any) -> None:
    mine = [q.enqueue(n, kind="a").job_id for n in range(3)]
    later = q.enqueue(1, kind="a", delay=600).job_id
    other = q.enqueue(1, kind="b").job_id
    (lease,) = q.claim(kinds=["a"])
    seen = q.cancel_many(kinds=["a"], dry_run=True)
    assert (seen.cancelled, seen.asked, seen.waiting) == (3, 1, 0)
    assert q.stats()["cancelled"] == 0 if "cancelled" in q.stats() else True
    assert q.cancel_many(kinds=["a"]) == seen
    assert [q.status(each).state for each in (*mine[1:], later)] == ["cancelled"] * 3
    assert "cancelled" in q.why(later)
    assert "by drop rule" in q.why(later)
    with pytest.raises(JobCancelled, match="by drop rule"):
        q.result(later)
    lease.heartbeat()
    assert lease.cancel_requested
    lease.cancel()
    assert [each.job_id for each in q.claim(10)] == [other]


def test_deep_in_segments_nothing_is_given_out_and_all_of_it_says_so(q: Any) -> None:
    named = {0: "n-0", 1_700: "n-1700", 2_499: "n-2499"}
    items = [{"payload": n, "id": named[n]} if n in named else {"payload": n} for n in range(2_500)]
    old = [each.job_id for each in q.enqueue_many(items)]
    late = [each.job_id for each in q.enqueue_many([{"payload": n, "delay": 600} for n in range(1_500)])]
    done = q.cancel_many()
    assert done.cancelled + done.waiting == 4_000
    assert done.waiting > 0
    assert [q.status(each).state for each in (old[0], old[1_700], old[-1], late[700])] == ["cancelled"] * 4
    again = q.enqueue("again", id="n-1700")
    assert (again.status, again.job_id in old) == ("queued", False)
    new = [each.job_id for each in q.enqueue_many([{"payload": n} for n in range(1_200)])]
    got: list[str] = []
    while leases := q.claim(500):
        got += [each.job_id for each in leases]
        q.complete_many(leases)
    assert sorted(got) == sorted([again.job_id, *new])
    assert q.run_now(late[700]) == "cancelled"
    q.reap()
    stats = q.stats()
    assert (stats["queued"], stats["scheduled"]) == (0, 0)
    assert stats["counters"]["cancelled"] == 4_000
    assert "by drop rule" in q.why(old[1_700])


def test_a_group_among_others_in_segments(q: Any) -> None:
    q.configure(group_running=1_000)
    items = [{"payload": n, "group": "ghi"[n % 3]} for n in range(3_000)]
    q.enqueue_many(items)
    done = q.cancel_many(group="h")
    assert done.cancelled + done.waiting >= 1_000
    assert q.cancel_many(group="nobody's").cancelled == 0
    for _ in range(3):
        q.reap()
    assert q.stats()["queued"] == 2_000
    got: list[int] = []
    while leases := q.claim(500):
        got += [each.payload for each in leases]
        q.complete_many(leases)
    assert sorted(got) == [n for n in range(3_000) if n % 3 != 1]


def test_only_what_was_enqueued_before_a_time(q: Any) -> None:
    q.enqueue(1)
    past, future = datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
    assert q.cancel_many(enqueued_before=past).cancelled == 0
    assert q.cancel_many(enqueued_before=past.timestamp()).cancelled == 0
    assert q.cancel_many(enqueued_before=future).cancelled == 1


def test_of_every_shard(q: Any) -> None:
    q.configure(shards=3)
    q.enqueue_many([{"payload": n} for n in range(30)])
    assert q.cancel_many().cancelled == 30
    assert list(q.claim(30)) == []


def test_a_batch_is_over_when_its_running_jobs_have_ended_and_has_no_success(q: Any) -> None:
    q.configure(shards=4)
    with q.batch(on_complete=Next("report"), on_success=Next("publish")) as batch:
        batch.enqueue_many({"payload": n, "kind": "ab"[n % 2]} for n in range(6))
        batch.enqueue(6, kind="a", delay=600)
    with q.batch() as another:
        kept = another.enqueue(1, kind="c").job_id
    (lease,) = q.claim(kinds=["b"])
    seen = q.cancel_many(batch=batch.id, dry_run=True)
    assert (seen.cancelled, seen.asked, seen.waiting) == (6, 1, 0)
    assert q.batch_status(batch.id).left == 7
    assert q.cancel_many(batch=batch.id) == seen
    status = q.batch_status(batch.id)
    assert (status.state, status.left, status.cancelled) == ("sealed", 1, 6)
    assert [each.job_id for each in q.claim(10)] == [kept]
    lease.heartbeat()
    assert lease.cancel_requested
    lease.complete()
    status = q.batch_status(batch.id)
    assert (status.state, status.left, status.completed, status.cancelled) == ("over", 0, 1, 6)
    (report,) = q.claim(10)
    assert (report.kind, report.payload["cancelled"]) == ("report", 6)


def test_an_open_batch_is_cancelled_and_goes_on_with_what_joins_later(q: Any) -> None:
    made = q.open_batch(on_complete=Next("report"))
    items = [{"payload": n, "batch": made.batch_id, "delay": 600 * (n % 2)} for n in range(3_000)]
    mine = [each.job_id for each in q.enqueue_many(items)]
    others = sorted(each.job_id for each in q.enqueue_many([{"payload": n} for n in range(1_500)]))
    done = q.cancel_many(batch=made.batch_id)
    assert done.cancelled + done.waiting == 3_000
    assert done.waiting > 0
    assert [q.status(each).state for each in (mine[0], mine[1_701], mine[-1])] == ["cancelled"] * 3
    assert "by drop rule" in q.why(mine[-1])
    late = [q.enqueue(n, batch=made.batch_id).job_id for n in range(2)]
    q.reap()
    q.reap()
    status = q.batch_status(made.batch_id)
    assert (status.state, status.total, status.left, status.cancelled) == ("open", 3_002, 2, 3_000)
    assert q.seal_batch(made.batch_id).state == "sealed"
    got: list[Any] = []
    while leases := q.claim(500):
        got += leases
        q.complete_many(leases)
    assert sorted(each.job_id for each in got if each.batch) == sorted(late)
    assert sorted(each.job_id for each in got if not each.parent and not each.batch) == others
    assert [each.kind for each in got if each.parent] == ["report"]


def test_a_kind_within_a_batch_and_one_that_is_not_there(q: Any) -> None:
    with q.batch() as batch:
        batch.enqueue_many({"payload": n, "kind": "ab"[n % 2]} for n in range(5))
    assert q.cancel_many(kinds=["a"], batch=batch.id).cancelled == 3
    assert q.batch_status(batch.id).left == 2
    found = q.cancel_many(batch=q.enqueue(1).job_id)  # an id, and of no batch
    assert (found.cancelled, found.asked, found.waiting) == (0, 0, 0)


def test_a_queue_that_nobody_has_made_stays_away(opened: Callable[..., Any]) -> None:
    q = opened()
    found = q.cancel_many()
    assert (found.cancelled, found.asked, found.waiting) == (0, 0, 0)


def test_what_makes_no_sense_is_refused(q: Any) -> None:
    for field, wished in (
        ("kinds", {"kinds": "a"}),
        ("kinds", {"kinds": [f"k{n}" for n in range(17)]}),
        ("group", {"group": ""}),
        ("group", {"group": 7}),
        ("batch", {"batch": ""}),
        ("batch", {"batch": "march"}),
        ("batch", {"batch": 7}),
        ("enqueued_before", {"enqueued_before": "1h"}),
        ("enqueued_before", {"enqueued_before": datetime(2030, 1, 1)}),  # noqa: DTZ001 - that is the point
    ):
        with pytest.raises(Rejected) as caught:
            q.cancel_many(**wished)
        assert caught.value.field == field
