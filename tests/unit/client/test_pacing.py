"""A pacer over an API, in virtual time: slow responses, lost ones, and a pause while a holder waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import NotFound, Pacer, Unavailable
from osqueue.client.transports.base import ApiAnswer, ApiCall, CallOutcome, LostCall, call
from osqueue.operations.pacer_access import FREE, REMOTE
from osqueue.stores.memory import MemoryStore
from tests.support.in_process import InProcess

Carry = Callable[[ApiCall], CallOutcome]


class Way(InProcess):
    """An API in this process, and what happens before and after it is called."""

    def __init__(self, store: Any, machine: Any) -> None:
        super().__init__(store, machine)
        self.before: Callable[[str], None] = lambda operation: None
        self.after: Callable[[str], CallOutcome | None] = lambda operation: None

    def send(self, call: ApiCall) -> CallOutcome:
        self.before(call.route.name)
        answer = super().send(call)
        return self.after(call.route.name) or answer


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def way(store: MemoryStore, machine: Any) -> Way:
    return Way(store, machine)


@pytest.fixture
def remote(way: Way, machine: Any) -> Pacer:
    return Pacer(way, "stripe", machine=machine)


@pytest.fixture
def operator(store: MemoryStore, machine: Any) -> Pacer:
    """The same pacer at the store itself, where looks are free."""
    return Pacer(store, "stripe", machine=machine)


def seconds_of(machine: Any, call: Callable[[], object]) -> float:
    """Return the virtual seconds that a call takes."""
    began = machine.seconds
    call()
    return round(machine.seconds - began, 3)


def test_a_pause_takes_longer_from_the_first_reservation_over_an_api_on(
    remote: Pacer, operator: Pacer, machine: Any
) -> None:
    operator.create(1)
    assert seconds_of(machine, operator.pause) == pytest.approx(FREE.pause)
    operator.resume()
    remote.reserve()
    assert seconds_of(machine, operator.pause) == pytest.approx(REMOTE.pause)
    assert seconds_of(machine, remote.pause) == pytest.approx(REMOTE.pause)


@pytest.mark.parametrize("before_s", [0.01, 0.2, 0.45])
def test_no_remote_holder_starts_after_a_pause_has_returned(
    remote: Pacer, operator: Pacer, machine: Any, monkeypatch: pytest.MonkeyPatch, before_s: float
) -> None:
    operator.create(5)
    remote.reserve()
    second, sleep = remote.reserve(), machine.sleep
    returned: list[float] = []

    def slept(seconds: float) -> None:
        """Pause ``before_s`` before the slot, when the holder has looked, and resume a minute later."""
        if seconds > before_s and second.seconds_left < REMOTE.ahead + 0.001:
            monkeypatch.setattr(machine, "sleep", sleep)
            sleep(seconds - before_s)
            operator.pause()
            returned.append(machine.seconds)
            machine.advance(60)
            operator.resume()
            return
        sleep(seconds)

    monkeypatch.setattr(machine, "sleep", slept)
    second.wait()
    assert second.number == 2
    assert machine.seconds > returned[0] + 60


def test_a_response_that_was_overtaken_by_a_pause_starts_no_holder(
    remote: Pacer, operator: Pacer, way: Way, machine: Any
) -> None:
    operator.create(5)
    remote.reserve()
    second = remote.reserve()
    paused: list[float] = []

    def after(operation: str) -> None:
        """The server has read the head, and its response comes after the pause."""
        if operation == "get_pacer" and not paused:
            operator.pause()
            paused.append(machine.seconds)

    def before(operation: str) -> None:
        if operation == "get_pacer" and paused and machine.seconds > paused[0] + 30:
            operator.resume()

    way.after, way.before = after, before
    second.wait()
    assert machine.seconds > paused[0] + 30


def test_a_holder_whose_looks_are_slower_than_their_age_may_be_takes_no_turn_by_them(
    remote: Pacer, way: Way, machine: Any
) -> None:
    remote.create(5)
    remote.reserve()
    second = remote.reserve()
    slow = iter([1.2, 0.05])

    def after(operation: str) -> None:
        if operation == "get_pacer":
            machine.advance(next(slow))

    way.after = after
    second.wait()
    assert second.number == 3  # the second had gone by when the look came


@pytest.mark.parametrize("way_s", [(0.0, 0.0), (0.4, 0.01), (0.01, 0.4), (0.3, 0.3)])
@pytest.mark.parametrize("interval", [0.3, 2.5])
def test_a_slot_is_not_used_early_however_long_calls_take(
    remote: Pacer, way: Way, machine: Any, way_s: tuple[float, float], interval: float
) -> None:
    remote.create(interval)

    def before(operation: str) -> None:
        machine.advance(way_s[0])

    def after(operation: str) -> None:
        machine.advance(way_s[1])

    way.before, way.after = before, after
    for _ in range(3):
        with remote.turn() as turn:
            assert turn.at.timestamp() * 1000 <= machine.now_ms() + 1


@pytest.mark.parametrize(
    ("call", "repeated"), [("reserve", False), ("give_back", False), ("status", True), ("pause", True)]
)
def test_a_call_whose_response_is_lost_is_repeated_where_that_is_safe(
    remote: Pacer, way: Way, call: str, repeated: bool
) -> None:
    remote.create(60)
    slot = remote.reserve()
    way.routes.clear()
    lost: list[CallOutcome] = [LostCall(Unavailable("the connection broke"))]
    way.after = lambda operation: lost.pop() if lost else None
    action = slot.give_back if call == "give_back" else getattr(remote, call)
    if repeated:
        action()
        assert len(way.routes) == 2
        return
    with pytest.raises(Unavailable):
        action()
    assert len(way.routes) == 1
    assert remote.reserve().number == 3  # number 2 is a gap, or was given back


def test_a_reservation_that_was_not_sent_is_repeated(remote: Pacer, way: Way) -> None:
    remote.create(60)
    refused = [ApiAnswer(429, b"{}")]
    send = way.send
    way.send = lambda call: refused.pop() if refused else send(call)  # type: ignore[method-assign]
    assert remote.reserve().number == 1


def test_a_pacer_that_is_removed_while_a_remote_holder_waits_raises(
    remote: Pacer, operator: Pacer, way: Way
) -> None:
    remote.create(30)
    remote.reserve()
    second = remote.reserve()
    way.before = lambda operation: operator.remove() if operation == "get_pacer" else None
    with pytest.raises(NotFound, match="Create it first"):
        second.wait()


def test_a_slot_that_was_reset_is_void_for_a_remote_holder(remote: Pacer, operator: Pacer) -> None:
    remote.create(30)
    remote.reserve()
    second = remote.reserve()
    operator.create(1, if_exists="reset")
    second.wait()
    assert second.number == 3


def test_a_holder_whose_machine_was_suspended_takes_another_slot(
    remote: Pacer, way: Way, machine: Any
) -> None:
    """A server that has just begun does not know the time either."""
    remote.create(30)
    remote.reserve()
    second = remote.reserve()
    look = way.send(call("get_pacer", path={"pacer": "stripe"}))
    machine.time_ms += 3_600_000  # the monotonic clock stands still
    way.after = lambda operation: look if operation == "get_pacer" else None
    second.wait()
    assert second.number == 3
    assert second.at.timestamp() * 1000 <= machine.now_ms() + 1
