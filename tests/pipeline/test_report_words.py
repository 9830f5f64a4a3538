"""How the report writes numbers, spans and times."""

from __future__ import annotations

import pytest

from osqueue.pipeline.report import words
from osqueue.pipeline.report.model import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, ReviewPage, step_for

OCTOBER_MS = 1_790_812_800_000  # Thursday, 1 October 2026, midnight


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (999.7, "1k"),
        (1_000, "1k"),
        (18_239, "18.2k"),
        (1_250_000, "1.25M"),
        (0.25, "0.25"),
        (99.96, "100"),
    ],
)
def test_a_short_number_has_three_digits(number: float, text: str) -> None:
    assert words.short(number) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (340, "340 ms"),
        (2_500, "2.5 s"),
        (59_999, "1 min"),
        (90_000, "1 min 30 s"),
        (HOUR_MS, "1 h"),
        (3_599_999, "1 h"),
        (72 * MINUTE_MS, "1 h 12 min"),
        (DAY_MS - 1, "1 d"),
        (9 * DAY_MS + 6 * HOUR_MS, "9 d 6 h"),
    ],
)
def test_a_span_is_told_in_its_natural_unit(ms: float | None, text: str) -> None:
    assert words.span(ms) == text


@pytest.mark.parametrize(
    ("number", "span_ms", "text"),
    [
        (1_236, DAY_MS, "51.5 an hour"),
        (120, HOUR_MS, "120 an hour"),
        (120, HOUR_MS - 1, "2 a minute"),
        (18_239, 30 * SECOND_MS, "608 a second"),
        (3, 100, "30 a second"),
        (0, 0, "0 a second"),
    ],
)
def test_a_rate_is_told_for_a_time_no_longer_than_what_was_seen(number: int, span_ms: int, text: str) -> None:
    assert words.rate(number, span_ms) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [(None, "–"), (0, "0 %"), (1, "100 %"), (0.00001, "<0.1 %"), (0.99999, ">99.9 %"), (0.5, "50.0 %")],
)
def test_a_share_that_is_not_all_never_reads_as_all(part: float | None, text: str) -> None:
    assert words.percent(part) == text


@pytest.mark.parametrize(
    ("begins_ms", "ends_ms", "text"),
    [
        (OCTOBER_MS, OCTOBER_MS + DAY_MS, "1 Oct 2026"),
        (OCTOBER_MS, OCTOBER_MS + 7 * DAY_MS, "1 Oct 2026 to 7 Oct 2026"),
        (OCTOBER_MS + HOUR_MS, OCTOBER_MS + 2 * HOUR_MS, "1 Oct 2026 01:00 to 02:00"),
        (OCTOBER_MS + 1_500, OCTOBER_MS + 27_000, "1 Oct 2026 00:00:01 to 00:00:27"),
        (OCTOBER_MS + HOUR_MS, OCTOBER_MS + DAY_MS + HOUR_MS, "1 Oct 2026 01:00 to 2 Oct 2026 01:00"),
    ],
)
def test_a_period_is_no_longer_than_it_need_be(begins_ms: int, ends_ms: int, text: str) -> None:
    assert words.period(begins_ms, ends_ms) == text


def test_a_step_names_its_day_only_where_there_are_several() -> None:
    within = ReviewPage(OCTOBER_MS, OCTOBER_MS + DAY_MS, HOUR_MS, 0)
    beyond = ReviewPage(OCTOBER_MS, OCTOBER_MS + DAY_MS + 1, HOUR_MS, 0)
    assert words.when(OCTOBER_MS + HOUR_MS, within) == "01:00"
    assert words.when(OCTOBER_MS + HOUR_MS, beyond) == "Thu 1 Oct 01:00"


def test_a_moment_may_be_told_finer_than_the_steps_are() -> None:
    of_days = ReviewPage(OCTOBER_MS, OCTOBER_MS + 400 * DAY_MS, DAY_MS, 0)
    assert words.when(OCTOBER_MS + HOUR_MS, of_days) == "Thu 1 Oct"
    assert words.when(OCTOBER_MS + HOUR_MS, of_days, MINUTE_MS) == "Thu 1 Oct 01:00"


@pytest.mark.parametrize(
    ("span_ms", "step_ms"),
    [
        (0, 100),
        (27_000, 200),
        (180_000, SECOND_MS),
        (HOUR_MS, 30 * SECOND_MS),
        (7 * DAY_MS, HOUR_MS),
        (92 * DAY_MS, 12 * HOUR_MS),
        (3_660 * DAY_MS, 19 * DAY_MS),
    ],
)
def test_a_period_of_any_length_has_few_enough_steps(span_ms: int, step_ms: int) -> None:
    assert step_for(span_ms) == step_ms


def test_days_that_follow_one_another_are_one_period() -> None:
    first, second, fourth = (OCTOBER_MS + day * DAY_MS for day in (0, 1, 3))
    assert words.days([first]) == "1 Oct 2026"
    assert words.days([first, second, fourth]) == "1 Oct 2026 to 2 Oct 2026, 4 Oct 2026"
    assert words.days([first, second, fourth, fourth + 2 * DAY_MS], most=2).endswith(" and 1 more day")


@pytest.mark.parametrize(
    ("now", "was", "text"),
    [
        (112.4, 100, "+12.4 %"),
        (97, 100, "\N{MINUS SIGN}3.0 %"),
        (350, 100, "+250 %"),
        (1_400, 100, "× 14"),
        (100_001, 100_000, "about the same"),
        (5, 5, "same"),
        (0, 0, "same"),
        (5, 0, ""),
        (0, 5, "\N{MINUS SIGN}100 %"),
    ],
)
def test_a_change_is_told_in_parts_of_what_was(now: float, was: float, text: str) -> None:
    assert words.change(now, was) == text


@pytest.mark.parametrize(
    ("now", "was", "text"),
    [(0.024, 0.02, "+0.4 points"), (0, 1, "\N{MINUS SIGN}100 points"), (0.3, 0.3, "same")],
)
def test_a_change_of_a_share_is_told_in_points(now: float, was: float, text: str) -> None:
    assert words.points(now, was) == text
