"""A retry follows its policy: how often it asks, how long it waits, and what it never asks again."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from osqueue.clock import MACHINE
from osqueue.commit import retry
from osqueue.commit.effects import All, Flow, Pause, Sleep
from osqueue.commit.retry import (
    CALL,
    ENDLESS,
    ENTRY,
    HEAD_READ,
    NEEDED,
    OBJECT,
    ONCE,
    Patience,
    RetryPolicy,
    ask,
    ask_all,
    patient,
    retried,
)
from osqueue.errors import LeaseLost, Timeout, Unavailable
from osqueue.stores.base import Failed, Found, Get, Missing

LOST = Failed(Unavailable("lost"))
SILENT = Failed(Timeout("too late"))
BROKEN = Failed(Unavailable("no such bucket", permanent=True))
FOUND = Found(b"1", "v", 0)
POLICIES = {
    name: each for name, each in vars(retry).items() if isinstance(each, RetryPolicy) and each.tries < ENDLESS
}


def run(flow: Generator[Any, Any, Any], *replies: Any) -> tuple[Any, list[float], int]:
    """What a flow returns, the pauses it makes and how often it asks; the last reply is given again and again."""
    pauses: list[float] = []
    asked = 0
    reply: Any = None
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value, pauses, asked
        if isinstance(effect, Sleep):
            pauses.append(effect.seconds)
            reply = None
            continue
        reply = replies[min(asked, len(replies) - 1)]
        asked += 1


@pytest.mark.parametrize("name", POLICIES)
def test_a_request_is_tried_as_often_as_its_policy_says(name: str) -> None:
    policy = POLICIES[name]
    reply, pauses, asked = run(ask(Get("a"), policy), LOST)
    assert (reply, asked) == (LOST, policy.tries)
    assert pauses == [policy.pause_after(n) for n in range(1, policy.tries)]


def test_the_first_definite_answer_ends_it() -> None:
    assert run(ask(Get("a"), OBJECT), LOST, FOUND) == (FOUND, [0.1], 2)
    assert run(ask(Get("a"), OBJECT), Missing()) == (Missing(), [], 1)


@pytest.mark.parametrize("policy", [OBJECT, ENTRY, NEEDED, HEAD_READ])
def test_what_asking_again_does_not_mend_is_asked_once(policy: RetryPolicy) -> None:
    assert run(ask(Get("a"), policy), BROKEN) == (BROKEN, [], 1)


@pytest.mark.parametrize("policy", [OBJECT, ENTRY, NEEDED, HEAD_READ])
@pytest.mark.parametrize("lost", [LOST, SILENT])
def test_a_call_tries_for_as_long_as_its_time_lasts_whatever_its_policy(
    machine: Any, policy: RetryPolicy, lost: Failed
) -> None:
    def call() -> Flow[Any]:
        return (yield from ask(Get("a"), policy))

    flow, reply = patient(call(), machine, 20.0), None
    for _ in range(100):
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            reply = stop.value
            break
        reply = None if isinstance(effect, Sleep) else lost
        machine.advance(effect.seconds if isinstance(effect, Sleep) else 0.5)
    assert reply == lost
    assert 20 <= sum(machine.slept, machine.seconds - 1_000) <= 21


def test_a_call_whose_time_is_over_tries_once() -> None:
    flow = ask(Get("a"), NEEDED)
    assert isinstance(flow.send(None), Get)
    assert isinstance(flow.send(LOST), Pause)
    with pytest.raises(StopIteration):
        flow.send(False)


def test_time_in_which_the_store_replies_does_not_count(machine: Any) -> None:
    patience = Patience(machine, 10.0)
    patience.note(Get("a"))
    machine.advance(60)  # a reply
    patience.note(Get("b"))
    machine.advance(4)
    assert patience.spend(1.0) == 1.0
    assert patience.left == 5.0


def test_of_many_only_those_without_an_answer_are_asked_again() -> None:
    flow = ask_all([Get("a"), Get("b"), Get("c")], OBJECT)
    assert flow.send(None) == All((Get("a"), Get("b"), Get("c")))
    assert flow.send((FOUND, LOST, BROKEN)) == Pause(0.1)
    assert flow.send(None) == All((Get("b"),))
    with pytest.raises(StopIteration) as stop:
        flow.send((Missing(),))
    assert stop.value.value == [FOUND, Missing(), BROKEN]


def test_pauses_grow_to_their_maximum() -> None:
    policy = RetryPolicy(9, 0.1, 0.5)
    assert [policy.pause_after(n) for n in (1, 2, 3, 4, 100)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert policy.pause_after(10**6) == 0.5
    assert ONCE.tries == 1


def test_pauses_are_spread_between_half_and_all_of_their_length() -> None:
    spread = {CALL.pause_after(3, MACHINE) for _ in range(100)}
    assert len(spread) > 50
    assert 0.2 <= min(spread) < max(spread) <= 0.4


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (Unavailable("lost"), 3),
        (Timeout("late"), 3),
        (Unavailable("no", permanent=True), 1),
        (LeaseLost("no"), 1),
    ],
)
def test_a_flow_is_run_again_after_what_passes_alone(error: Exception, tries: int) -> None:
    ran = 0

    def attempt() -> Flow[None]:
        nonlocal ran
        ran += 1
        yield Get("a")
        raise error

    with pytest.raises(type(error)):
        run(retried(attempt, OBJECT), FOUND)
    assert ran == tries


def test_a_flow_that_succeeds_is_not_run_again() -> None:
    def attempt() -> Flow[str]:
        yield Get("a")
        return "done"

    assert run(retried(attempt, OBJECT), FOUND) == ("done", [], 1)
