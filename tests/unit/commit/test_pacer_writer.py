"""What time it is for a pacer: the machine's own, as far as the store's clock does not say otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue.commit.driver import BlockingDriver
from osqueue.commit.pacer_writer import PacerWriter
from osqueue.core.state import State
from osqueue.stores.memory import MemoryStore

WAY_S = 0.04  # that a request takes


class FarStore(MemoryStore):
    """It tells no clock but in the times of its objects, in whole seconds, and takes its time."""

    def __init__(self, machine: Any, ahead_ms: int) -> None:
        super().__init__(machine)
        self.machine, self.ahead_ms = machine, ahead_ms

    def perform(self, request: Any) -> Any:
        self.machine.advance(WAY_S)
        reply = super().perform(request)
        told = getattr(reply, "modified_ms", None)
        if told is None:
            return reply
        return type(reply)(reply.body, reply.version, (told + self.ahead_ms) // 1000 * 1000)


def measured(machine: Any, ahead_ms: int) -> PacerWriter:
    """A writer that has asked a store whose clock is ahead."""
    writer = PacerWriter("q/", "q", machine)
    assert writer.time_ms() is None
    BlockingDriver(FarStore(machine, ahead_ms), machine).run(writer.measure_clock())
    return writer


@pytest.mark.parametrize("off_ms", [0, 30, -30])
def test_a_clock_that_may_be_right_is_believed_to_the_millisecond(machine: Any, off_ms: int) -> None:
    machine.advance(0.5)
    writer = measured(machine, off_ms)
    assert writer.time_ms() == machine.now_ms()
    assert writer.now_ms(State(bytes(16), 7)) == machine.now_ms()


@pytest.mark.parametrize("off_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_wrong_is_off_by_a_second_and_a_request_at_most(machine: Any, off_ms: int) -> None:
    writer = measured(machine, off_ms)
    machine.advance(5)
    right = machine.now_ms() + off_ms
    assert abs((writer.time_ms() or 0) - right) <= 1_000 + 2 * WAY_S * 1000 + 10


def test_a_step_of_the_wall_clock_does_not_bring_slots_nearer(machine: Any) -> None:
    writer = measured(machine, 0)
    before = writer.time_ms() or 0
    machine.time_ms += 86_400_000
    assert (writer.time_ms() or 0) - before <= 1_100
    assert writer.clock_is_due()


def test_without_a_measurement_time_stands_still_and_a_head_never_goes_back(machine: Any) -> None:
    head = State(bytes(16), 7, now_ms=machine.now_ms() + 5_000)
    assert PacerWriter("q/", "q", machine).now_ms(head) == head.now_ms
    assert measured(machine, 0).now_ms(head) == head.now_ms


def test_where_the_store_tells_its_clock_that_counts(machine: Any) -> None:
    writer = PacerWriter("q/", "q", machine, lambda: 1_234)
    assert writer.time_ms() == 1_234
