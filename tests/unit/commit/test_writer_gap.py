"""What a writer knows of the gap that a store wants between two heads, and of a clock that it may not write."""

from __future__ import annotations

import pytest

from osqueue.commit.writer import ShardWriter
from osqueue.errors import Unavailable
from osqueue.stores.base import Failed, Found, Put
from tests.support.machines import VirtualMachine


def look(writer: ShardWriter, version: str, store_ms: int) -> None:
    """The store refuses to write its clock again so soon, and tells of one that somebody else wrote."""
    flow = writer.measure_clock()
    assert isinstance(next(flow), Put)
    flow.send(Failed(Unavailable("429"), too_soon=True))
    with pytest.raises(StopIteration):
        flow.send(Found(b"", version, store_ms))


def test_a_clock_that_may_not_be_written_tells_the_time_once_it_was_seen_to_change(
    machine: VirtualMachine,
) -> None:
    writer = ShardWriter("q/", "q", machine, swap_gap_s=1.0)
    written_ms = machine.now_ms()
    machine.sleep(3600)  # a busy store refuses a write, and not because of another one
    look(writer, "1", written_ms)
    assert writer.measured is None
    machine.sleep(0.4)
    look(writer, "1", written_ms)
    assert writer.measured is None
    machine.sleep(0.3)
    written_ms = machine.now_ms()
    machine.sleep(0.7)
    look(writer, "2", written_ms // 1000 * 1000)
    earliest = writer.earliest_ms()
    assert earliest is not None
    assert earliest <= machine.now_ms() <= writer.latest_ms(0)
    assert writer.latest_ms(0) - earliest == 2000  # a tick of the store, and since the look before


def test_a_change_since_long_ago_tells_no_time(machine: VirtualMachine) -> None:
    writer = ShardWriter("q/", "q", machine, swap_gap_s=1.0)
    look(writer, "1", machine.now_ms())
    machine.sleep(3600)
    look(writer, "2", machine.now_ms() - 60_000)
    assert writer.measured is None


def test_how_much_of_the_gap_is_left_follows_from_what_was_seen(machine: VirtualMachine) -> None:
    writer = ShardWriter("q/", "q", machine, swap_gap_s=1.0)
    assert writer.gap_left() == 0
    writer.note_written()
    assert writer.gap_left() == 1.0
    machine.sleep(0.75)
    assert writer.gap_left() == pytest.approx(0.25)
    now = machine.monotonic()
    assert 0 < writer.gather_seconds(now + 60) < writer.gap_left()
    assert writer.gather_seconds(now + 0.01) == 0  # nothing would be left for the commit
    assert writer.gather_seconds(now - 1) == 0
    writer.note_written(machine.now_ms() - 60_000)
    assert writer.gap_left() == 0  # it was read just now, and written long ago
    writer.note_written(machine.now_ms() + 60_000)
    assert writer.gap_left() == 1.0  # a clock that is wrong costs a gap at most
    assert ShardWriter("q/", "q", machine).gap_left() == 0
