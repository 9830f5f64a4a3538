"""When ticks are: crontab lines against a walk over every minute, shifts of the clock, and what is no line."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue import crontab
from osqueue.crontab import NAMES, check, in_words, known_zones, ticks, zone_of

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


def named(line: str) -> Callable[[datetime], bool]:
    """Return whether a line names a time of a clock, by its five fields."""
    sets = [
        _values(text, low, high)
        for text, low, high in zip(line.split(), (0, 0, 1, 1, 0), (59, 23, 31, 12, 6), strict=True)
    ]
    both = line.split()[2].startswith("*") or line.split()[4].startswith("*")

    def names(at: datetime) -> bool:
        if at.second or at.minute not in sets[0] or at.hour not in sets[1] or at.month not in sets[3]:
            return False
        day, week = at.day in sets[2], (at.weekday() + 1) % 7 in sets[4]
        return (day and week) if both else (day or week)

    return names


def walked(line: str, after: datetime, until: datetime) -> Iterator[int]:
    """Every minute of UTC, looked at one by one."""
    names = named(line)
    at = after.replace(second=0) + timedelta(minutes=1)
    while at <= until:
        if names(at):
            yield round(at.timestamp() * 1000)
        at += timedelta(minutes=1)


def shown(line: str, zone: ZoneInfo, begin_s: int, end_s: int, step_s: int) -> Iterator[int]:
    """Yield the ticks of a line by reading the zone's clock at every step.

    A line with a star ticks when the clock shows a time that it names; another line when the clock first shows that
    time or a later one.
    """
    names, step = named(line), timedelta(seconds=step_s)
    star = any(field.startswith("*") for field in line.split()[:2])
    latest = datetime.fromtimestamp(begin_s, zone).replace(tzinfo=None)
    for at_s in range(begin_s + step_s, end_s + 1, step_s):
        clock = datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)
        passed = [clock] if star else [latest + step * n for n in range(1, (clock - latest) // step + 1)]
        if any(map(names, passed)):
            yield at_s * 1000
        latest = max(latest, clock)


@cache
def shifts() -> list[tuple[str, int]]:
    """Each shift since 1970 that is no whole number of hours, and one of each other length: its zone and second."""
    found: dict[tuple[int, ...], tuple[str, int]] = {}
    for name in sorted(known_zones()):
        for at_s in _shifts_of((files("tzdata") / "zoneinfo" / name).read_bytes()):
            before, after = [
                datetime.fromtimestamp(at_s - back, zone_of(name)).utcoffset() for back in (1, 0)
            ]
            assert before is not None
            assert after is not None
            by_s = (after - before) // timedelta(seconds=1)
            if by_s:
                found.setdefault((by_s, at_s) if by_s % 3600 else (by_s,), (name, at_s))
    return list(found.values())


def _shifts_of(table: bytes) -> list[int]:
    """Return the seconds since 1970 at which something changes, from the second block of a TZif file."""
    at = 0
    for width in (4, 8):
        utc, std, leap, times, types, chars = struct.unpack_from(">6l", table, at + 20)
        begin = at + 44
        at = begin + times * (width + 1) + types * 6 + chars + leap * (width + 4) + std + utc
    return [each for each in struct.unpack_from(f">{times}q", table, begin) if each > 0]


SHIFTED = st.tuples(
    st.sampled_from(["*", "0", "30", "*/15", "10,40", "0,44"]),
    st.sampled_from(["*", "0", "2", "23", "0-3", "1,2,3", "*/3", "*/2"]),
    st.sampled_from(["*", "*/2", "1", "31", "30"]),
    st.just("*"),
    st.sampled_from(["*", "0", "1-5"]),
)


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


def test_shifts_of_less_than_an_hour_are_among_those_tried() -> None:
    zones = {name for name, _ in shifts()}
    assert {"Australia/Lord_Howe", "Asia/Pyongyang", "Africa/Monrovia", "America/Caracas"} & zones
    assert len(shifts()) > 50


@settings(deadline=None, max_examples=100)
@given(st.data(), SHIFTED, st.integers(-8 * 60, 8 * 60))
def test_lines_near_a_shift_tick_as_the_clock_shows_them(
    data: st.DataObject, fields: tuple[str, ...], split: int
) -> None:
    zone, shift_s = data.draw(st.sampled_from(shifts()))
    line, begin_s, end_s, step_s = " ".join(fields), shift_s - 8 * 3600, shift_s + 8 * 3600, 60 - shift_s % 60
    wished = list(shown(line, ZoneInfo(zone), begin_s - 8 * 3600, end_s, step_s))
    middle_ms = shift_s * 1000 + split * MINUTE
    first = ticks(line, zone, 0, begin_s * 1000, middle_ms, 10_000)
    second = ticks(line, zone, 0, middle_ms, end_s * 1000, 10_000)
    assert first is not None
    assert second is not None
    assert [*first[0], *second[0]] == [at for at in wished if at > begin_s * 1000]
    assert not second[0] or first[1] == second[0][0]


@pytest.mark.parametrize(
    ("zone", "line", "night", "wished"),
    [
        ("Australia/Lord_Howe", "0 */3 * * *", "2026-10-03", ["13:30", "16:00", "19:00", "22:00"]),
        ("Australia/Lord_Howe", "*/15 2 * * *", "2026-04-04", ["15:30", "15:45", "16:00", "16:15"]),
        (
            "Pacific/Chatham",
            "45 */2 * * *",
            "2026-09-26",
            ["12:00", "15:00", "17:00", "19:00", "21:00", "23:00"],
        ),
        ("Pacific/Chatham", "0 3 * * *", "2026-09-26", ["14:00"]),
    ],
)
def test_zones_of_odd_minutes_keep_their_ticks(zone: str, line: str, night: str, wished: list[str]) -> None:
    found = times(line, zone, f"{night}T11:59", f"{night}T23:59")
    assert [each[3:] for each in found] == wished


@pytest.mark.parametrize(
    "line", ["*/90 * * * *", "0 */36 * * *", "0-30/61 * * * *", "0 0 */32 * *", "5,*/70 * * * *"]
)
def test_a_step_beyond_its_field_is_refused_with_the_remedy(line: str) -> None:
    with pytest.raises(ValueError, match=r"is longer than the field.*every="):
        check(line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("*/45 * * * *", "At minutes 0 and 45 of every hour"),
        ("0 */7 * * *", "At 00:00, 07:00, 14:00, and 21:00 every day"),
        ("*/15 * * * *", "Every 15th minute of every hour"),
        ("*/60 * * * *", "At the start of every hour"),
        ("0 0 * * */7", "At 00:00 on Sunday"),
    ],
)
def test_a_step_that_does_not_divide_its_field_is_shown_as_it_runs(line: str, words: str) -> None:
    check(line)
    assert in_words(line) == words


@pytest.mark.parametrize(
    "zone",
    [
        "localtime",
        "posixrules",
        "Factory",
        "posix/Europe/Berlin",
        "right/UTC",
        "/etc/localtime",
        "../UTC",
        "Europe/",
        "Company",
    ],
)
def test_zones_that_depend_on_the_machine_have_no_ticks(zone: str) -> None:
    assert ticks("0 3 * * *", zone, 0, 0, 1, 1) is None


def test_every_zone_of_the_iana_is_known_by_its_name() -> None:
    from zoneinfo import available_timezones

    assert available_timezones() - known_zones() <= {"Factory", "localtime"}


@pytest.mark.parametrize("tables", ["the machine's", "the package's"])
def test_a_zone_is_known_by_the_spelling_of_the_iana_alone(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = str(files("tzdata") / "zoneinfo")
    zoneinfo.reset_tzpath([package] if tables == "the machine's" else [])
    try:
        if tables == "the machine's":
            monkeypatch.setattr(crontab, "known_zones", frozenset)  # reads every name, and is not needed
        for name in ("UTC", "Europe/Berlin", "America/Argentina/Ushuaia"):
            assert crontab.is_known_zone(name)
        for name in ("Europe/berlin", "europe/Berlin", "Europe", "Europe/Nowhere", "zone.tab"):
            assert not crontab.is_known_zone(name)
    finally:
        zoneinfo.reset_tzpath()
