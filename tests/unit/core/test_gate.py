"""The gate: shares of limits, what a claim may start, and why it may start no more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue.core.claim_search import has_claimable, opens_ms
from osqueue.core.gate import gate_of
from osqueue.core.job_ops import (
    ClaimJobs,
    CompleteJobs,
    Completion,
    FailedAttempt,
    FailJobs,
    LeaseRef,
    ReleaseJobs,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.rates import share_of
from osqueue.core.settings import KindSettings, QueueSettings
from osqueue.core.state import MIXED, NO_STARTS
from simulation.tight import limited
from tests.support.shard import Shard


@pytest.fixture
def shard() -> Shard:
    return Shard()


def claim(shard: Shard, limit: int = 10, kinds: tuple[str, ...] | None = None) -> Any:
    return shard.apply(ClaimJobs(limit, "ada", 30_000, kinds))[0]


def limit_kinds(shard: Shard, **most: int) -> None:
    shard.apply(ChangeSettings(kinds=tuple(KindSettings(kind, max_running=n) for kind, n in most.items())))


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("limit", [1, 2, 5, 64, 1_000_000])
def test_the_shares_of_all_shards_are_the_limit(limit: int, shards: int) -> None:
    shares = [share_of(limit, QueueSettings(shards=shards, shard=at)) for at in range(shards)]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


def test_a_queue_without_limits_has_no_gate() -> None:
    assert gate_of(QueueSettings(kinds=(KindSettings("a", priority=1),)), {}, NO_STARTS, 0) is None
    assert gate_of(QueueSettings(max_running=1), {}, NO_STARTS, 0) is not None
    assert gate_of(QueueSettings(kinds=(KindSettings("a", paused=True),)), {}, NO_STARTS, 0) is not None


def test_no_more_run_than_may_however_many_claim(shard: Shard) -> None:
    shard.apply(ChangeSettings(max_running=3))
    shard.enqueue(10)
    first = claim(shard, 2)
    second = claim(shard)
    assert [len(each.leases) for each in (first, second)] == [2, 1]
    assert second.runs[-1][0] == Code.RUNNING_LIMIT
    none = claim(shard)
    assert (none.leases, none.code) == ((), Code.RUNNING_LIMIT)
    assert not has_claimable(shard.state)


@pytest.mark.parametrize("how", ["complete", "fail", "release", "stall"])
def test_whatever_ends_a_lease_frees_its_place_in_the_same_commit(shard: Shard, how: str) -> None:
    shard.apply(ChangeSettings(max_running=1))
    shard.enqueue(3)
    (lease,) = claim(shard).leases
    held = LeaseRef(lease.job.key, lease.token)
    if how == "stall":
        shard.now += 31_000
        assert len(claim(shard).leases) == 1
        return
    end = {
        "complete": CompleteJobs((Completion(held.key, held.token),)),
        "fail": FailJobs((FailedAttempt(held.key, held.token, "no"),)),
        "release": ReleaseJobs((held,)),
    }[how]
    _, again = shard.apply(end, ClaimJobs(5, "ada", 30_000))
    assert len(again.leases) == 1


def test_a_late_end_frees_no_second_place(shard: Shard) -> None:
    shard.apply(ChangeSettings(max_running=1))
    shard.enqueue(3)
    (lease,) = claim(shard).leases
    shard.now += 31_000
    assert len(claim(shard).leases) == 1
    done = CompleteJobs((Completion(lease.job.key, lease.token),))
    lost, none = shard.apply(done, ClaimJobs(5, "ada", 30_000))
    assert (lost.code, none.code) == (Code.LEASE_LOST, Code.RUNNING_LIMIT)


def test_a_kind_that_may_start_no_more_stands_in_nobodys_way(shard: Shard) -> None:
    limit_kinds(shard, send=2)
    shard.enqueue(5, kind="send", priority=0)
    shard.enqueue(5, kind="other", priority=9)
    got = claim(shard)
    assert [lease.job.kind for lease in got.leases] == ["send"] * 2 + ["other"] * 5
    assert got.runs[-1][0] == Code.RUNNING_LIMIT
    assert claim(shard, kinds=("other",)).code == Code.EMPTY
    assert claim(shard, kinds=("send",)).code == Code.RUNNING_LIMIT


def test_both_limits_hold_together(shard: Shard) -> None:
    shard.apply(ChangeSettings(max_running=4))
    limit_kinds(shard, a=3, b=3)
    shard.enqueue(5, kind="a")
    shard.enqueue(5, kind="b")
    kinds = [lease.job.kind for lease in claim(shard).leases]
    assert (kinds.count("a"), kinds.count("b")) == (3, 1)


def test_a_paused_kind_starts_nothing_and_says_so(shard: Shard) -> None:
    shard.apply(ChangeSettings(kinds=(KindSettings("send", paused=True),)))
    shard.enqueue(2, kind="send")
    assert claim(shard).code == Code.KINDS_PAUSED
    assert not has_claimable(shard.state)
    shard.enqueue(1)
    assert len(claim(shard).leases) == 1
    shard.apply(ChangeSettings(kinds=(KindSettings("send", paused=False),)))
    assert len(claim(shard).leases) == 2


def test_paused_and_limited_kinds_together_are_told_as_limited(shard: Shard) -> None:
    shard.apply(ChangeSettings(kinds=(KindSettings("a", paused=True), KindSettings("b", max_running=1))))
    shard.enqueue(2, kind="a")
    shard.enqueue(2, kind="b")
    assert len(claim(shard).leases) == 1
    assert claim(shard).code == Code.RUNNING_LIMIT


def test_lowering_a_limit_ends_nothing_that_runs(shard: Shard) -> None:
    shard.enqueue(10)
    assert len(claim(shard, 5).leases) == 5
    shard.apply(ChangeSettings(max_running=2))
    assert len(shard.state.leases) == 5
    assert claim(shard).code == Code.RUNNING_LIMIT
    shard.apply(ChangeSettings(max_running=0))
    assert len(claim(shard).leases) == 5


def test_jobs_of_closed_kinds_in_segments_are_not_read(shard: Shard) -> None:
    limit_kinds(shard, send=1)
    shard.enqueue(1, kind="send")
    assert len(claim(shard, 1).leases) == 1
    for _ in range(5):
        shard.enqueue(1_000, kind="send", payload=bytes(200))
    shard.enqueue(1, kind="other")
    reads = shard.reads
    assert [lease.job.kind for lease in claim(shard).leases] == ["other"]
    assert shard.reads == reads


@pytest.mark.parametrize("kinds", [None, ("b", "z")])
@pytest.mark.parametrize(
    ("limit", "code"), [({"rate": (1, 60_000)}, Code.RATE_LIMITED), ({"max_running": 1}, Code.RUNNING_LIMIT)]
)
def test_a_queue_that_may_start_no_more_says_so_of_jobs_that_all_lie_in_mixed_segments(
    shard: Shard, kinds: tuple[str, ...] | None, limit: dict[str, Any], code: Code
) -> None:
    shard.apply(ChangeSettings(**limit))
    with limited({"LANES_MAX": 1, "READY_BYTES_MAX": 300, "TAIL_BYTES_MAX": 300}):
        for kind in "abcabcabc":
            shard.enqueue(3, kind=kind)
        claim(shard, 1)
        lane = next(each for each in shard.state.lanes if each.kind == MIXED)
        assert lane.backlog.spans
        deep = replace(lane.backlog, ready=(), ready_bytes=0, tail=(), tail_bytes=0)
        shard.state, shard.checked = replace(shard.state, lanes=(replace(lane, backlog=deep),)), False
        wait_ms = claim(shard, 1, kinds).runs[-1][1]
        assert claim(shard, 1, kinds).runs[-1][0] == code
        assert claim(shard, 1, ("nobody",)).runs[-1][0] == Code.EMPTY
    assert opens_ms(shard.state, kinds) == (shard.state.now_ms + wait_ms if wait_ms else None)
    assert bool(wait_ms) is (code == Code.RATE_LIMITED)
