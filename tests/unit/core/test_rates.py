"""Rates: what may start, when, and what a claim that gets none is told."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue.core.claim_search import has_claimable, opens_ms
from osqueue.core.encoding import encode_head
from osqueue.core.job_ops import ClaimJobs, LeaseRef, ReleaseJobs
from osqueue.core.ops import Code, decode_outcomes, encode_outcomes, outcomes_bytes_max
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.core.rates import bucket_of, burst_of, is_owed, spent
from osqueue.core.restore import reset_clock
from osqueue.core.settings import KindSettings, QueueSettings
from osqueue.core.state import NO_STARTS, State
from osqueue.core.timers import has_due_timers
from tests.support.shard import Shard


@pytest.fixture
def shard() -> Shard:
    return Shard()


def claim(shard: Shard, limit: int = 10, kinds: tuple[str, ...] | None = None) -> Any:
    return shard.apply(ClaimJobs(limit, "ada", 30_000, kinds))[0]


def rated(shard: Shard, starts: int, ms: int = 1_000, burst: int = 0, **more: Any) -> None:
    shard.apply(ChangeSettings(rate=(starts, ms), burst=burst, **more))


def of_kinds(*rows: KindSettings) -> ChangeSettings:
    return ChangeSettings(kinds=rows)


def test_jobs_start_at_their_rate_and_a_burst_at_once(shard: Shard) -> None:
    rated(shard, 2, 1_000, burst=3)
    shard.enqueue(20)
    first = claim(shard)
    assert (len(first.leases), first.runs[-1]) == (3, (Code.RATE_LIMITED, 500))
    assert claim(shard).runs == ((Code.RATE_LIMITED, 500),)
    shard.now += 499
    assert claim(shard).runs == ((Code.RATE_LIMITED, 1),)
    shard.now += 1
    assert len(claim(shard).leases) == 1
    shard.now += 60_000
    assert len(claim(shard).leases) == 3  # a bucket holds no more than its burst


def test_a_claim_that_may_start_nothing_changes_nothing(shard: Shard) -> None:
    rated(shard, 1)
    shard.enqueue(5)
    assert len(claim(shard).leases) == 1
    before = shard.state
    for _ in range(3):
        shard.now += 100
        claim(shard)
    assert shard.state is before


def test_what_is_given_back_has_started_all_the_same(shard: Shard) -> None:
    rated(shard, 1)
    shard.enqueue(2)
    (lease,) = claim(shard).leases
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
    assert claim(shard).code == Code.RATE_LIMITED
    shard.now += 1_000
    assert claim(shard, 1).leases[0].job.key == lease.job.key


def test_a_kind_has_a_rate_of_its_own_and_holds_up_no_other(shard: Shard) -> None:
    shard.apply(of_kinds(KindSettings("send", rate=(1, 2_000))))
    shard.enqueue(3, kind="send", priority=0)
    shard.enqueue(2, kind="other")
    got = claim(shard)
    assert [lease.job.kind for lease in got.leases] == ["send", "other", "other"]
    assert got.runs[-1] == (Code.KINDS_RATE_LIMITED, 2_000)
    assert claim(shard, kinds=("other",)).code == Code.EMPTY
    shard.now += 2_000
    assert len(claim(shard).leases) == 1


def test_a_claim_of_a_thousand_takes_what_all_limits_leave(shard: Shard) -> None:
    rated(shard, 1_000, 1_000, burst=700, max_running=900)
    shard.apply(
        of_kinds(KindSettings("a", rate=(1_000, 1_000), burst=250), KindSettings("b", max_running=300))
    )
    for kind in ("a", "b", "c"):
        shard.enqueue(400, kind=kind)
    kinds = [lease.job.kind for lease in claim(shard, 1_000).leases]
    assert [kinds.count(kind) for kind in ("a", "b", "c")] == [250, 300, 150]


# ── All or none ──────────────────────────────────────────────────────────────
def test_nothing_is_charged_where_another_limit_refuses(shard: Shard) -> None:
    rated(shard, 1, 10_000, burst=5, max_running=1)
    shard.apply(of_kinds(KindSettings("send", rate=(1, 10_000), burst=5)))
    shard.enqueue(5, kind="send")
    (lease,) = claim(shard).leases
    owed = shard.state.starts
    for _ in range(4):
        assert claim(shard).code == Code.RUNNING_LIMIT
        assert shard.state.starts == owed
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
    assert len(claim(shard).leases) == 1
    assert shard.state.starts.tat_us - owed.tat_us == 10_000_000
    assert shard.state.starts.kinds[0][1] - owed.kinds[0][1] == 10_000_000


def test_a_kind_that_its_own_rate_holds_takes_nothing_of_the_queues(shard: Shard) -> None:
    rated(shard, 10, 1_000, burst=10)
    shard.apply(of_kinds(KindSettings("slow", rate=(1, 60_000)), KindSettings("still", paused=True)))
    shard.enqueue(5, kind="slow", priority=0)
    shard.enqueue(5, kind="still", priority=0)
    shard.enqueue(20, kind="other")
    kinds = [lease.job.kind for lease in claim(shard, 50).leases]
    assert (kinds.count("slow"), kinds.count("other"), kinds.count("still")) == (1, 9, 0)
    shard.now += 1_000
    assert [lease.job.kind for lease in claim(shard, 50).leases] == ["other"] * 10


def test_a_full_head_charges_only_what_it_granted(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osqueue.limits.LEASES_BYTES_MAX", 1_000)
    rated(shard, 1, 1_000, burst=100)
    shard.enqueue(50, payload=bytes(100))
    got = claim(shard, 50)
    assert got.runs[-1][0] == Code.IN_FLIGHT_LIMIT
    assert shard.state.starts.tat_us == (shard.now + len(got.leases) * 1_000) * 1_000


# ── When ─────────────────────────────────────────────────────────────────────
def test_whoever_waits_is_told_when_the_first_may_start(shard: Shard) -> None:
    shard.apply(
        of_kinds(
            KindSettings("a", rate=(1, 5_000)),
            KindSettings("b", rate=(1, 3_000)),
            KindSettings("c", paused_until_ms=-1_000),
            KindSettings("d", max_running=1),
        )
    )
    for kind in "abcd":
        shard.enqueue(2, kind=kind)
    assert claim(shard).runs[-1] == (Code.KINDS_RATE_LIMITED, 1_000)
    assert claim(shard, kinds=("a", "b")).runs == ((Code.KINDS_RATE_LIMITED, 3_000),)
    assert claim(shard, kinds=("a",)).runs == ((Code.KINDS_RATE_LIMITED, 5_000),)
    assert claim(shard, kinds=("c",)).runs == ((Code.KINDS_PAUSED, 1_000),)
    assert claim(shard, kinds=("d",)).runs == ((Code.RUNNING_LIMIT, 0),)
    assert opens_ms(shard.state, ("a", "b")) == shard.now + 3_000
    assert opens_ms(shard.state, ("d",)) is None
    assert not has_claimable(shard.state)


def test_a_queue_that_is_paused_and_rated_says_when_the_later_ends(shard: Shard) -> None:
    shard.apply(of_kinds(KindSettings("a", rate=(1, 5_000))))
    shard.enqueue(3, kind="a")
    claim(shard)
    shard.apply(of_kinds(KindSettings("a", paused_until_ms=-1_000)))
    assert claim(shard).runs == ((Code.KINDS_PAUSED, 5_000),)
    shard.apply(ChangeSettings(paused_until_ms=-7_000))
    assert claim(shard).runs == ((Code.PAUSED, 7_000),)


def test_a_clock_is_worth_asking_while_a_rate_is_owed_something(shard: Shard) -> None:
    rated(shard, 1)
    shard.enqueue(2)
    assert not has_due_timers(shard.state, shard.now + 5)
    claim(shard)
    assert has_due_timers(shard.state, shard.now + 5)
    shard.now += 1_000
    claim(shard)
    shard.now += 5_000
    shard.apply(RunTimers())
    shard.enqueue(1)
    assert not is_owed(shard.state.starts, shard.state.now_ms)


def test_time_that_stands_still_or_goes_back_starts_nothing(shard: Shard) -> None:
    rated(shard, 1)
    shard.enqueue(5)
    claim(shard)
    for _ in range(3):
        shard.now -= 100_000
        assert claim(shard).code == Code.RATE_LIMITED


def test_an_outcome_is_remembered_within_the_room_that_is_kept_for_it(shard: Shard) -> None:
    rated(shard, 1, 2_592_000_000)
    shard.enqueue(2)
    op = ClaimJobs(1_000, "ada", 30_000)
    (got,) = shard.apply(op)
    assert got.runs == ((Code.GRANTED, 1), (Code.RATE_LIMITED, 2_592_000_000))
    assert len(encode_outcomes([got])) <= outcomes_bytes_max([op])
    assert decode_outcomes(encode_outcomes([got]))[0].runs == got.runs


# ── Bytes ────────────────────────────────────────────────────────────────────
def test_a_head_without_rates_pays_nothing_and_one_with_a_rate_little(shard: Shard) -> None:
    bare = encode_head(State(commit=bytes(16), epoch=7))
    assert shard.state.starts is NO_STARTS
    rated(shard, 1)
    shard.enqueue(1)
    before = len(encode_head(shard.state))
    claim(shard)
    shard.apply(RunTimers())
    assert shard.state.starts is not NO_STARTS
    assert b"starts" not in bare
    assert len(encode_head(shard.state)) - before < 300  # with the lease
    shard.now += 1_000
    shard.enqueue(1)
    claim(shard)
    rated(shard, 0, 0)
    assert shard.state.starts is NO_STARTS


# ── Changes ──────────────────────────────────────────────────────────────────
def test_a_lower_rate_neither_gives_starts_away_nor_waits_for_those_of_before(shard: Shard) -> None:
    rated(shard, 100, 1_000, burst=50)
    shard.enqueue(200)
    assert len(claim(shard, 100).leases) == 50
    rated(shard, 1, 60_000, burst=2)
    assert claim(shard).runs == ((Code.RATE_LIMITED, 60_000),)
    shard.now += 60_000
    assert len(claim(shard).leases) == 1


def test_a_higher_rate_owes_as_many_starts_as_before(shard: Shard) -> None:
    rated(shard, 1, 60_000, burst=4)
    shard.enqueue(50)
    assert len(claim(shard).leases) == 4
    rated(shard, 10, 1_000, burst=6)
    assert len(claim(shard).leases) == 2
    assert claim(shard).runs == ((Code.RATE_LIMITED, 100),)


def test_repeating_a_setting_changes_nothing(shard: Shard) -> None:
    rated(shard, 1, 60_000)
    shard.enqueue(2)
    claim(shard)
    before = shard.state
    rated(shard, 1, 60_000)
    assert shard.state is before


def test_a_rate_that_is_lifted_is_forgotten_with_its_kind(shard: Shard) -> None:
    shard.apply(of_kinds(KindSettings("a", rate=(1, 60_000))))
    shard.enqueue(5, kind="a")
    claim(shard)
    shard.apply(of_kinds(KindSettings("a", rate=(0, 0))))
    assert shard.state.settings.kinds == ()
    assert shard.state.starts is NO_STARTS
    assert len(claim(shard).leases) == 4


def test_a_head_that_was_restored_starts_with_empty_buckets() -> None:
    row = QueueSettings(rate=(1, 1_000), burst=5, kinds=(KindSettings("a", rate=(2, 1_000)),))
    starts = spent(row, 1_000)
    assert (starts.tat_us, starts.kinds) == (6_000_000, (("a", 2_000_000),))
    assert spent(QueueSettings(), 1_000) is NO_STARTS


def test_what_is_owed_stays_when_the_clock_is_set_anew(shard: Shard) -> None:
    rated(shard, 1, 60_000)
    shard.apply(ChangeSettings(paused_until_ms=-5_000))
    shard.apply(ChangeSettings(kinds=(KindSettings("a", paused_until_ms=-9_000),)))
    shard.apply(ChangeSettings(paused=False))
    shard.enqueue(2)
    claim(shard)
    old = shard.now
    shard.state = reset_clock(shard.state, old - 10**9, bytes(16))
    shard.now = old - 10**9
    assert claim(shard).runs == ((Code.RATE_LIMITED, 60_000),)
    assert shard.state.settings.kinds[0].paused_until_ms == shard.now + 9_000


# ── Shares ───────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("shards", [1, 3, 8, 64])
@pytest.mark.parametrize("rate", [(50, 1_000), (1, 60_000), (7, 300), (1_000_000, 1)])
@pytest.mark.parametrize("burst", [0, 1, 5, 100])
def test_shards_together_have_the_rate_and_the_burst(shards: int, rate: tuple[int, int], burst: int) -> None:
    found = [
        bucket_of(
            QueueSettings(rate=rate, burst=burst, shards=shards, shard=at),
            QueueSettings(shards=shards, shard=at),
        )
        for at in range(shards)
    ]
    starts, ms = rate
    assert all(each is not None and each.interval_us * starts >= ms * 1_000 * shards for each in found)
    assert sum(each.burst for each in found if each is not None) <= max(burst_of(rate, burst), shards)


# ── Against a log ────────────────────────────────────────────────────────────
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 5), st.sampled_from((300, 1_000)), st.integers(0, 4))
def test_in_any_window_no_more_start_than_the_bound(seed: int, starts: int, ms: int, burst: int) -> None:
    dice = random.Random(seed)
    shard = Shard(checked=False)
    rated(shard, starts, ms, burst)
    shard.apply(of_kinds(KindSettings("a", rate=(1, 400), burst=2)))
    log: list[tuple[int, str]] = []
    for _ in range(60):
        shard.now += dice.choice((0, 1, 50, 333, 2_000))
        if dice.random() < 0.6:
            shard.enqueue(dice.randint(1, 4), kind=dice.choice("ab"))
        log += [(shard.now, lease.job.kind) for lease in claim(shard, dice.randint(1, 5)).leases]
    for kind, interval, most in ((None, ms / starts, burst_of((starts, ms), burst)), ("a", 400, 2)):
        times = [at for at, each in log if kind in (None, each)]
        for first, since in enumerate(times):
            for last in range(first, len(times)):
                assert last - first + 1 <= (times[last] - since) / interval + most + 1e-9
