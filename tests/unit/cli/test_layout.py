"""Tables on narrow terminals: one thing a line, what has to be copied or compared whole."""

from __future__ import annotations

import pytest

from osqueue.cli.layout import GAP_CELLS, Layout, layout
from osqueue.cli.output import cell

NAMES = ("job_id", "state", "kind", "attempt", "enqueued_at", "worker", "error")
ROW = (
    "j" * 36,
    "processing",
    "welcome",
    "1",
    "2026-11-21 12:00:00Z",
    "host-4711-abcdef",
    "mailbox full " * 9,
)


def width(found: Layout) -> int:
    return sum(each.width for each in found.columns) + GAP_CELLS * (len(found.columns) - 1)


@pytest.mark.parametrize("room", [80, 100, 120, 250])
def test_a_table_of_jobs_fits(room: int) -> None:
    found = layout(NAMES, [ROW], "-", room)
    assert width(found) <= room
    widths = {each.name: each.width for each in found.columns}
    assert widths["job_id"] == 36
    assert widths["state"] == 10
    assert widths["error"] >= 8
    assert {*widths, *found.left_out} == set(NAMES)
    assert (found.left_out == ()) is (room >= 120)


def test_a_column_without_anything_in_it_is_dropped() -> None:
    found = layout(NAMES, [(*ROW[:5], "-", "-")], "-", 200)
    assert [each.name for each in found.columns] == list(NAMES[:5])
    assert found.left_out == ()


def test_a_long_head_takes_two_lines_before_anything_is_cut() -> None:
    (column,) = layout(("oldest_seconds",), [("1",)], "-", 10).columns
    assert (column.head, column.width) == ("oldest\nseconds", 10)


def test_an_empty_list_is_shown_as_nothing() -> None:
    assert [cell(value) for value in ([], None, "", 0, ["a"])] == ["-", "-", "-", "0", '["a"]']
