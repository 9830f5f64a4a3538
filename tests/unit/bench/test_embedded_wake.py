"""What the figures of waiting are made of."""

from __future__ import annotations

import pytest

from bench.embedded_wake import apart, percentile, times


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (90, 90), (99, 99), (100, 100)])
def test_a_percentile_of_a_hundred_values_is_the_one_at_its_rank(percent: int, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == value


def test_the_highest_percentile_of_a_few_values_is_the_largest() -> None:
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([7.0], 50) == 7.0


def test_times_are_in_milliseconds_and_measured_against_the_goals_of_their_place() -> None:
    goals = {("folder", 50): 10.0, ("folder", 99): 50.0, ("elsewhere", 90): 1.0}
    figures = list(times("folder", "woken", [0.01, 0.02, 0.03], goals, "3 jobs"))
    assert [(each.what, each.figure, each.mark) for each in figures] == [
        ("folder, woken, p50", 20.0, "missed"),
        ("folder, woken, p90", 30.0, ""),
        ("folder, woken, p99", 30.0, "met"),
    ]
    assert [each.note for each in figures] == ["3 jobs", "", ""]


def test_an_answer_belongs_to_the_completion_of_the_same_place() -> None:
    assert apart([1.5, 4.0], [1.0, 3.0]) == [0.5, 1.0]
