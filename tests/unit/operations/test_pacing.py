"""Waiting for slots, in a time that tests move: who is late, who looks again, and who gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import AsyncPacer, NotFound, Pacer, Rejected, Throttled, Timeout, Unavailable, limits
from osqueue.clock import MACHINE
from osqueue.operations.pacing import SLOTS_MISSED_MAX
from osqueue.stores.base import Failed, Get
from osqueue.stores.memory import MemoryStore
from tests.support.in_process import InProcess

ROUNDED_MS = 1  # by which a remote holder may be late


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture(params=["store", "API"])
def connect(store: MemoryStore, machine: Any, request: pytest.FixtureRequest) -> Callable[..., Pacer]:
    """Another process, as it were."""

    def opened(**options: Any) -> Pacer:
        place: Any = store if request.param == "store" else InProcess(store, machine)
        return Pacer(place, "stripe", machine=machine, **options)

    return opened


def gets(pacer: Pacer, call: Callable[[], object]) -> int:
    """How many objects a call reads."""
    before = pacer.requests["get"]
    call()
    return pacer.requests["get"] - before


def test_the_first_caller_acts_at_once_and_the_others_an_interval_apart(connect: Any, machine: Any) -> None:
    pacer = connect()
    pacer.create(0.25)
    began, starts = machine.now_ms(), []
    for _ in range(4):
        with pacer.turn():
            starts.append(machine.now_ms() - began)
    assert starts == [0, 250, 500, 750]


def test_coroutines_wait_in_the_time_of_a_test_too(store: MemoryStore, machine: Any) -> None:
    async def run() -> list[int]:
        pacer = AsyncPacer(store, "stripe", machine=machine)
        await pacer.create(3_600)
        began, starts = machine.now_ms(), []
        for _ in range(3):
            async with pacer.turn():
                starts.append(machine.now_ms() - began)
        return starts

    assert asyncio.run(run()) == [0, 3_600_000, 7_200_000]


def test_who_waits_for_more_than_a_second_looks_once_and_who_does_not_does_not(connect: Any) -> None:
    pacer = connect()
    pacer.create(1.5)
    held = [pacer.reserve() for _ in range(2)]
    assert gets(pacer, held[0].wait) == 0
    assert gets(pacer, held[1].wait) == 1


def test_who_waits_for_long_looks_once_a_minute(connect: Any) -> None:
    pacer = connect()
    pacer.create(600)
    pacer.reserve()
    assert 9 <= gets(pacer, pacer.reserve().wait) <= 11


def test_who_is_late_gets_another_slot(connect: Any, machine: Any) -> None:
    pacer = connect(grace=0.1)
    pacer.create(10)
    slots = [pacer.reserve() for _ in range(2)]
    machine.advance(0.1)
    slots[0].wait()
    machine.advance(10.001)
    slots[1].wait()
    assert [each.number for each in slots] == [1, 3]


def test_a_slot_is_used_or_given_back_once(connect: Any, machine: Any) -> None:
    pacer = connect()
    pacer.create(10)
    began, slot = machine.now_ms(), pacer.reserve()
    slot.wait()
    assert slot.give_back() is False
    slot.wait()
    assert slot.number == 2
    assert 10_000 <= machine.now_ms() - began <= 10_000 + ROUNDED_MS
    third = pacer.reserve()
    assert third.give_back() is True
    third.wait()
    assert third.number == 5
    assert 20_000 <= machine.now_ms() - began <= 20_000 + ROUNDED_MS
    with pacer.turn() as turn:
        assert turn.give_back() is False


def test_a_slot_whose_return_was_not_answered_is_not_used(
    connect: Any, machine: Any, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pacer = connect(timeout=1)
    pacer.create(10)
    slot = pacer.reserve()
    with monkeypatch.context() as broken:
        broken.setattr(store, "perform", lambda request: Failed(Unavailable("no")))
        with pytest.raises((Unavailable, Timeout)):
            slot.give_back()
    slot.wait()
    assert slot.number > 1


@pytest.mark.parametrize(("interval", "grace_s"), [(0.01, 0.05), (0.5, 0.05), (20, 2.0)])
def test_the_grace_is_a_tenth_of_the_interval_and_at_least_so_long(
    connect: Any, machine: Any, interval: float, grace_s: float
) -> None:
    pacer = connect()
    pacer.create(interval)
    in_time = pacer.reserve()
    machine.advance(grace_s)
    in_time.wait()
    machine.advance(100)
    late = pacer.reserve()
    machine.advance(grace_s + 0.001)
    late.wait()
    assert (in_time.number, late.number) == (1, 3)


def test_a_machine_that_is_always_late_gives_up_by_name(
    connect: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pacer = connect(grace=0.01)
    pacer.create(1)
    pacer.reserve()
    monkeypatch.setattr(machine, "sleep", lambda seconds: machine.advance(seconds + 0.2))
    with pytest.raises(Throttled, match=f"{SLOTS_MISSED_MAX} slots in a row"):
        pacer.reserve().wait()
    assert pacer.status().number == 2 + SLOTS_MISSED_MAX


def test_a_store_that_does_not_answer_the_look_lets_nobody_act(
    connect: Any, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pacer = connect()
    pacer.create(60)
    pacer.reserve()
    second, perform = pacer.reserve(), store.perform
    monkeypatch.setattr(
        store,
        "perform",
        lambda request: Failed(Unavailable("no")) if isinstance(request, Get) else perform(request),
    )
    with pytest.raises(Unavailable):
        second.wait()


@pytest.mark.parametrize("interval", [0.3, 0.9, 30])
def test_a_pause_that_was_missed_while_asleep_moves_the_slot(
    connect: Any, machine: Any, monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    pacer, operator = connect(), connect()
    pacer.create(interval)
    pacer.reserve()
    second = pacer.reserve()
    before, began = second.at, machine.now_ms()
    sleep = machine.sleep

    def slept(seconds: float) -> None:
        monkeypatch.setattr(machine, "sleep", sleep)
        operator.pause()
        machine.advance(1_000)
        operator.resume()

    monkeypatch.setattr(machine, "sleep", slept)
    second.wait()
    assert second.number == 2
    pace = pacer.access.pace
    moved_ms = 1_000_000 + pace.pause * 1000 + pace.rest_ms
    assert (second.at - before).total_seconds() == pytest.approx(moved_ms / 1000)
    assert 0 <= machine.now_ms() - began - moved_ms - interval * 1000 <= ROUNDED_MS


def test_a_pacer_that_is_removed_while_one_waits_lets_nobody_act(
    connect: Any, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pacer = connect()
    pacer.create(30)
    pacer.reserve()
    second, sleep = pacer.reserve(), machine.sleep

    def slept(seconds: float) -> None:
        monkeypatch.setattr(machine, "sleep", sleep)
        connect().remove()

    monkeypatch.setattr(machine, "sleep", slept)
    with pytest.raises(NotFound):
        second.wait()


def test_a_caller_with_no_patience_is_told_to_come_back(connect: Any, machine: Any) -> None:
    pacer = connect(max_ahead=0)
    pacer.create(10)
    pacer.reserve()
    machine.advance(4)
    with pytest.raises(Throttled) as refused:
        pacer.reserve()
    assert refused.value.retry_after == 6
    machine.advance(6)
    assert pacer.reserve().number == 2


@pytest.mark.parametrize(
    ("field", "make", "fits", "past"),
    [
        ("interval", "create", limits.PACER_INTERVAL_MS_MIN / 1000, 0.0004),
        ("interval", "create", limits.PACER_INTERVAL_MS_MAX / 1000, limits.PACER_INTERVAL_MS_MAX / 1000 + 1),
        ("interval", "create", 1, "1s"),
        ("burst", "create", limits.PACER_BURST_MAX, limits.PACER_BURST_MAX + 1),
        ("burst", "create", 1, 0),
        ("if_exists", "create", "reset", "replace"),
        ("units", "reserve", 1, 0),
        ("units", "reserve", 1, True),
        ("max_ahead", "open", limits.PACER_AHEAD_MS_MAX / 1000, limits.PACER_AHEAD_MS_MAX / 1000 + 1),
        ("max_ahead", "open", 0, -1),
        ("grace", "open", 0.001, 0),
        ("timeout", "open", 1, 0),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_name(
    connect: Any, field: str, make: str, fits: Any, past: Any
) -> None:
    pacer = connect()
    pacer.create(1)

    def give(value: Any) -> None:
        if make == "open":
            connect(**{field: value})
        elif make == "reserve":
            pacer.reserve(value)
        else:
            pacer.create(**{"interval": 1, field: value})

    give(fits)
    with pytest.raises(Rejected) as refused:
        give(past)
    assert refused.value.field == field


@pytest.mark.parametrize("name", ["", "UPPER", "a/b", "-a", "a" * 65, 7, None])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(Rejected, match="not the name of a pacer") as refused:
        Pacer.connect("memory://", name)
    assert refused.value.field == "name"


def test_the_real_clock_is_the_default() -> None:
    assert Pacer.connect("memory://", "stripe").machine is MACHINE


def test_a_slot_beyond_the_calendar_is_refused_as_too_far_ahead(connect: Any) -> None:
    pacer = connect()
    pacer.create(30 * 86_400, burst=1_000_000)
    pacer.reserve(1_000_000)
    with pytest.raises(Throttled, match="Nothing was reserved"):
        pacer.reserve(1_000_000)
