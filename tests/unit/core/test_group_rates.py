"""Rates of groups: what each may start, when, what a head keeps of it, and what a claim that gets none is told."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from osqueue import limits
from osqueue.core.claim_search import has_claimable, opens_ms
from osqueue.core.encoding import encode_head
from osqueue.core.group_rates import GroupAllowance
from osqueue.core.groups import home_of
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion
from osqueue.core.labels import group_digest
from osqueue.core.ops import Code
from osqueue.core.queue_ops import AS_THE_QUEUE, ChangeSettings, GroupChange, RunTimers
from osqueue.core.rates import is_owed, spent
from osqueue.core.restore import reset_clock
from osqueue.core.settings import GroupSettings, QueueSettings
from osqueue.core.state import NO_STARTS, Starts
from simulation.tight import limited
from tests.support.shard import Shard


@pytest.fixture
def shard() -> Shard:
    return Shard()


def claim(shard: Shard, limit: int = 10, kinds: tuple[str, ...] | None = None) -> Any:
    return shard.apply(ClaimJobs(limit, "ada", 600_000, kinds))[0]


def groups_of(outcome: Any) -> list[str]:
    return [lease.job.group for lease in outcome.leases]


def rated(shard: Shard, starts: int, ms: int = 60_000, burst: int = 0, **more: Any) -> None:
    shard.apply(ChangeSettings(group_rate=(starts, ms), group_burst=burst, group_running=0, **more))


def test_each_group_starts_at_the_rate_and_a_burst_at_once(shard: Shard) -> None:
    rated(shard, 6, 60_000, burst=2)
    shard.enqueue(4, group="a")
    shard.enqueue(1, group="b")
    got = claim(shard)
    assert groups_of(got) == ["a", "a", "b"]
    assert got.runs[-1] == (Code.GROUPS_CLOSED, 10_000)
    assert not has_claimable(shard.state)
    assert opens_ms(shard.state) == shard.now + 10_000
    shard.now += 9_999
    assert claim(shard).runs == ((Code.GROUPS_CLOSED, 1),)
    shard.now += 1
    assert groups_of(claim(shard)) == ["a"]
    shard.now += 60_000
    shard.enqueue(1)
    assert groups_of(claim(shard)) == ["a", ""]


def test_a_claim_that_may_start_nothing_changes_nothing(shard: Shard) -> None:
    rated(shard, 1)
    shard.enqueue(3, group="a")
    claim(shard)
    before = shard.state
    for _ in range(3):
        shard.now += 1_000
        assert claim(shard).code == Code.GROUPS_CLOSED
    assert shard.state is before


def test_a_group_is_told_a_time_only_where_time_opens_it(shard: Shard) -> None:
    shard.apply(ChangeSettings(group_rate=(1, 60_000), group_running=1))
    shard.enqueue(2, group="a")
    (lease,) = claim(shard).leases
    assert claim(shard).runs == ((Code.GROUPS_CLOSED, 0),)  # it runs, whatever its rate says
    shard.apply(CompleteJobs((Completion(lease.job.key, lease.token),)))
    assert claim(shard).runs == ((Code.GROUPS_CLOSED, 60_000),)


def test_the_earliest_of_several_is_told_and_only_of_kinds_that_are_asked_for(shard: Shard) -> None:
    rated(shard, 1)
    shard.enqueue(2, group="a", kind="x")
    claim(shard)
    shard.now += 20_000
    shard.enqueue(2, group="b", kind="y")
    assert groups_of(claim(shard)) == ["b"]
    assert claim(shard).runs == ((Code.GROUPS_CLOSED, 40_000),)
    assert claim(shard, kinds=("y",)).runs == ((Code.GROUPS_CLOSED, 60_000),)
    assert claim(shard, kinds=("z",)).code == Code.EMPTY


# ── Rows ─────────────────────────────────────────────────────────────────────
def test_a_head_keeps_a_row_of_a_group_only_while_it_owes(shard: Shard) -> None:
    shard.enqueue(1, group="a")
    claim(shard)
    assert shard.state.starts is NO_STARTS
    assert b"starts" not in encode_head(shard.state)
    rated(shard, 1)
    shard.enqueue(3, group="a")
    claim(shard)
    assert shard.state.starts.groups == {group_digest("a"): (shard.now + 60_000) * 1_000}
    assert is_owed(shard.state.starts, shard.now)
    shard.now += 60_000
    shard.enqueue(1, group="b")
    claim(shard, 1)  # of "a" again
    claim(shard, 1)
    assert set(shard.state.starts.groups) == {group_digest("a"), group_digest("b")}
    shard.now += 60_000
    shard.apply(RunTimers())
    assert shard.state.starts is NO_STARTS


def test_a_row_takes_as_many_bytes_as_its_limit_says(shard: Shard) -> None:
    rated(shard, 1, 86_400_000)
    rows = {group_digest(f"g{at}"): (shard.now + at) * 1_000 for at in range(limits.GROUP_DEBTS_MAX)}
    full = encode_head(replace(shard.state, starts=Starts(groups=rows)))
    assert len(full) - len(encode_head(shard.state)) <= 20 * len(rows) + 40


def test_where_there_is_no_room_for_a_row_only_groups_with_one_start(shard: Shard) -> None:
    with limited({"GROUP_DEBTS_MAX": 2}):
        rated(shard, 1, 10_000, burst=2)
        for group in ("a", "b", "c"):
            shard.enqueue(3, group=group)
            shard.now += 1_000
        got = claim(shard)
        assert groups_of(got) == ["a", "a", "b", "b"]
        assert got.runs[-1] == (Code.GROUP_LIMIT, 10_000)
        assert claim(shard).code == Code.GROUP_LIMIT
        assert not has_claimable(shard.state)
        shard.now += 10_000
        assert groups_of(claim(shard)) == ["a", "b"]
        assert claim(shard).code == Code.GROUP_LIMIT
        shard.now += 20_000
        assert groups_of(claim(shard)) == ["c", "c"]


def test_groups_without_a_rate_need_no_room(shard: Shard) -> None:
    with limited({"GROUP_DEBTS_MAX": 1}):
        own = GroupChange("a", rate=(1, 60_000))
        shard.apply(ChangeSettings(group_running=0, groups=(own, GroupChange("d", rate=(1, 60_000)))))
        for group in ("a", "b", "d"):
            shard.enqueue(2, group=group)
        got = claim(shard)
        assert groups_of(got) == ["a", "b", "b"]
        assert got.runs[-1][0] == Code.GROUP_LIMIT


# ── Groups with settings of their own ────────────────────────────────────────
def test_a_group_has_a_rate_and_a_running_limit_of_its_own(shard: Shard) -> None:
    own = GroupChange("big", running=3, rate=(50, 60_000), burst=5)
    shard.apply(ChangeSettings(group_rate=(1, 60_000), groups=(own,)))
    shard.enqueue(9, group="big")
    shard.enqueue(9, group="small")
    got = claim(shard, 20)
    assert groups_of(got) == ["big"] * 3 + ["small"]
    done = tuple(Completion(lease.job.key, lease.token) for lease in got.leases)
    shard.apply(CompleteJobs(done))
    assert groups_of(claim(shard, 20)) == ["big"] * 2
    assert claim(shard).runs == ((Code.GROUPS_CLOSED, 1_200),)
    shard.apply(ChangeSettings(groups=(GroupChange("big", None, AS_THE_QUEUE, (0, 0), AS_THE_QUEUE),)))
    assert shard.state.settings.overrides == {}


def test_what_is_not_said_of_a_group_stays(shard: Shard) -> None:
    shard.apply(ChangeSettings(groups=(GroupChange("a", running=3),)))
    shard.apply(ChangeSettings(groups=(GroupChange("a", rate=(5, 1_000)),)))
    assert shard.state.settings.overrides == {"a": GroupSettings(3, (5, 1_000))}
    shard.apply(ChangeSettings(groups=(GroupChange("a", running=AS_THE_QUEUE),)))
    assert shard.state.settings.overrides == {"a": GroupSettings(None, (5, 1_000))}
    before = shard.state
    shard.apply(ChangeSettings(groups=(GroupChange("a", rate=(5, 1_000)),)))
    assert shard.state is before


def test_only_its_home_keeps_what_a_group_has_of_its_own(shard: Shard) -> None:
    shard.apply(ChangeSettings(shards=4, group_shards=4, shard=2))
    names = [f"g{at}" for at in range(20)]
    shard.apply(ChangeSettings(groups=tuple(GroupChange(name, running=2) for name in names)))
    assert set(shard.state.settings.overrides) == {name for name in names if home_of(name, 4) == 2}


def test_as_many_groups_have_settings_as_may_and_not_one_more(shard: Shard) -> None:
    many = tuple(GroupChange(f"g{at}", running=2) for at in range(limits.GROUP_SETTINGS_MAX))
    assert shard.apply(ChangeSettings(groups=many))[0].code == Code.OK
    assert shard.apply(ChangeSettings(groups=(GroupChange("x", running=2),)))[0].code == Code.CROWDED
    assert shard.apply(ChangeSettings(groups=(GroupChange("g1", running=3),)))[0].code == Code.OK


def test_a_group_that_is_not_in_order_by_itself_waits_for_none_of_its_jobs(shard: Shard) -> None:
    shard.apply(ChangeSettings(groups=(GroupChange("a", running=2),)))
    assert shard.state.settings.group_running_of("a") == 2
    assert shard.state.settings.group_running_of("b") == 1


# ── Changes, and new lives ───────────────────────────────────────────────────
def test_another_rate_owes_as_many_starts_as_before(shard: Shard) -> None:
    rated(shard, 1, 60_000, burst=4)
    shard.enqueue(50, group="a")
    assert len(claim(shard).leases) == 4
    rated(shard, 10, 1_000, burst=6)
    assert len(claim(shard).leases) == 2
    assert claim(shard).runs == ((Code.GROUPS_CLOSED, 100),)
    rated(shard, 0, 0)
    assert shard.state.starts is NO_STARTS


def test_a_head_that_was_restored_starts_with_empty_buckets(shard: Shard) -> None:
    rated(shard, 1, 10_000, burst=3)
    shard.enqueue(4, group="a")
    shard.state = replace(shard.state, starts=spent(shard.state.settings, shard.now))
    assert claim(shard).runs == ((Code.GROUPS_CLOSED, 10_000),)
    assert opens_ms(shard.state) is not None
    shard.now += 10_000
    assert len(claim(shard).leases) == 1
    assert claim(shard).code == Code.GROUPS_CLOSED
    shard.now += 40_000
    assert len(claim(shard).leases) == 3
    assert shard.state.starts.groups_us == 0


def test_what_is_owed_is_the_same_at_another_time(shard: Shard) -> None:
    rated(shard, 1, 10_000)
    shard.enqueue(2, group="a")
    claim(shard)
    ahead = reset_clock(shard.state, shard.now + 50_000, bytes(16))
    assert ahead.starts.groups == {group_digest("a"): (shard.now + 60_000) * 1_000}


# ── Against a log of every start ─────────────────────────────────────────────
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 32))
def test_no_window_has_more_starts_than_allowed_and_no_start_is_refused_without_need(seed: int) -> None:
    dice = random.Random(seed)
    starts, ms, burst = dice.choice((1, 3, 7)), dice.choice((1_000, 10_000)), dice.choice((1, 2, 5))
    known = QueueSettings(group_rate=(starts, ms), group_burst=burst)
    interval = -(-ms * 1000 // starts)
    owed, log, now = NO_STARTS, [], 1_000_000
    group = b"12345678"
    for _ in range(60):
        now += dice.choice((0, 0, 1, 100, ms // 3, ms))
        rates = GroupAllowance(known, owed, now)
        granted = group not in rates.spent()
        # A sliding log: at every past start the window up to now has room for one more.
        room = all(
            (len(log) - at + 1) * interval <= (now - first) * 1000 + burst * interval
            for at, first in enumerate(log)
        )
        assert granted == room
        if granted:
            rates.take(group)
            owed = rates.starts(owed)
            log.append(now)
