"""What a writer knows of the gap that a store wants between two heads, and of a clock that it may not write."""

from __future__ import annotations

import pytest

from osqueue.commit.writer import ShardWriter
from osqueue.errors import Unavailable
from osqueue.stores.base import Failed, Found, Put
from tests.support.machines import VirtualMachine


def test_a_clock_that_another_has_just_written_is_read_with_the_gap_in_doubt(machine: VirtualMachine) -> None:
    """The store refuses to write it again, so what is read is older than the request, by less than the gap."""
    gap_s, writer = 1.0, ShardWriter("q/", "q", machine, swap_gap_s=1.0)
    written_ms = machine.now_ms() // 1000 * 1000 + 50
    machine.sleep((written_ms + 990 - machine.now_ms()) / 1000)
    flow = writer.measure_clock()
    assert isinstance(next(flow), Put)
    flow.send(Failed(Unavailable("429"), too_soon=True))
    with pytest.raises(StopIteration):
        flow.send(Found(b"", "1", written_ms // 1000 * 1000))
    earliest = writer.earliest_ms()
    assert earliest is not None
    assert earliest <= machine.now_ms() <= writer.latest_ms(0)
    assert writer.latest_ms(0) - earliest <= 1000 + 5 * gap_s * 1000


def test_how_much_of_the_gap_is_left_follows_from_what_was_seen(machine: VirtualMachine) -> None:
    writer = ShardWriter("q/", "q", machine, swap_gap_s=1.0)
    assert writer.gap_left() == 0
    writer.note_written()
    assert writer.gap_left() == 1.0
    machine.sleep(0.75)
    assert writer.gap_left() == pytest.approx(0.25)
    assert 0 < writer.gather_seconds() < writer.gap_left()
    writer.note_written(machine.now_ms() - 60_000)
    assert writer.gap_left() == 0  # it was read just now, and written long ago
    writer.note_written(machine.now_ms() + 60_000)
    assert writer.gap_left() == 1.0  # a clock that is wrong costs a gap at most
    assert ShardWriter("q/", "q", machine).gap_left() == 0
