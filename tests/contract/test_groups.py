"""Groups over every store and API, blocking and async: one at a time, in order, whatever happens to a job of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Rejected, limits
from osqueue.core.groups import home_of
from osqueue.model.keys import key_of, shard_of


def payloads(leases: Any) -> list[Any]:
    return [lease.payload for lease in leases]


def closed(q: Any) -> bool:
    """Does a claim find nothing but jobs of groups that start nothing?"""
    none = q.claim(10)
    return not none and none.reason == "groups_closed"


def fill(q: Any, count: int = 3, group: str = "a") -> list[str]:
    """Jobs of one group, and their ids."""
    return [q.enqueue(at, group=group).job_id for at in range(count)]


# ── Order ────────────────────────────────────────────────────────────────────
def test_jobs_of_a_group_run_one_by_one_in_order(opened: Callable[..., Any]) -> None:
    q, other = opened(), opened()
    fill(q)
    fill(q, group="b")
    q.enqueue("plain")
    mine = q.claim(10)
    assert [(lease.group, lease.payload) for lease in mine] == [("a", 0), ("b", 0), (None, "plain")]
    assert closed(other)
    mine[0].complete()
    (next_,) = other.claim(10)
    assert (next_.group, next_.payload) == ("a", 1)


def test_so_many_of_a_group_run_as_the_queue_says(q: Any) -> None:
    q.configure(group_running=2)
    fill(q, 5)
    assert payloads(q.claim(10)) == [0, 1]
    assert closed(q)
    q.configure(group_running=0)
    assert payloads(q.claim(10)) == [2, 3, 4]


# ── What happens to a job of a group ─────────────────────────────────────────
def test_a_group_waits_for_its_job_that_failed(q: Any, clock: Any) -> None:
    fill(q)
    q.claim()[0].fail("x", retry_in=60)
    assert closed(q)
    clock.shift_ms += 61_000
    (lease,) = q.claim(10, wait=10)
    assert (lease.payload, lease.attempt) == (0, 2)
    lease.complete()
    assert payloads(q.claim(10)) == [1]


def test_or_skips_it(q: Any) -> None:
    q.configure(group_on_failure="skip")
    fill(q)
    q.claim()[0].fail("x", retry_in=60)
    assert payloads(q.claim(10)) == [1]


def test_a_dead_letter_stops_its_group_until_it_is_redriven(q: Any) -> None:
    q.configure(group_on_dead="stop")
    fill(q)
    q.claim()[0].fail("x", retry=False)
    assert closed(q)
    assert q.redrive() == 1
    (lease,) = q.claim(10)
    assert lease.payload == 0
    lease.complete()
    assert payloads(q.claim(10)) == [1]


def test_or_until_the_group_is_resumed(q: Any) -> None:
    q.configure(group_on_dead="stop")
    fill(q)
    q.claim()[0].fail("x", retry=False)
    assert closed(q)
    q.resume(group="a")
    assert payloads(q.claim(10)) == [1]


def test_a_group_is_paused_and_resumed(q: Any) -> None:
    fill(q)
    fill(q, group="b")
    q.pause(group="a")
    assert [lease.group for lease in q.claim(10)] == ["b"]
    assert closed(q)
    q.resume(group="a")
    assert [lease.group for lease in q.claim(10)] == ["a"]


# ── Over shards ──────────────────────────────────────────────────────────────
def test_each_group_of_a_batch_is_in_one_shard_and_answers_come_in_order(q: Any) -> None:
    q.configure(shards=4)
    items = [{"payload": at, "group": f"g{at % 9}", "id": f"job-{at}"} for at in range(90)]
    done = q.enqueue_many(items)
    assert {each.status for each in done} == {"queued"}
    where = defaultdict(set)
    for item, each in zip(items, done, strict=True):
        where[item["group"]].add(shard_of(key_of(each.job_id)))
    assert where == {group: {home_of(group, 4)} for group in where}
    again = q.enqueue_many(items)
    assert [each.job_id for each in again] == [each.job_id for each in done]
    assert q.status("job-7").job_id == done[7].job_id
    order = defaultdict(list)
    for _ in range(400):
        leases = q.claim(10)
        for lease in leases:
            order[lease.group].append(lease.payload)
        q.complete_many(leases)
        if not leases and leases.reason == "empty":
            break
    assert order == {f"g{at}": list(range(at, 90, 9)) for at in range(9)}


def test_more_shards_move_no_group(q: Any) -> None:
    groups = [f"g{at}" for at in range(12)]
    q.configure(shards=2)
    before = [shard_of(key_of(q.enqueue(0, group=group).job_id)) for group in groups]
    q.configure(shards=4)
    assert [shard_of(key_of(q.enqueue(1, group=group).job_id)) for group in groups] == before
    assert set(before) == {0, 1}


# ── Seen ─────────────────────────────────────────────────────────────────────
def test_the_group_of_a_job_is_seen(q: Any) -> None:
    (job_id,) = fill(q, 1, group="order-42")
    assert q.status(job_id).group == "order-42"
    (found,), _ = q.jobs("queued")
    assert found.group == "order-42"
    (lease,) = q.claim()
    assert lease.group == "order-42"
    lease.complete()
    assert q.status(job_id).group == "order-42"


# ── Refused ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("group", [7, "", "x" * (limits.GROUP_CHARS_MAX + 1), ["a"]])
def test_what_is_no_group_is_refused(q: Any, group: Any) -> None:
    with pytest.raises(Rejected) as caught:
        q.enqueue(1, group=group)
    assert caught.value.field == "group"
