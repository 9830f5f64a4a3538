"""Slots lent to shards: when one may be used, how many a shard gets, and what all shards start together."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue.core.claim_search import has_claimable, opens_ms
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs
from osqueue.core.lending import (
    AHEAD_US,
    BORROWED_MS,
    BORROWERS_MAX,
    LIFE_US_MIN,
    RUNS_MAX,
    alive,
    borrowers_of,
    deposited,
    life_us,
    runs_of,
    share_of_block,
)
from osqueue.core.ops import Code, Outcome
from osqueue.core.queue_ops import ChangePacer, ChangeSettings, ReserveSlots, RunTimers
from osqueue.core.rates import is_owed
from osqueue.core.rows import Lent, LentRun
from osqueue.core.settings import KindSettings
from osqueue.core.state import NO_STARTS, PacerRow
from tests.support.machines import NOON_MS
from tests.support.shard import Shard

SECOND = 1_000_000


def at(ms: int) -> int:
    """A moment so many ms after noon."""
    return (NOON_MS + ms) * 1000


def some(*runs: tuple[int, int, int], epoch: int = 1, life: int = SECOND) -> Lent:
    return Lent("api", epoch, tuple([LentRun(at(ms), interval, count, life) for ms, interval, count in runs]))


@pytest.fixture
def shard() -> Shard:
    """With jobs, and a limiter that has lent nothing yet."""
    found = Shard()
    found.apply(ChangeSettings(limiter="api"))
    found.apply(EnqueueJobs(tuple([found.new() for _ in range(40)])))
    return found


def claim(shard: Shard, limit: int = 10, lent: Lent | None = None, kinds: Any = None) -> Outcome:
    return shard.apply(ClaimJobs(limit, "ada", 10**9, kinds, lent))[0]


def limiter(interval_us: int = 20_000, burst: int = 1) -> Shard:
    found = Shard()
    found.apply(ChangePacer(PacerRow(interval_us, burst, epoch=1)))
    return found


def reserve(lender: Shard, count: int, borrower: bytes = b"a", lead_ms: int = 0) -> tuple[LentRun, ...]:
    outcome = lender.apply(ReserveSlots(count, 1, AHEAD_US, lead_ms * 1000, borrower=borrower))[0]
    assert outcome.code in (Code.RESERVED, Code.TOO_FAR)
    (_, given_), (_, base), (start, _), (interval, burst) = outcome.runs
    return runs_of(start, base, interval, burst, given_)


# ── A shard ──────────────────────────────────────────────────────────────────
def test_without_slots_a_claim_says_how_many_it_wants_and_writes_nothing(shard: Shard) -> None:
    before = shard.state
    assert claim(shard).runs == ((Code.NO_SLOTS, 10),)
    assert claim(shard, 99).runs == ((Code.NO_SLOTS, 40),)
    assert shard.state is before
    assert has_claimable(shard.state)


def test_nothing_is_wanted_where_nothing_could_start_otherwise(shard: Shard) -> None:
    assert claim(shard, kinds=("none",)).code == Code.EMPTY
    shard.apply(ChangeSettings(kinds=(KindSettings("", paused=True),)))
    assert claim(shard).code == Code.KINDS_PAUSED
    shard.apply(ChangeSettings(kinds=(KindSettings("", paused=False, rate=(1, 60_000)),)))
    assert len(claim(shard, lent=some((0, 0, 9))).leases) == 1
    shard.now += 2_000
    assert claim(shard).code == Code.KINDS_RATE_LIMITED


def test_a_start_uses_up_a_slot_whose_moment_has_come(shard: Shard) -> None:
    got = claim(shard, lent=some((0, 0, 2), (100, 100_000, 3)))
    assert (len(got.leases), got.runs[-1]) == (2, (Code.RATE_LIMITED, 100))
    before = shard.state
    assert claim(shard).runs == ((Code.RATE_LIMITED, 100),)
    assert shard.state is before
    assert not has_claimable(shard.state)
    assert opens_ms(shard.state) == shard.now + 100
    shard.now += 250
    assert len(claim(shard).leases) == 2
    shard.now += 50
    assert len(claim(shard).leases) == 1
    assert claim(shard).code == Code.NO_SLOTS


def test_a_slot_dies(shard: Shard) -> None:
    assert claim(shard, lent=some((500, 0, 3))).code == Code.RATE_LIMITED
    shard.now += 1_499
    assert len(claim(shard, 1).leases) == 1
    shard.now += 1
    assert claim(shard).code == Code.NO_SLOTS


def test_slots_that_come_too_late_are_void(shard: Shard) -> None:
    shard.now += 5_000
    assert claim(shard, lent=some((0, 0, 3))).code == Code.NO_SLOTS


def test_all_limits_are_taken_together_or_none(shard: Shard) -> None:
    shard.apply(ChangeSettings(max_running=2))
    assert len(claim(shard, lent=some((0, 0, 5))).leases) == 2
    assert shard.state.starts.lent is not None
    assert sum(run.count for run in shard.state.starts.lent.runs) == 3
    before = shard.state
    assert claim(shard).code == Code.RUNNING_LIMIT
    assert shard.state is before


def test_slots_of_another_limiter_are_not_taken_in_and_those_of_another_epoch_are_let_go(
    shard: Shard,
) -> None:
    assert claim(shard, lent=Lent("other", 1, some((0, 0, 5)).runs)).code == Code.NO_SLOTS
    assert claim(shard, 1, lent=some((0, 0, 5))).code == Code.GRANTED
    assert claim(shard, 9, lent=some((0, 0, 2), epoch=2)).count == 2
    assert claim(shard, 1, lent=some((0, 0, 5), epoch=2)).code == Code.GRANTED
    shard.apply(ChangeSettings(limiter="other"))
    shard.apply(ChangeSettings(limiter="api"))
    assert claim(shard).code == Code.NO_SLOTS


def test_without_its_limiter_everything_starts_and_nothing_is_kept(shard: Shard) -> None:
    claim(shard, 1, lent=some((0, 0, 5)))
    shard.apply(ChangeSettings(limiter=""))
    assert shard.state.starts is NO_STARTS
    assert len(claim(shard, 39).leases) == 39


def test_a_reap_drops_slots_that_are_over(shard: Shard) -> None:
    claim(shard, 1, lent=some((0, 0, 5)))
    shard.now += 999
    shard.apply(RunTimers())
    assert shard.state.starts is not NO_STARTS
    shard.now += 1
    shard.apply(RunTimers())
    assert shard.state.starts is NO_STARTS


def test_a_shard_asks_for_more_when_it_used_all_and_for_less_when_it_did_not(shard: Shard) -> None:
    assert claim(shard, 3, lent=some((0, 0, 3))).count == 3
    assert claim(shard, 1).runs == ((Code.NO_SLOTS, 6),)
    assert claim(shard, 2, lent=some((0, 0, 6))).count == 2
    shard.now += 1_000
    assert claim(shard, 1).runs == ((Code.NO_SLOTS, 2),)


def test_no_more_is_wanted_than_the_other_limits_of_the_queue_let_start(shard: Shard) -> None:
    """What it may not use it would take from others who share the limiter."""
    shard.apply(ChangeSettings(max_running=3))
    assert claim(shard).runs == ((Code.NO_SLOTS, 3),)
    shard.apply(ChangeSettings(rate=(2, 60_000), burst=2))
    assert claim(shard).runs == ((Code.NO_SLOTS, 2),)
    assert claim(shard, lent=some((0, 0, 2))).count == 2
    assert claim(shard).code == Code.RATE_LIMITED


def test_a_head_keeps_so_many_runs() -> None:
    lent = some(*[(each, 0, 1) for each in range(100)])
    assert len(deposited(None, lent, at(0)).runs) == RUNS_MAX


# ── Units ────────────────────────────────────────────────────────────────────
def of_units(*units: int) -> Shard:
    found = Shard()
    found.apply(ChangeSettings(limiter="api"))
    found.apply(EnqueueJobs(tuple([found.new(units=each) for each in units])))
    return found


def owed(shard: Shard) -> int:
    lent = shard.state.starts.lent
    return 0 if lent is None else lent.owed


def test_a_job_uses_as_many_slots_as_it_has_units() -> None:
    shard = of_units(3, 3, 1)
    assert len(claim(shard, lent=some((0, 0, 6))).leases) == 2
    assert owed(shard) == 0
    assert claim(shard).runs == ((Code.NO_SLOTS, 1),)


def test_a_job_starts_where_one_slot_is_left_and_its_shard_owes_the_rest() -> None:
    shard = of_units(5, 1, 1, 1)
    got = claim(shard, lent=some((0, 0, 2)))
    assert (len(got.leases), owed(shard), got.runs[-1]) == (1, 3, (Code.NO_SLOTS, 6))
    assert claim(shard, lent=some((0, 0, 2))).runs == ((Code.NO_SLOTS, 4),)
    assert owed(shard) == 1
    assert len(claim(shard, lent=some((0, 0, 2))).leases) == 1
    assert owed(shard) == 0


def test_slots_to_come_pay_when_they_come_and_a_claim_is_told_when_the_first_that_is_free_does() -> None:
    shard = of_units(4, 1, 1, 1, 1, 1, 1)
    got = claim(shard, lent=some((0, 0, 1), (100, 100_000, 5)))
    assert (len(got.leases), owed(shard), got.runs[-1]) == (1, 3, (Code.RATE_LIMITED, 400))
    shard.now += 399
    before = shard.state
    assert claim(shard).runs == ((Code.RATE_LIMITED, 1),)
    assert shard.state is before
    shard.now += 1
    assert len(claim(shard).leases) == 1
    assert owed(shard) == 0


def test_slots_that_died_unused_have_paid_as_well() -> None:
    shard = of_units(4, 1)
    assert len(claim(shard, lent=some((0, 0, 1), (500, 0, 2))).leases) == 1
    shard.now += 60_000
    shard.apply(RunTimers())
    assert owed(shard) == 1
    assert claim(shard).runs == ((Code.NO_SLOTS, 2),)


def test_what_is_owed_lasts_at_rest_and_asks_for_no_clock() -> None:
    shard = of_units(9)
    claim(shard, lent=some((0, 0, 1)))
    shard.now += 10**9
    shard.apply(RunTimers())
    assert owed(shard) == 8
    assert not is_owed(shard.state.starts, shard.now)


def test_a_limiter_that_was_reset_or_let_go_is_owed_nothing() -> None:
    shard = of_units(9, 1, 1)
    claim(shard, lent=some((0, 0, 1)))
    assert len(claim(shard, 1, lent=some((0, 0, 1), epoch=2)).leases) == 1
    other = of_units(9, 1)
    claim(other, lent=some((0, 0, 1)))
    other.apply(ChangeSettings(limiter=""))
    assert other.state.starts is NO_STARTS


# ── The limiter ──────────────────────────────────────────────────────────────
def test_each_borrower_gets_its_share_of_a_second() -> None:
    lender = limiter()
    assert sum(run.count for run in reserve(lender, 99, b"a")) == 50
    lender.now += 500
    assert sum(run.count for run in reserve(lender, 99, b"b")) == 25
    assert sum(run.count for run in reserve(lender, 3, b"b")) == 3
    lender.now += BORROWED_MS
    assert sum(run.count for run in reserve(lender, 99, b"c")) == 50


def test_nothing_is_lent_too_far_ahead_and_such_a_question_writes_nothing() -> None:
    lender = limiter()
    for _ in range(2):
        assert reserve(lender, 50)
    before = lender.state
    assert reserve(lender, 50) == ()
    assert lender.state is before
    lender.now += 1_000
    (run,) = reserve(lender, 50)
    assert run.at_us == lender.now * 1000 + AHEAD_US


def test_slots_are_lent_for_when_they_can_be_deposited() -> None:
    lender = limiter(interval_us=100_000, burst=3)
    (run,) = reserve(lender, 2, lead_ms=700)
    assert (run.at_us, run.interval_us, run.count) == (at(700), 0, 2)
    first, then = reserve(lender, 3, lead_ms=700)
    assert (first.at_us, first.count, then.at_us, then.count) == (at(700), 1, at(800), 2)
    (run,) = reserve(lender, 1)
    assert run.at_us == at(1_000)
    assert reserve(lender, 1, lead_ms=1_000) == ()


def test_a_burst_is_lent_at_once() -> None:
    lender = limiter(interval_us=1_000_000, burst=10)
    first, second = reserve(lender, 12)[0], reserve(lender, 12)
    assert (first.at_us, first.interval_us, first.count, first.life_us) == (at(0), 0, 10, 10 * SECOND)
    (run,) = second
    assert (run.at_us, run.count) == (at(1_000), 1)


def test_a_paused_limiter_lends_nothing() -> None:
    lender = limiter()
    lender.apply(ChangePacer(paused=True, rest_ms=2_000))
    before = lender.state
    assert lender.apply(ReserveSlots(5, 1, AHEAD_US, borrower=b"a"))[0].code == Code.PAUSED
    assert lender.state is before
    lender.now += 60_000
    lender.apply(ChangePacer(paused=False))
    assert reserve(lender, 5) == ()  # it stands still for two seconds more
    lender.now += 1_000
    (run,) = reserve(lender, 5)
    assert run.at_us >= lender.now * 1000


def test_a_missing_limiter_lends_nothing() -> None:
    assert Shard().apply(ReserveSlots(5, 1, AHEAD_US, borrower=b"a"))[0].code == Code.NOT_FOUND


def test_so_many_borrowers_are_counted() -> None:
    known: dict[bytes, int] = {}
    for each in range(BORROWERS_MAX + 50):
        known = borrowers_of(known, each.to_bytes(2, "big"), each)
    assert len(known) == BORROWERS_MAX
    assert share_of_block(SECOND, 1, 1_000) == 1


# ── Both: the bound ──────────────────────────────────────────────────────────
@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**9),
    st.sampled_from((20_000, 150_000, 700_000, 3_000_000)),
    st.sampled_from((1, 1, 4, 30)),
    st.integers(1, 4),
    st.sampled_from((0, 400, 5_000)),
    st.sampled_from((1, 1, 7)),
)
def test_shards_together_start_no_more_than_the_bound(
    seed: int, interval: int, burst: int, shards: int, skew_ms: int, units: int
) -> None:
    """Clocks differ, and blocks are lost, late or deposited in the wrong order."""
    dice = random.Random(seed)
    lender, borrowers = limiter(interval, burst), [Shard(checked=False) for _ in range(shards)]
    skews = [dice.randint(-skew_ms, 0) for _ in range(shards)]
    for each in borrowers:
        each.apply(ChangeSettings(limiter="api"))
        each.apply(EnqueueJobs(tuple([each.new(units=dice.choice((1, units))) for _ in range(400)])))
    true, late, log = NOON_MS, [], []  # the log: by true time, and by the heads'
    for _ in range(120):
        true += dice.choice((0, 5, 20, 300, 1_500))
        lender.now = max(lender.now, true + dice.choice((0, dice.randint(-300, 300))))
        number = dice.randrange(shards)
        one = borrowers[number]
        one.now = max(one.now, true + skews[number])
        answer, lent = claim(one, dice.randint(1, 30)), None
        if answer.code == Code.NO_SLOTS:
            lent = Lent("api", 1, reserve(lender, answer.count, bytes([number]), dice.choice((0, 700))))
            roll = dice.random()
            if roll < 0.2:  # its claimer dies, or comes later
                late.append(lent)
                continue
        elif late and dice.random() < 0.5:
            lent = late.pop(dice.randrange(len(late)))
        if lent is not None:
            answer = claim(one, dice.randint(1, 30), lent)
        for lease in answer.leases:
            log += [(true, one.now)] * lease.job.units
    life = life_us(interval, burst)
    spread = max((now - then for then, now in log), default=0) - min(
        (now - then for then, now in log), default=0
    )
    for which, error_us in ((1, 0), (0, spread * 1000)):
        times = sorted(each[which] for each in log)
        for first in range(len(times)):
            for last in range(first, len(times)):
                window = (times[last] - times[first]) * 1000 + error_us
                assert (last - first + 1 - burst - shards * (units - 1)) * interval < window + life
    assert life >= LIFE_US_MIN


@given(
    st.integers(1, 3_000_000),
    st.integers(1, 50),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    st.integers(0, 60),
)
def test_runs_are_the_moments_of_the_slots(
    interval: int, burst: int, start: int, owed: int, count: int
) -> None:
    base = start + owed
    runs = runs_of(start, base, interval, burst, count)
    found = [run.at_us + each * run.interval_us for run in runs for each in range(run.count)]
    assert found == [max(start, base + each * interval - (burst - 1) * interval) for each in range(count)]


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 60), st.integers(0, 10**7))
def test_what_is_alive_is_what_is_younger_than_its_life(
    first: int, interval: int, count: int, now: int
) -> None:
    run = LentRun(first, interval, count, LIFE_US_MIN)
    moments = [first + each * interval for each in range(count)]
    left = [run.at_us + each * run.interval_us for run in alive((run,), now) for each in range(run.count)]
    assert left == [each for each in moments if now < each + LIFE_US_MIN]
