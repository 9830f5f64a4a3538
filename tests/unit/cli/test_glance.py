"""What ``osqueue top`` shows and what its keys do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue.cli.glance import (
    COLUMNS,
    Action,
    Glance,
    Look,
    TopView,
    age,
    glances,
    in_order,
    keys_of,
    lines_of,
    pause_after,
    pressed,
    selected,
    shown,
)
from osqueue.cli.layout import width_of
from osqueue.errors import Damaged, OsqueueError

ROWS = (Glance("b", queued=5), Glance("a", queued=5), Glance("c", queued=9, oldest_seconds=61.0))
VIEW = TopView(ROWS)


def numbers(enqueued: int, over: int = 0, shards: int = 1) -> dict[str, Any]:
    return {
        "paused": False,
        **dict.fromkeys(COLUMNS[1:7], 0),
        "shards": shards,
        "counters": {"enqueued": enqueued, "completed": over, "failed": over, "cancelled": over},
    }


def after(view: TopView, *keys: str) -> TopView:
    for key in keys:
        view, _ = pressed(view, key)
    return view


def names(view: TopView) -> str:
    return "".join(row.queue for row in shown(view))


# ── Numbers ──────────────────────────────────────────────────────────────────
def test_rates_are_of_what_the_counters_grew_by_between_two_looks() -> None:
    before, now = Look(10.0, {"a": numbers(100, 10)}), Look(14.0, {"a": numbers(140, 12)})
    (row,) = glances(before, now)
    assert (row.in_per_second, row.out_per_second) == (10.0, 1.5)


@pytest.mark.parametrize(
    "earlier",
    [None, {}, {"a": numbers(200, 20)}, {"a": Damaged("gone")}],
    ids=["none", "new", "restored", "unread"],
)
def test_there_is_no_rate_where_there_is_nothing_to_compare_with(
    earlier: dict[str, dict[str, Any] | OsqueueError] | None,
) -> None:
    before = None if earlier is None else Look(10.0, earlier)
    (row,) = glances(before, Look(14.0, {"a": numbers(140, 12)}))
    assert (row.in_per_second, row.out_per_second) == (None, None)


def test_a_queue_that_cannot_be_read_has_its_error_and_is_last() -> None:
    rows = glances(None, Look(0.0, {"a": Damaged("no head"), "b": numbers(1)}))
    assert [row.queue for row in in_order(rows, "queued", reverse=True)] == ["b", "a"]
    assert "damaged: no head" in lines_of(TopView(rows), "x", 2.0, 100, 10)[3][0]


def test_many_queues_are_looked_at_so_seldom_that_it_is_a_request_a_second() -> None:
    assert pause_after(Look(0.0, {"a": numbers(1)}), 5.0) == 5.0
    assert pause_after(Look(0.0, {str(n): numbers(1, shards=3) for n in range(10)}), 5.0) == 41.0


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.9, "0s"), (61.0, "1m01s"), (3600.0, "1h00m"), (90_000.0, "1d01h")]
)
def test_ages_have_two_units(seconds: float, told: str) -> None:
    assert age(seconds) == told


# ── Order and keys ───────────────────────────────────────────────────────────
def test_numbers_are_sorted_from_the_greatest_and_names_from_a() -> None:
    assert names(VIEW) == "cab"
    assert names(after(VIEW, "r")) == "abc"
    assert names(after(VIEW, "left")) == "abc"
    assert names(after(VIEW, "left", "r")) == "cba"
    assert after(VIEW, "s", "left") == VIEW
    assert after(VIEW, *["s"] * len(COLUMNS)) == VIEW


def test_what_has_no_value_is_last_either_way() -> None:
    assert names(replace(VIEW, sort="oldest_seconds")) == "cab"
    assert names(replace(VIEW, sort="oldest_seconds", reverse=True)) == "cab"


def test_the_selection_stays_with_its_queue() -> None:
    view = after(VIEW, "down")
    assert view.selected == "a"
    moved = selected(replace(view, rows=(Glance("a", queued=99), *ROWS)))
    assert moved is not None
    assert moved.queue == "a"
    assert after(VIEW, "down", "down", "down", "down").selected == "b"
    assert after(view, "up", "up").selected == "c"
    assert selected(TopView()) is None
    assert after(TopView(), "down", "enter", "p") == TopView()


def test_a_filter_is_typed_and_kept_or_ended() -> None:
    view = after(VIEW, "/", "q", "delete", "b")
    assert (view.typing, names(view)) == (True, "b")
    assert names(after(view, "enter")) == "b"
    assert names(after(view, "enter", "escape")) == "cab"
    assert names(after(view, "escape")) == "cab"


def test_a_queue_is_paused_only_after_a_yes() -> None:
    asked = after(VIEW, "down", "p")
    assert lines_of(asked, "x", 2.0, 80, 10)[-1][0] == "pause a? y/n"
    assert pressed(asked, "y")[1] == Action("pause", "a")
    for key in ("n", "escape", "q", "enter"):
        assert pressed(asked, key) == (replace(asked, asking=""), None)
    paused = TopView((Glance("a", paused=True),))
    assert pressed(after(paused, "p"), "y")[1] == Action("resume", "a")


def test_enter_opens_a_queue_and_escape_goes_back() -> None:
    view, action = pressed(VIEW, "enter")
    assert action == Action("detail", "c")
    back, again = pressed(view, "escape")
    assert (back.detail, again) == (None, Action("look"))
    assert pressed(view, "q")[1] == Action("quit")


def test_what_a_terminal_sends_as_keys() -> None:
    assert keys_of("s\x1b[A\x1bOB\r\x7f\x1b[15~\x07\x1b") == ["s", "up", "down", "enter", "delete", "escape"]


# ── The screen ───────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("width", "height"), [(200, 50), (80, 24), (40, 6), (20, 4)])
def test_the_table_fits_the_screen_and_shows_the_selection(width: int, height: int) -> None:
    rows = tuple(Glance(f"queue-{n:03}" + "x" * 60, queued=n) for n in range(100))
    view = TopView(rows, selected=rows[50].queue)
    lines = lines_of(view, "file://x", 2.0, width, height)
    assert len(lines) == height
    assert next(text for text, style in lines if style == "reverse").startswith("queue-050")
    assert all(width_of(text) <= width for text, _ in lines[1:-1])


def test_names_of_strangers_are_escaped() -> None:
    hostile = "a\x1b[31mred\u202e\n"
    for view in (
        TopView((Glance(hostile),)),
        TopView((Glance(hostile, error=hostile),), told=hostile),
        TopView((Glance(hostile),), asking="pause", selected=hostile),
        TopView((), wanted=hostile, typing=True),
    ):
        assert all(text.isprintable() for text, _ in lines_of(view, hostile, 2.0, 120, 10))
