"""Slots of a pacer: how far apart they are, how many there are in any window, and what a pause does to them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue.commit.coalesce import coalesced, runs_of, split_outcomes
from osqueue.core.encoding import decode_head, encode, encode_head
from osqueue.core.ops import Code, Op, Outcome, decode_outcomes, encode_outcomes, outcomes_bytes_max
from osqueue.core.pacing import REMOTE_REST_MS, Slot, ahead, head_us, next_us, own_us, slot_of
from osqueue.core.queue_ops import ChangePacer, ReserveSlots, ReturnSlot
from osqueue.core.state import NO_PACER, PacerRow
from tests.support.machines import NOON_MS
from tests.support.shard import Shard

INTERVAL = 100_000  # microseconds
NOON_US = NOON_MS * 1000
DAY_US = 86_400_000_000


def pacer(interval_us: int = INTERVAL, burst: int = 1) -> Shard:
    """A head with a pacer."""
    shard = Shard()
    shard.apply(ChangePacer(PacerRow(interval_us, burst, epoch=5)))
    return shard


def ask(shard: Shard, op: Op) -> Outcome:
    """One operation, by somebody of their own."""
    (found,) = shard.apply(op)
    return found


def reserve(shard: Shard, units: int = 1, ahead_us: int = DAY_US, lead_us: int = 0) -> Slot:
    """A slot."""
    op = ReserveSlots(1, units, ahead_us, lead_us)
    found = ask(shard, op)
    assert found.code == Code.RESERVED
    return slot_of(op, found)


def at(slot: Slot) -> int:
    """When it is, in microseconds after noon."""
    return slot.at_us - NOON_US


def test_slots_are_one_interval_apart_whatever_time_they_are_asked_for() -> None:
    shard = pacer()
    first, second = reserve(shard), reserve(shard)
    shard.now += 150
    third = reserve(shard)
    shard.now += 1_000
    fourth = reserve(shard)
    assert [at(each) for each in (first, second, third, fourth)] == [0, 100_000, 200_000, 1_150_000]
    assert [each.number for each in (first, second, third, fourth)] == [1, 2, 3, 4]


def test_a_slot_is_not_before_its_answer_can_be_there() -> None:
    shard = pacer()
    assert at(reserve(shard, lead_us=30_000)) == 30_000
    assert at(reserve(shard, lead_us=30_000)) == 130_000  # it is far enough ahead by itself


def test_a_burst_gives_so_many_slots_at_once_and_then_one_an_interval() -> None:
    shard = pacer(burst=3)
    assert [at(reserve(shard)) for _ in range(5)] == [0, 0, 0, 100_000, 200_000]


def test_units_cost_as_many_slots() -> None:
    shard = pacer(burst=3)
    assert [at(reserve(shard, units)) for units in (3, 2, 1)] == [0, 200_000, 300_000]


def test_more_units_than_the_burst_are_never_given() -> None:
    shard = pacer(burst=3)
    before = shard.state
    assert ask(shard, ReserveSlots(1, 4, DAY_US)).runs[0] == (Code.TOO_FAR, 0)
    assert shard.state.pacer == before.pacer


def test_a_slot_too_far_ahead_is_not_taken_and_its_time_is_told() -> None:
    shard = pacer()
    for _ in range(3):
        reserve(shard, ahead_us=200_000)
    before = shard.state.pacer
    op = ReserveSlots(1, 1, 200_000)
    refused = ask(shard, op)
    assert refused.code == Code.TOO_FAR
    assert at(slot_of(op, refused)) == 300_000
    assert shard.state.pacer == before
    shard.now += 100
    assert at(reserve(shard, ahead_us=200_000)) == 300_000


def test_who_would_not_wait_at_all_takes_what_is_free_now() -> None:
    shard = pacer()
    assert at(reserve(shard, ahead_us=0, lead_us=20_000)) == 20_000
    assert ask(shard, ReserveSlots(1, 1, 0, 20_000)).code == Code.TOO_FAR


def test_the_latest_slot_is_given_back_once_and_its_number_is_not_given_again() -> None:
    shard = pacer()
    first, second = reserve(shard), reserve(shard)
    assert ask(shard, ReturnSlot(first.number, 1, 5)).code == Code.NOT_FOUND
    assert ask(shard, ReturnSlot(second.number, 1, 4)).code == Code.NOT_FOUND  # of another epoch
    assert ask(shard, ReturnSlot(second.number, 1, 5)).code == Code.OK
    assert ask(shard, ReturnSlot(second.number, 1, 5)).code == Code.NOT_FOUND
    again = reserve(shard)
    assert again.number > second.number
    assert again.at_us == second.at_us


def test_a_slot_that_was_not_taken_so_is_not_given_back() -> None:
    shard = pacer(burst=3)
    second = [reserve(shard, units=2) for _ in range(2)][-1]
    before = shard.state.pacer
    for units in (1, 3):
        assert ask(shard, ReturnSlot(second.number, units, 5)).code == Code.NOT_FOUND
    assert shard.state.pacer == before
    assert ask(shard, ReturnSlot(second.number, 2, 5)).code == Code.OK
    given = shard.state.pacer
    for number in range(second.number, second.number + 3):  # its own, and numbers that no caller has
        assert ask(shard, ReturnSlot(number, 2, 5)).code == Code.NOT_FOUND
    assert shard.state.pacer == given


def test_a_pause_moves_every_slot_by_its_length() -> None:
    shard = pacer()
    slots = [reserve(shard) for _ in range(3)]
    shard.now += 50
    ask(shard, ChangePacer(paused=True, rest_ms=2_000))
    shard.now += 60_000
    slots.append(reserve(shard))  # one may, meanwhile
    told = [head_us(shard.state.pacer, each.at_us, shard.now) for each in slots]
    ask(shard, ChangePacer(paused=False))
    moved = [head_us(shard.state.pacer, each.at_us, shard.now) - NOON_US for each in slots]
    paused_us = (60_000 + 2_000) * 1000
    assert moved == [at_us + paused_us for at_us in (0, 100_000, 200_000, 300_000)]
    assert [each - NOON_US for each in told] == moved


def test_pausing_twice_or_resuming_twice_changes_nothing() -> None:
    shard = pacer()
    ask(shard, ChangePacer(paused=False))
    running = shard.state.pacer
    ask(shard, ChangePacer(paused=True))
    paused = shard.state.pacer
    shard.now += 5_000
    ask(shard, ChangePacer(paused=True))
    assert shard.state.pacer == paused
    assert running.shift_ms == 0
    ask(shard, ChangePacer(paused=False))
    resumed = shard.state.pacer
    ask(shard, ChangePacer(paused=False))
    assert shard.state.pacer == resumed


def test_a_pacer_that_exists_is_kept_or_begins_again_an_interval_after_its_latest_slot() -> None:
    shard = pacer()
    reserve(shard)
    kept = shard.state.pacer
    anew = PacerRow(50_000, 2, epoch=6)
    assert ask(shard, ChangePacer(anew)).code == Code.DUPLICATE
    assert shard.state.pacer == kept
    for _ in range(20):
        reserve(shard)
    ask(shard, ChangePacer(paused=True))
    assert ask(shard, ChangePacer(anew, reset=True)).code == Code.OK
    row = shard.state.pacer
    assert (row.interval_us, row.burst, row.epoch, row.paused_ms, row.shift_ms) == (50_000, 2, 6, 0, 0)
    assert row.tat_us == NOON_US + 50_000
    assert reserve(shard).number == 22


@pytest.mark.parametrize(
    "op", [ReserveSlots(1, 1, 0), ReturnSlot(1, 1, 5), ChangePacer(paused=True), ChangePacer(removed=True)]
)
def test_without_a_pacer_there_is_nothing_to_take_or_to_change(op: Op) -> None:
    shard = Shard()
    assert ask(shard, op).code == Code.NOT_FOUND
    assert shard.state.pacer is NO_PACER


def test_a_removed_pacer_leaves_nothing_in_the_head() -> None:
    shard = pacer()
    reserve(shard)
    assert b"pacer" in encode_head(shard.state)
    ask(shard, ChangePacer(removed=True))
    head = decode_head(encode_head(shard.state))
    assert head.pacer is NO_PACER
    assert b"pacer" not in encode_head(shard.state)
    assert ask(shard, ReserveSlots(1, 1, 0)).code == Code.NOT_FOUND


def test_a_pacer_takes_some_thirty_bytes() -> None:
    shard = pacer()
    reserve(shard)
    assert len(encode(shard.state.pacer)) <= 31


def test_what_is_ahead_is_what_has_its_slot_still_to_come() -> None:
    shard = pacer()
    row = shard.state.pacer
    assert (ahead(row, NOON_US), next_us(row, NOON_US)) == (0, NOON_US)
    for _ in range(4):
        reserve(shard)
    row = shard.state.pacer
    assert (ahead(row, NOON_US), next_us(row, NOON_US) - NOON_US) == (3, 400_000)
    shard.now += 150
    assert ahead(shard.state.pacer, own_us(row, shard.now)) == 2


# ── Against a log of all slots ───────────────────────────────────────────────
@pytest.mark.parametrize("seed", range(60))
def test_no_window_holds_more_than_its_rate_and_the_burst(seed: int) -> None:
    chance = random.Random(seed)
    burst = chance.choice((1, 1, 2, 5, 20))
    interval = chance.choice((1_000, 33_333, 100_000, 5_000_000))
    shard = pacer(interval, burst)
    taken: list[tuple[int, int]] = []  # when, and how many units
    for _ in range(120):
        shard.now += int(chance.expovariate(1000 / interval)) if chance.random() < 0.7 else 0
        slot = reserve(shard, chance.randint(1, burst), 400 * DAY_US, chance.choice((0, 0, 30_000)))
        if chance.random() < 0.15:
            ask(shard, ReturnSlot(slot.number, slot.units, slot.epoch))
            continue
        taken.append((slot.at_us, slot.units))
    taken.sort()
    for first in range(len(taken)):
        units = 0
        for last in range(first, len(taken)):
            units += taken[last][1]
            window = taken[last][0] - taken[first][0]
            assert units * interval <= window + burst * interval, (seed, first, last)


def test_a_pacer_that_is_always_asked_gives_its_whole_rate() -> None:
    shard = pacer(33_333, 4)
    assert at(reserve_last(shard, 304)) == 300 * 33_333


def reserve_last(shard: Shard, count: int) -> Slot:
    """The last of so many."""
    for _ in range(count - 1):
        reserve(shard)
    return reserve(shard)


# ── Made one ─────────────────────────────────────────────────────────────────
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from((0, 250_000))), max_size=8),
    st.sampled_from((1, 3)),
)
def test_callers_who_share_a_commit_get_what_each_would_have_got_alone(asked: Any, burst: int) -> None:
    ops = [ReserveSlots(count, units, ahead) for count, units, ahead in asked]
    alone, shared = pacer(burst=burst), pacer(burst=burst)
    one_by_one = [ask(alone, op) for op in ops]
    together: list[Outcome] = []
    for run in runs_of(ops):
        together += split_outcomes(run, ask(shared, coalesced(run)))
    assert [_told(op, each) for op, each in zip(ops, together, strict=True)] == [
        _told(op, each) for op, each in zip(ops, one_by_one, strict=True)
    ]
    assert alone.state.pacer == shared.state.pacer


def _told(op: ReserveSlots, answer: Outcome) -> Any:
    return answer.runs[0], slot_of(op, answer)


def test_an_outcome_is_remembered_within_the_room_that_is_kept_for_it() -> None:
    shard = pacer((1 << 41), 1_000_000)
    op = ReserveSlots(1, 1_000_000, DAY_US)
    answer = ask(shard, op)
    assert len(encode_outcomes([answer])) <= outcomes_bytes_max([op])
    assert decode_outcomes(encode_outcomes([answer])) == (answer,)


# ── Holders over an API ──────────────────────────────────────────────────────
def rest_ms_of_a_pause(shard: Shard) -> int:
    """How long the pacer stands still after a pause by a process that looks often."""
    ask(shard, ChangePacer(paused=True, rest_ms=100))
    rest_ms = shard.state.pacer.rest_ms
    ask(shard, ChangePacer(paused=False))
    return rest_ms


def test_a_pause_rests_longer_until_a_day_after_the_last_slot_of_a_remote_holder() -> None:
    shard = pacer()
    reserve(shard)
    assert rest_ms_of_a_pause(shard) == 100
    ask(shard, ReserveSlots(1, 1, DAY_US, remote=True))
    assert rest_ms_of_a_pause(shard) == REMOTE_REST_MS
    shard.now += DAY_US // 1000 - 1
    assert rest_ms_of_a_pause(shard) == REMOTE_REST_MS
    shard.now += 10_000  # the rests of two pauses among them
    assert rest_ms_of_a_pause(shard) == 100


REPLACED = pytest.mark.parametrize(
    "changes",
    [
        [ChangePacer(PacerRow(INTERVAL, epoch=6), reset=True)],
        [ChangePacer(removed=True), ChangePacer(PacerRow(INTERVAL, epoch=6))],
    ],
    ids=["reset", "removed"],
)


@REPLACED
def test_a_new_pacer_forgets_a_remote_holder_of_days_ago(changes: list[Op]) -> None:
    shard = pacer()
    ask(shard, ReserveSlots(1, 1, DAY_US, remote=True))
    shard.now += 2 * DAY_US // 1000
    for each in changes:
        ask(shard, each)
    assert rest_ms_of_a_pause(shard) == 100


@REPLACED
def test_a_new_pacer_remembers_that_a_remote_holder_may_not_have_looked(changes: list[Op]) -> None:
    shard = pacer()
    ask(shard, ReserveSlots(1, 1, DAY_US, remote=True))
    for each in changes:
        ask(shard, each)
    assert rest_ms_of_a_pause(shard) == REMOTE_REST_MS


def test_a_remote_reservation_in_a_pause_lengthens_its_rest() -> None:
    shard = pacer()
    ask(shard, ChangePacer(paused=True, rest_ms=100))
    ask(shard, ReserveSlots(1, 1, DAY_US, remote=True))
    assert shard.state.pacer.rest_ms == REMOTE_REST_MS


def test_reservations_over_an_api_are_combined_with_none_of_the_store() -> None:
    near, remote = ReserveSlots(1, 1, DAY_US), ReserveSlots(1, 1, DAY_US, remote=True)
    assert [len(run) for run in runs_of([near, near, remote, remote])] == [2, 2]
