"""When ticks are: crontab lines against a walk over every minute, the two nights a year, and what is no line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue.crontab import NAMES, check, in_words, ticks

MINUTE = 60_000


def ms(text: str, zone: str = "UTC") -> int:
    """A moment."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def times(cron: str, zone: str, after: str, until: str, most: int = 100) -> list[str]:
    """The ticks between two moments of UTC."""
    found = ticks(cron, zone, 0, ms(after), ms(until), most)
    assert found is not None
    return [datetime.fromtimestamp(at / 1000, UTC).strftime("%d %H:%M") for at in found[0]]


def test_an_hour_that_does_not_exist_runs_at_its_end() -> None:
    line, night = "30 2 * * *", ("2026-03-27T12:00", "2026-03-30T12:00")
    assert times(line, "Europe/Berlin", *night) == ["28 01:30", "29 01:00", "30 00:30"]


def test_two_times_that_meet_at_the_end_of_the_gap_are_one_tick() -> None:
    assert times("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T12:00") == ["29 01:00"]


def test_an_hour_that_exists_twice_runs_once() -> None:
    line, night = "30 2 * * *", ("2026-10-24T12:00", "2026-10-26T12:00")
    assert times(line, "Europe/Berlin", *night) == ["25 00:30", "26 01:30"]


@pytest.mark.parametrize("asked", ["2026-10-25T00:31", "2026-10-25T01:15", "2026-10-25T01:31"])
def test_the_second_of_the_two_hours_brings_no_tick_back(asked: str) -> None:
    found = ticks("30 2 * * *", "Europe/Berlin", 0, ms("2026-10-25T00:30"), ms(asked), 5)
    assert found == ((), ms("2026-10-26T01:30"))


def test_every_half_hour_goes_by_the_hours_that_pass() -> None:
    found = times("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45", "2026-10-25T02:00")
    assert found == ["25 00:00", "25 00:30", "25 01:00", "25 01:30", "25 02:00"]


def test_of_many_the_latest_are_told_and_the_one_that_follows() -> None:
    found = ticks("* * * * *", "Asia/Kolkata", 0, ms("2025-01-01"), ms("2026-01-01T00:00:30"), 3)
    assert found == (
        (ms("2025-12-31T23:58"), ms("2025-12-31T23:59"), ms("2026-01-01")),
        ms("2026-01-01T00:01"),
    )


def test_an_interval_ticks_at_its_multiples() -> None:
    assert ticks("", "UTC", 15 * MINUTE, 0, 31 * MINUTE, 100) == ((15 * MINUTE, 30 * MINUTE), 45 * MINUTE)
    assert ticks("", "UTC", 15 * MINUTE, 0, 31 * MINUTE, 1) == ((30 * MINUTE,), 45 * MINUTE)
    assert ticks("", "UTC", 15 * MINUTE, 30 * MINUTE, 31 * MINUTE, 1) == ((), 45 * MINUTE)


def test_what_nobody_knows_here_has_no_ticks_and_breaks_nothing() -> None:
    for cron, zone in (("0 3 * * *", "Mars/Olympus"), ("0 3 * * *", "../etc/passwd"), ("0 3 * * X", "UTC")):
        assert ticks(cron, zone, 0, 0, 1, 1) is None


def test_without_tables_of_time_zones_utc_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise LookupError(name)

    monkeypatch.setattr("zoneinfo.ZoneInfo", gone)
    assert ticks("0 3 * * *", "Europe/Berlin", 0, 0, 1, 1) is None
    assert ticks("0 3 * * *", "UTC", 0, 0, 1, 1) == ((), 3 * 60 * MINUTE)


def test_a_day_that_seldom_comes_has_its_next_tick() -> None:
    assert ticks("0 0 29 2 *", "UTC", 0, ms("2026-01-01"), ms("2026-01-01"), 0) == ((), ms("2028-02-29"))
    assert ticks("0 3 * * *", "UTC", 0, 0, 253_402_300_799_000, 0) is None  # the calendar ends there


@pytest.mark.parametrize(
    "line",
    ["0 0 31 2,4,6,9,11 *", "0 3 * *", "0 0 3 * * *", "61 * * * *", "0 0 30 2 *", "", "@reboot", "a b c d e"],
)
def test_what_is_no_crontab_line_is_said_to_be_none(line: str) -> None:
    with pytest.raises(ValueError, match=r"field|Bad"):
        check(line)


def test_lines_are_told_in_words() -> None:
    assert in_words("0 3 * * 1-5") == "At 03:00 on Monday through Friday"
    for line in NAMES.values():
        check(line)


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "15,45", "30-35"]),
    st.sampled_from(["*", "2", "*/5", "1,2,3", "0-4"]),
    st.sampled_from(["*", "1", "29", "*/9"]),
    st.sampled_from(["*", "3,10"]),
    st.sampled_from(["*", "0", "1-5"]),
)


def walked(line: str, after: datetime, until: datetime) -> Iterator[int]:
    """Every minute of UTC, looked at one by one."""
    sets = [
        _values(text, low, high)
        for text, low, high in zip(line.split(), (0, 0, 1, 1, 0), (59, 23, 31, 12, 6), strict=True)
    ]
    both = line.split()[2].startswith("*") or line.split()[4].startswith("*")
    at = after.replace(second=0) + timedelta(minutes=1)
    while at <= until:
        day, week = at.day in sets[2], (at.weekday() + 1) % 7 in sets[4]
        here = (day and week) if both else (day or week)
        if at.minute in sets[0] and at.hour in sets[1] and at.month in sets[3] and here:
            yield round(at.timestamp() * 1000)
        at += timedelta(minutes=1)


def _values(text: str, low: int, high: int) -> set[int]:
    if text.startswith("*"):
        return set(range(low, high + 1, int(text[2:] or 1)))
    if "-" in text:
        first, last = text.split("-")
        return set(range(int(first), int(last) + 1))
    return {int(each) for each in text.split(",")}


def test_a_rare_line_is_followed_back_no_further_than_it_has_to_be() -> None:
    found = ticks("0 2 1 3,10 *", "UTC", 0, 1_767_225_600_000, 1_767_225_660_000, 10_000)
    assert found == ((), 1_772_330_400_000)


@settings(deadline=None, max_examples=60)
@given(FIELDS, st.integers(0, 60 * 24 * 365), st.integers(1, 60 * 24 * 2), st.sampled_from([1, 5, 10_000]))
def test_lines_say_what_a_walk_over_all_minutes_says(
    fields: tuple[str, ...], start: int, length: int, most: int
) -> None:
    line = " ".join(fields)
    after = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=start)
    until = after + timedelta(minutes=length)
    found = ticks(line, "UTC", 0, round(after.timestamp() * 1000), round(until.timestamp() * 1000), most)
    assert found is not None
    assert list(found[0]) == list(walked(line, after, until))[-most:]
