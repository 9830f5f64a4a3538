"""What is used of a queue's limits, and which groups run or are held: over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Rejected
from osqueue.model.settings import Kind


def test_limits_are_told_with_what_is_used_of_them(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(
        max_running=5, rate=(2, 60), burst=2, kinds={"send": Kind(max_running=1), "off": Kind(paused=True)}
    )
    q.enqueue_many([{"payload": at, "kind": "send" if at % 2 else "read"} for at in range(8)])
    before = q.flow()
    assert (before.running, before.max_running, before.rate.left, before.rate.next_at) == (0, 5, 2, None)
    assert len(q.claim(8)) == 2
    used = q.flow()
    assert (used.queue, used.running, used.shards) == (q.name, 2, [])
    assert (used.rate.starts, used.rate.period, used.rate.burst, used.rate.left) == (2, 60.0, 2, 0)
    assert used.rate.next_at is not None
    assert (used.kinds["send"].running, used.kinds["send"].max_running) == (1, 1)
    assert (used.kinds["read"].running, used.kinds["read"].max_running) == (1, None)
    assert (used.kinds["off"].running, used.kinds["off"].paused) == (0, True)


def test_over_shards_it_is_summed_and_told_of_each(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(max_running=7, shards=3)
    for at in range(30):
        q.enqueue(at)
    held = [lease for _ in range(12) for lease in q.claim(5)]
    used = q.flow()
    assert used.running == len(held) == sum(each.running for each in used.shards)
    assert sorted(each.may_run for each in used.shards) == [2, 2, 3]


def test_groups_are_told_with_why_nothing_of_them_starts(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(group_on_dead="stop", backoff_base=600)
    for group in ("a", "b", "c", "d"):
        for at in range(3):
            q.enqueue(at, group=group, max_attempts=1 if group == "c" else 3)
    leases = {lease.group: lease for lease in q.claim(10)}
    leases["b"].fail("no")
    leases["c"].fail("no")
    leases["d"].complete()
    q.pause(group="d")
    found = {each.group: each for each in q.groups()}
    assert {group: each.state for group, each in found.items()} == {
        "a": "full",
        "b": "held",
        "c": "stopped",
        "d": "paused",
    }
    assert [found[group].running for group in "abcd"] == [1, 0, 0, 0]
    assert [found[group].waiting for group in "abcd"] == [2, 2, 2, 2]
    assert (found["b"].waits_for, found["c"].waits_for) == (leases["b"].job_id, leases["c"].job_id)
    assert found["a"].since is not None
    assert found["b"].opens_at > found["b"].since
    assert "is at 1 of 1" in found["a"].why
    assert "failed and is tried again" in found["b"].why
    assert "stopped by dead letter" in found["c"].why
    assert "is paused" in found["d"].why
    assert q.flow().groups == {
        "running": 0,
        "full": 1,
        "held": 1,
        "stopped": 1,
        "paused": 1,
        "rate_limited": 0,
    }
    assert [each.group for each in q.groups(limit=2)] == ["a", "b"]
    with pytest.raises(Rejected, match="limit"):
        q.groups(limit=0)


def test_a_group_below_its_limit_runs_and_a_queue_without_limits_says_so(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(group_running=2)
    q.enqueue(1, group="a")
    assert q.claim()
    (one,) = q.groups()
    assert (one.state, one.running, one.why) == ("running", 1, "")
    used = q.flow()
    assert (used.max_running, used.rate, used.paused) == (None, None, False)


def test_a_group_whose_rate_is_spent_is_told_with_when_it_goes_on(opened: Callable[..., Any]) -> None:
    q = opened()
    q.configure(group_rate=(1, 600), group_running=0)
    q.enqueue_many([{"payload": at, "group": group} for group in "ab" for at in range(2)])
    assert [lease.group for lease in q.claim(1)] == ["a"]
    (found,) = q.groups()
    assert (found.group, found.state, found.running, found.waiting) == ("a", "rate_limited", 1, 1)
    assert found.opens_at is not None
    assert "its group 'a' may start 1" in found.why
    assert q.flow().groups["rate_limited"] == 1
