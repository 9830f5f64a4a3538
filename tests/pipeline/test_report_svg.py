"""Scales, their ticks, and the shapes drawn with them."""

from __future__ import annotations

import re

import pytest

from osqueue.pipeline.report import svg
from osqueue.pipeline.report.markup import joined, tag
from osqueue.pipeline.report.model import DAY_MS, HOUR_MS, MINUTE_MS

OCTOBER_MS = 1_790_812_800_000  # Thursday, 1 October 2026, midnight
FRAME = svg.Frame(height=122, head=0, foot=22)  # a hundred pixels for the data


@pytest.mark.parametrize("high", [1, 2, 3, 7, 10, 99, 101, 11_417, 3e9])
def test_a_scale_of_counts_ends_at_a_round_number_with_its_unit(high: float) -> None:
    scale = svg.counts(high)
    ticks = svg.count_ticks(scale, "jobs")
    assert high <= scale.high <= 2 * high
    assert 1 <= len(ticks) <= 5
    assert [tick.label.endswith(" jobs") for tick in ticks] == [False] * (len(ticks) - 1) + [True]
    assert all(tick.value == int(tick.value) for tick in ticks), "nobody counts in half jobs"


def test_nothing_has_a_scale_as_well() -> None:
    assert svg.counts(0).at(0) == 0
    assert svg.spans([]).at(0) == 0


def test_a_logarithmic_scale_gives_each_decade_the_same_room() -> None:
    scale = svg.Scale(1, 10_000, log=True)
    assert [round(scale.at(value), 9) for value in (0, 1, 10, 100, 1_000, 10_000, 1e9)] == [
        *(0, 0, 0.25, 0.5, 0.75, 1, 1)
    ]


def test_equal_spans_are_not_blown_up() -> None:
    scale = svg.spans([100.0, 101.0])
    assert scale.high / scale.low >= 30
    assert abs(scale.at(100) - scale.at(101)) < 0.01


@pytest.mark.parametrize(
    ("begins_ms", "ends_ms", "labels"),
    [
        (OCTOBER_MS, OCTOBER_MS + 1_500, ["1 Oct", "00:00:00.2", "00:00:00.4", "00:00:00.6"]),
        (OCTOBER_MS, OCTOBER_MS + 5_000, ["1 Oct", "00:00:01", "00:00:02", "00:00:03"]),
        (OCTOBER_MS + HOUR_MS, OCTOBER_MS + HOUR_MS + 15 * MINUTE_MS, ["01:00", "01:02", "01:04", "01:06"]),
        (OCTOBER_MS, OCTOBER_MS + DAY_MS, ["1 Oct", "03:00", "06:00", "09:00"]),
        (OCTOBER_MS, OCTOBER_MS + 28 * DAY_MS, ["5 Oct", "12 Oct", "19 Oct", "26 Oct"]),  # Mondays
        (OCTOBER_MS, OCTOBER_MS + 200 * DAY_MS, ["Oct", "Nov", "Dec", "2027"]),
    ],
)
def test_the_time_axis_is_marked_at_round_times(begins_ms: int, ends_ms: int, labels: list[str]) -> None:
    ticks = svg.time_ticks(begins_ms, ends_ms)
    assert [tick.label for tick in ticks][:4] == labels
    assert len(ticks) <= 8
    assert all(begins_ms <= tick.value < ends_ms for tick in ticks)


@pytest.mark.parametrize("years", [1, 3, 10, 40])
def test_however_long_the_period_its_labels_do_not_crowd(years: int) -> None:
    assert 2 <= len(svg.time_ticks(OCTOBER_MS, OCTOBER_MS + years * 365 * DAY_MS)) <= 9


@pytest.mark.parametrize(("labels", "hidden"), [(2, 0), (4, 0), (5, 2), (8, 4)])
def test_labels_give_way_on_a_narrow_screen_only_where_they_are_many(labels: int, hidden: int) -> None:
    ticks = [svg.Tick(at, str(at)) for at in range(labels)]
    drawn = str(svg.baseline(svg.Frame(), svg.Scale(0, labels), ticks))
    assert (drawn.count("</text>"), drawn.count("odd")) == (labels, hidden)


def test_a_staircase_is_level_through_each_step_and_turns_only_where_it_must() -> None:
    assert 'd="M0,100H500V0H1000"' in svg.steps_line(FRAME, [0, 0, 1, 1], "line")


def test_an_area_is_closed_along_what_lies_under_it() -> None:
    assert 'd="M0,0H1000L1000,50H0Z"' in svg.steps_area(FRAME, [1, 1], "area", under=[0.5, 0.5])


def test_a_line_is_broken_where_nothing_is_known_and_a_lone_value_is_level() -> None:
    path = svg.trace(FRAME, [0.5, 1, None, 0, None], "line")
    assert 'd="M100,50L300,0M600,100h200"' in path


def test_the_smallest_bar_can_be_seen() -> None:
    (height,) = re.findall(r' height="([\d.]+)"', svg.bar(FRAME, 0, 1, 0.0000001, "bar", "one"))
    assert float(height) == 1.5


def test_text_cannot_break_out_of_a_tag() -> None:
    hostile = "\"'><script>alert(1)</script>&\x00\u202e"
    assert tag("p", hostile, title=hostile) == (
        '<p title="&quot;&#x27;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;\\u0000\\u202e">'
        "&quot;&#x27;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;\\u0000\\u202e</p>"
    )


def test_markup_is_not_escaped_twice_but_is_in_an_attribute() -> None:
    bold = tag("b", "a < b")
    assert joined(bold, " & ") == "<b>a &lt; b</b> &amp; "
    assert tag("i", title=bold) == '<i title="&lt;b&gt;a &amp;lt; b&lt;/b&gt;"></i>'
