"""Who is next: lanes, priorities, kinds, and those who come back."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import limits
from osqueue.core.job_ops import (
    CancelJob,
    ClaimJobs,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    LeaseRef,
    ReleaseJobs,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import RunTimers
from osqueue.core.state import MIXED


def keys_of(leases: Any) -> list[bytes]:
    return [lease.job.key for lease in leases]


def test_a_lane_is_first_in_first_out(shard: Any) -> None:
    keys = [key for _ in range(10) for key in shard.enqueue(7)]
    assert shard.drain(3) == keys


def test_priorities_are_strict(shard: Any) -> None:
    by_priority = {priority: shard.enqueue(priority=priority) for priority in (5, 9, 0, 3)}
    late = shard.enqueue(priority=0)
    assert shard.drain(1) == [
        *by_priority[0], *late, *by_priority[3], *by_priority[5], *by_priority[9]
    ]  # fmt: skip


def test_without_kinds_the_oldest_of_all_kinds_comes_first(shard: Any) -> None:
    keys = [shard.enqueue(kind=kind)[0] for kind in ("b", "a", "c", "", "a", "b")]
    assert shard.drain(1) == keys


def test_claiming_some_kinds_never_reorders_the_others(shard: Any) -> None:
    kinds = ["a", "b", "c", "a", "b", "c", "b"]
    keys = [shard.enqueue(kind=kind)[0] for kind in kinds]
    taken = keys_of(shard.claim(10, kinds=("b",)))
    assert taken == [key for key, kind in zip(keys, kinds, strict=True) if kind == "b"]
    assert shard.drain(1) == [key for key in keys if key not in taken]


def test_the_nameless_kind_can_be_claimed_by_its_name(shard: Any) -> None:
    shard.enqueue(kind="a")
    (key,) = shard.enqueue()
    assert keys_of(shard.claim(10, kinds=("",))) == [key]
    assert shard.claim(10, kinds=("zzz",)) == ()
    assert not shard.last.changed


def test_kinds_do_not_outrank_priorities(shard: Any) -> None:
    (low,) = shard.enqueue(kind="a", priority=7)
    (high,) = shard.enqueue(kind="b", priority=2)
    assert keys_of(shard.claim(10, kinds=("a", "b"))) == [high, low]


def test_released_jobs_go_to_the_front_in_their_old_order(shard: Any) -> None:
    keys = shard.enqueue(6)
    leases = shard.claim(4)
    shard.apply(ReleaseJobs(tuple(LeaseRef(lease.job.key, lease.token) for lease in leases)))
    assert shard.drain(1) == keys


def test_stalled_jobs_go_to_the_front_in_their_old_order(shard: Any) -> None:
    keys = shard.enqueue(6)
    shard.claim(2)
    shard.claim(2)
    shard.now += limits.LEASE_MS_DEFAULT
    assert shard.drain(1) == keys


def test_a_retry_joins_the_back_when_it_is_due(shard: Any) -> None:
    first, second, third = shard.enqueue(3)
    (lease,) = shard.claim()
    shard.apply(FailJobs((FailedAttempt(first, lease.token, "no", 1_000),)))
    shard.now += 1_000
    assert shard.drain(1) == [second, third, first]


def test_delayed_jobs_become_due_by_time_and_then_by_age(shard: Any) -> None:
    keys = [shard.enqueue(delay_ms=delay)[0] for delay in (3_000, 1_000, 2_000, 1_000)]
    shard.now += 5_000
    assert shard.drain(1) == [keys[1], keys[3], keys[2], keys[0]]


def test_an_absolute_time_in_the_past_means_now(shard: Any) -> None:
    shard.enqueue(at_ms=shard.now)
    assert len(shard.claim()) == 1
    shard.enqueue(at_ms=shard.now + 1)
    assert shard.claim() == ()


def test_sixteen_kinds_have_a_lane_each_and_the_seventeenth_is_taken_as_well(shard: Any) -> None:
    news = tuple(shard.new(kind=f"k{at}") for at in range(limits.LANES_MAX + 1))
    assert shard.apply(EnqueueJobs(news))[0].codes == [Code.QUEUED] * len(news)
    assert [lane.kind for lane in shard.state.lanes if lane.kind == MIXED] == [MIXED]
    assert len(shard.state.lanes) == limits.LANES_MAX + 1
    assert keys_of(shard.claim(2, (news[-1].kind,))) == [news[-1].key]
    shard.claim(1, ("k0",))  # an empty lane makes room
    shard.enqueue(kind="another")
    assert len(shard.state.lanes) == limits.LANES_MAX
    assert "another" in {lane.kind for lane in shard.state.lanes}


def test_due_jobs_are_queued_however_many_kinds_wait(shard: Any) -> None:
    (late,) = shard.enqueue(kind="late", delay_ms=1_000)
    (fine,) = shard.enqueue(kind="k0", delay_ms=2_000)
    shard.apply(EnqueueJobs(tuple(shard.new(kind=f"k{at}") for at in range(limits.LANES_MAX))))
    shard.now += 3_000
    shard.apply(RunTimers())
    assert (shard.where(late), shard.where(fine)) == ("queued", "queued")
    assert keys_of(shard.claim(1, ("late",))) == [late]


def test_jobs_come_back_to_lanes_that_have_gone_meanwhile(shard: Any) -> None:
    shard.enqueue(kind="first")
    (lease,) = shard.claim()
    for at in range(limits.LANES_MAX):
        shard.enqueue(kind=f"k{at}")
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
    assert shard.where(lease.job.key) == "queued"
    assert keys_of(shard.claim()) == [lease.job.key]


def test_a_claim_takes_across_lanes_up_to_its_limit(shard: Any) -> None:
    low = shard.enqueue(3, priority=7)
    high = shard.enqueue(3, priority=1)
    assert keys_of(shard.claim(5)) == [*high, *low[:2]]


def test_a_cancelled_job_leaves_the_others_in_order(shard: Any) -> None:
    keys = shard.enqueue(5)
    shard.apply(CancelJob(keys[2]))
    assert shard.drain(2) == [*keys[:2], *keys[3:]]


@pytest.mark.parametrize("limit", [1, 2, limits.CLAIM_LIMIT_MAX])
def test_tokens_of_one_request_are_all_different(shard: Any, limit: int) -> None:
    shard.enqueue(limits.ITEMS_PER_REQUEST_MAX)
    answers = shard.apply(ClaimJobs(limit, "ada", 30_000), ClaimJobs(2, "bob", 30_000))
    tokens = [lease.token for each in answers for lease in each.leases]
    assert len(tokens) == len(set(tokens)) > limit // 2
