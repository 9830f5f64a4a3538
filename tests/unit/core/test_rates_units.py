"""Units: a job counts as several starts of the rates of its queue, its kind and its group, and as one among those that
run."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue import limits
from osqueue.core.claim_search import opens_ms
from osqueue.core.encoding import encode
from osqueue.core.job_ops import ClaimJobs, LeaseRef, ReleaseJobs
from osqueue.core.ops import Code, encode_outcomes, outcomes_bytes_max
from osqueue.core.queue_ops import ChangeSettings, GroupChange
from osqueue.core.rates import WAIT_MS_MAX, burst_of
from osqueue.core.settings import KindSettings
from osqueue.core.state import JobRecord
from tests.support.shard import Shard

LARGEST = 5


@pytest.fixture
def shard() -> Shard:
    return Shard()


def claim(shard: Shard, limit: int = 10, kinds: tuple[str, ...] | None = None) -> Any:
    return shard.apply(ClaimJobs(limit, "ada", 600_000, kinds))[0]


def units_of(outcome: Any) -> list[int]:
    return [lease.job.units for lease in outcome.leases]


def rated(shard: Shard, starts: int, ms: int = 1_000, burst: int = 0, **more: Any) -> None:
    shard.apply(ChangeSettings(rate=(starts, ms), burst=burst, **more))


def test_a_job_of_many_units_starts_and_keeps_back_those_behind_it(shard: Shard) -> None:
    rated(shard, 1, 1_000, burst=2)
    shard.enqueue(1, units=5)
    shard.enqueue(4)
    got = claim(shard)
    assert (units_of(got), got.runs[-1]) == ([5], (Code.RATE_LIMITED, 4_000))
    assert opens_ms(shard.state) == shard.now + 4_000
    shard.now += 3_999
    assert claim(shard).runs == ((Code.RATE_LIMITED, 1),)
    shard.now += 1
    assert units_of(claim(shard)) == [1]
    shard.now += 60_000
    assert units_of(claim(shard)) == [1, 1]


def test_a_claim_of_many_counts_the_units_of_each(shard: Shard) -> None:
    rated(shard, 10, 1_000, burst=10)
    shard.enqueue(10, units=3)
    got = claim(shard, 8)
    assert (units_of(got), got.runs[-1]) == ([3] * 4, (Code.RATE_LIMITED, 300))
    assert shard.state.starts.tat_us == (shard.now + 1_200) * 1_000


def test_a_kind_and_the_queue_are_charged_alike(shard: Shard) -> None:
    rated(shard, 10, 1_000, burst=10, kinds=(KindSettings("send", rate=(1, 1_000), burst=3),))
    shard.enqueue(3, kind="send", units=4, priority=0)
    shard.enqueue(9, kind="other")
    got = claim(shard, 20)
    assert (units_of(got), got.runs[-1]) == ([4, 1, 1, 1, 1, 1, 1], (Code.RATE_LIMITED, 100))
    shard.now += 1_999
    assert claim(shard, kinds=("send",)).runs == ((Code.KINDS_RATE_LIMITED, 1),)
    shard.now += 1
    assert units_of(claim(shard, kinds=("send",))) == [4]


def test_a_group_is_charged_by_the_queues_rate_of_groups_or_by_its_own(shard: Shard) -> None:
    own = GroupChange("big", rate=(1, 1_000), burst=6)
    shard.apply(ChangeSettings(group_rate=(1, 1_000), group_running=0, groups=(own,)))
    for group in ("big", "small"):
        shard.enqueue(4, group=group, units=3)
    got = claim(shard)
    assert [lease.job.group for lease in got.leases] == ["big", "big", "small"]
    assert got.runs[-1] == (Code.GROUPS_CLOSED, 1_000)
    shard.now += 1_000
    assert [lease.job.group for lease in claim(shard).leases] == ["big"]
    shard.now += 2_000
    assert [lease.job.group for lease in claim(shard).leases] == ["small"]
    shard.now += 1_000
    assert [lease.job.group for lease in claim(shard).leases] == ["big"]


def test_what_runs_is_counted_in_jobs(shard: Shard) -> None:
    shard.apply(
        ChangeSettings(
            max_running=3,
            group_running=2,
            kinds=(KindSettings("send", max_running=2),),
        )
    )
    shard.enqueue(3, kind="send", units=9)
    assert units_of(claim(shard)) == [9, 9]
    other = Shard()
    other.apply(ChangeSettings(max_running=3, group_running=2))
    other.enqueue(3, group="a", units=9)
    other.enqueue(3, units=9)
    assert sorted(lease.job.group for lease in claim(other).leases) == ["", "a", "a"]


def test_a_job_that_starts_again_counts_its_units_again(shard: Shard) -> None:
    rated(shard, 1, 1_000)
    shard.enqueue(1, units=3)
    (lease,) = claim(shard).leases
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
    assert claim(shard).runs == ((Code.RATE_LIMITED, 3_000),)
    shard.now += 3_000
    assert units_of(claim(shard)) == [3]
    assert shard.state.starts.tat_us == (shard.now + 3_000) * 1_000


# ── Changes ──────────────────────────────────────────────────────────────────
def test_what_units_owe_beyond_a_burst_stays_owed_when_the_rate_changes(shard: Shard) -> None:
    rated(shard, 1, 1_000, burst=2)
    shard.enqueue(1, units=12)
    shard.enqueue(5)
    assert units_of(claim(shard)) == [12]
    before = shard.state
    rated(shard, 1, 1_000, burst=2)
    assert shard.state is before
    rated(shard, 10, 1_000, burst=2)  # ten times as fast: 12 units, of which the burst has room for one
    assert claim(shard).runs == ((Code.RATE_LIMITED, 1_100),)
    rated(shard, 10, 1_000, burst=1)  # no more than a burst is owed for what was within one, and the rest
    assert claim(shard).runs == ((Code.RATE_LIMITED, 1_100),)
    rated(shard, 0, 0)
    assert len(claim(shard).leases) == 5


def test_another_rate_of_groups_owes_the_units_as_well(shard: Shard) -> None:
    shard.apply(ChangeSettings(group_rate=(1, 1_000), group_running=0))
    shard.enqueue(1, group="a", units=20)
    shard.enqueue(1, group="a")
    claim(shard)
    shard.apply(ChangeSettings(group_rate=(1, 2_000)))
    assert claim(shard).runs == ((Code.GROUPS_CLOSED, 40_000),)


# ── At the bounds ────────────────────────────────────────────────────────────
def test_the_longest_debt_is_kept_and_told_within_its_room(shard: Shard) -> None:
    shard.apply(ChangeSettings(shards=64, shard=0))
    rated(shard, 1, limits.RATE_MS_MAX, burst=limits.RATE_BURST_MAX, group_running=0)
    shard.apply(ChangeSettings(group_rate=(1, limits.RATE_MS_MAX)))
    burst = -(-limits.RATE_BURST_MAX // 64)
    units = limits.JOB_UNITS_MAX
    shard.enqueue(burst // units + 2, units=units, payload=b"")
    shard.enqueue(1, units=units, group="g63", payload=b"")
    while claim(shard, 1).leases:
        pass
    op = ClaimJobs(1_000, "ada", 30_000)
    (got,) = shard.apply(op)
    assert got.runs == ((Code.RATE_LIMITED, WAIT_MS_MAX),)
    assert len(encode_outcomes([got])) <= outcomes_bytes_max([op])


def test_a_job_of_one_unit_takes_one_byte_for_it() -> None:
    (*others, last) = JobRecord.__struct_fields__
    assert last == "units"
    row = JobRecord(bytes(16), b"1", 0)
    assert encode(row)[3:-1] == b"".join(encode(getattr(row, name)) for name in others)


# ── Against a log ────────────────────────────────────────────────────────────
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 5), st.sampled_from((300, 1_000)), st.integers(0, 4))
def test_in_any_window_no_more_units_start_than_the_bound(
    seed: int, starts: int, ms: int, burst: int
) -> None:
    dice = random.Random(seed)
    shard = Shard(checked=False)
    rated(shard, starts, ms, burst, kinds=(KindSettings("a", rate=(1, 400), burst=2),))
    shard.apply(ChangeSettings(group_rate=(2, 1_000), group_burst=1, group_running=0))
    log: list[tuple[int, JobRecord]] = []
    for _ in range(60):
        shard.now += dice.choice((0, 1, 50, 333, 2_000))
        if dice.random() < 0.6:
            shard.enqueue(
                dice.randint(1, 4),
                kind=dice.choice("ab"),
                group=dice.choice(("", "", "g")),
                units=dice.choice((1, 1, 2, LARGEST)),
            )
        log += [(shard.now, lease.job) for lease in claim(shard, dice.randint(1, 5)).leases]
    assert log
    for interval, most, mine in (
        (ms / starts, burst_of((starts, ms), burst), log),
        (400, 2, [each for each in log if each[1].kind == "a"]),
        (500, 1, [each for each in log if each[1].group]),
    ):
        for first, (since, _) in enumerate(mine):
            units = 0
            for at, job in mine[first:]:
                units += job.units
                assert units <= (at - since) / interval + most + job.units - 1 + 1e-9
