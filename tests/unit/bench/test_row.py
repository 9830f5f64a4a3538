"""Rows of figures, and the table that they make."""

from __future__ import annotations

import math

from bench.row import Figure, at_least, at_most, exactly, quantity, ratio, table


def test_a_goal_that_is_just_reached_is_met() -> None:
    assert (at_least("a", 2.0, 2.0).mark, at_least("a", 1.99, 2.0).mark) == ("met", "missed")
    assert (at_most("a", 2.0, 2.0).mark, at_most("a", 2.01, 2.0).mark) == ("met", "missed")
    assert (exactly("a", 0, 0, "calls").mark, exactly("a", 1, 0, "calls").mark) == ("met", "missed")


def test_over_nothing_every_ratio_is_infinite() -> None:
    assert ratio(3.0, 1.5) == 2.0
    assert math.isinf(ratio(3.0, 0.0))


def test_quantities_have_the_digits_that_matter() -> None:
    figures = [(0.256, "x"), (12.345, "ms"), (123.45, "ms"), (1234.5, "jobs/s"), (7.0, "calls")]
    assert [quantity(*figure) for figure in figures] == [
        "0.26 x",
        "12.35 ms",
        "123.5 ms",
        "1,234 jobs/s",
        "7 calls",
    ]


def test_a_table_aligns_its_columns_and_ends_no_line_with_spaces() -> None:
    rows = [Figure("jobs", 1500.0, "jobs/s"), at_least("over the other", 2.5, 3.0, note="1.00 to 4.00")]
    assert table(rows).splitlines() == [
        "  jobs            1,500 jobs/s",
        "  over the other        2.50 x  ≥ 3  missed  1.00 to 4.00",
    ]
