"""When the ticks of a schedule are: of a crontab line in a time zone, or of an interval.

A line is meant as Debian's cron means it. A line whose minute and hour are both fixed ticks when the clock first shows
its time or a later one. So a time that the clock skips comes at the end of the gap, and a time that the clock shows
twice comes once, the first time. A line whose minute or hour begins with ``*`` ticks whenever the clock shows a time of
it: it follows the hours that pass, and nothing is left out or doubled.

A time zone is known by the name that the IANA gives it. Apart from the release of the IANA's tables, nothing of the
machine has a part in a tick.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice, takewhile

Ticks = tuple[
    tuple[int, ...], int
]  # of a time, oldest first; and the first one behind it, 0 where there is none

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS
# Between a time of a clock, read as UTC, and its moment: at most a zone's offset and a day that its clocks skipped.
SPREAD_DAYS = 2
# As crontabs know them.
NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Each field of a line: its name, its least value, and how many values it has.
FIELDS = (
    ("minute", 0, 60),
    ("hour", 0, 24),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
# The IANA's names are an area and a place, or one of these words of its file `backward`. Other names, such as
# `localtime`, `posixrules` and `posix/Europe/Berlin`, are files of a machine.
_AREAS = (
    "Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Brazil|Canada|Chile|Etc|Europe|"
    "Indian|Mexico|Pacific|US"
)
_WORDS = (
    "CET|CST6CDT|Cuba|EET|EST|EST5EDT|Egypt|Eire|GB|GB-Eire|GMT|GMT[+-]?0|Greenwich|HST|Hongkong|Iceland|Iran|Israel|"
    "Jamaica|Japan|Kwajalein|Libya|MET|MST|MST7MDT|NZ|NZ-CHAT|Navajo|PRC|PST8PDT|Poland|Portugal|ROC|ROK|Singapore|"
    "Turkey|UCT|UTC|Universal|W-SU|WET|Zulu"
)
_ZONE_NAME = re.compile(rf"(?:{_AREAS})(?:/[A-Za-z0-9_+-]+)+|{_WORDS}")


def ticks(cron: str, zone: str, every_ms: int, after_ms: int, until_ms: int, most: int) -> Ticks | None:
    """Return the latest ticks after one moment and up to another, at most ``most``, and the tick that follows.

    None where this machine does not know the time zone, or the line is not a crontab line.
    """
    if every_ms:
        last = until_ms // every_ms
        first = max(after_ms // every_ms, last - most) + 1
        return tuple([count * every_ms for count in range(first, last + 1)]), (last + 1) * every_ms
    try:
        return _ticks(cron, zone_of(zone), after_ms, until_ms, most)
    except (ValueError, LookupError, ImportError, OverflowError):
        return None


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its name.

    Raises LookupError or ValueError for a name that is not the IANA's, or that this machine does not know.
    """
    if name == "UTC":
        return UTC
    if not is_zone_name(name):
        raise LookupError(name)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except OSError as error:  # a folder of the tables
        raise LookupError(name) from error


def is_zone_name(name: str) -> bool:
    """Return whether a name has the form of the IANA's names, and so means the same zone on each machine."""
    return _ZONE_NAME.fullmatch(name) is not None


def is_known_zone(name: str) -> bool:
    """Return whether this machine knows the time zone, spelled as the IANA spells it.

    A file system may ignore the case of a name, so it is looked up in the listings of its folders.
    """
    if name == "UTC":
        return True
    from zoneinfo import TZPATH

    for folder in TZPATH:
        if _is_listed(folder, name):
            with suppress(LookupError, ValueError):
                zone_of(name)
                return True
    return name in known_zones()  # of the package tzdata


def _is_listed(folder: str, name: str) -> bool:
    for part in name.split("/"):
        try:
            if part not in os.listdir(folder):
                return False
        except OSError:
            return False
        folder = os.path.join(folder, part)
    return True


@lru_cache(maxsize=1)
def known_zones() -> frozenset[str]:
    """Return the names of the time zones that this machine knows, each as the IANA spells it."""
    from zoneinfo import available_timezones

    return frozenset(filter(is_zone_name, available_timezones())) | {"UTC"}


def check(cron: str) -> None:
    """Raise ValueError that states what is wrong with a crontab line, if anything is."""
    fields = cron.split()
    if len(fields) != len(FIELDS):
        raise ValueError(
            "a crontab line has five fields: minute, hour, day of the month, month, day of the week"
        )
    for text, (name, _, size) in zip(fields, FIELDS, strict=True):
        for term in text.split(","):
            step = term.partition("/")[2]
            if step.isdecimal() and int(step) > size:
                raise ValueError(
                    f"the step {term} is longer than the field: there are {size} values of the {name}. A step begins"
                    " again at each turn of its field; for an interval use every=…"
                )
    _times_of_day(*fields[:2])
    if next(_days(cron, EPOCH, reverse=False), None) is None:
        raise ValueError("no day is ever like that")


def in_words(cron: str) -> str:
    """Return a crontab line in English. A step that does not divide its field is written as the values it has."""
    from cronsim import CronSim

    fields = [
        _spelled(text, least, size) for text, (_, least, size) in zip(cron.split(), FIELDS, strict=True)
    ]
    return CronSim(" ".join(fields), EPOCH).explain()


def _spelled(text: str, least: int, size: int) -> str:
    step = text[2:] if text.startswith("*/") else ""
    if not step.isdecimal() or (int(step) < size and size % int(step) == 0):
        return text
    return ",".join(map(str, range(least, least + size, int(step))))


def _ticks(cron: str, zone: tzinfo, after_ms: int, until_ms: int, most: int) -> Ticks:
    found: list[int] = []
    if most:
        back = takewhile(lambda at: at > after_ms, _from(cron, zone, until_ms, reverse=True))
        found = list(islice(back, most))[::-1]
    return tuple(found), next(_from(cron, zone, until_ms, reverse=False), 0)


def _from(cron: str, zone: tzinfo, start_ms: int, *, reverse: bool) -> Iterator[int]:
    """Yield the ticks after a moment, or, in reverse, those at it and before it, the latest first.

    The days are those of the zone's clock. Around a shift of the clock the ticks of two days may be mixed. So such a
    tick is kept until no further day can have one that comes first.
    """
    minute, hour = cron.split()[:2]
    times = _times_of_day(minute, hour)
    sign = -1 if reverse else 1
    kept: set[int] = set()
    begin = EPOCH + timedelta(milliseconds=start_ms) - sign * timedelta(days=SPREAD_DAYS + 1)
    for day in _days(cron, begin, reverse=reverse):
        midnight_ms = _ms(day)
        offset_ms = _steady_offset_ms(zone, midnight_ms)
        limit = midnight_ms - sign * SPREAD_DAYS * DAY_MS
        first = sorted(at for at in kept if offset_ms is not None or sign * at < sign * limit)
        yield from first[::sign]
        kept.difference_update(first)
        if offset_ms is None:
            found = _of_day(minute, hour, zone, midnight_ms)
            kept.update(at for at in found if (at <= start_ms if reverse else at > start_ms))
            continue
        shift_ms = midnight_ms - offset_ms
        split = bisect_right(times, start_ms - shift_ms)
        yield from (shift_ms + at for at in (times[:split][::-1] if reverse else times[split:]))
    yield from sorted(kept)[::sign]


def _days(cron: str, begin: datetime, *, reverse: bool) -> Iterator[datetime]:
    """Yield the days of a line, each by its midnight. Raises ValueError for a line that is not a crontab line."""
    from cronsim import CronSim, CronSimError

    try:
        yield from CronSim(" ".join(["0 0", *cron.split()[2:]]), begin, reverse=reverse)
    except CronSimError as error:
        raise ValueError(str(error)) from error


@lru_cache(maxsize=256)
def _times_of_day(minute: str, hour: str) -> tuple[int, ...]:
    """Return the times of a day that two fields name, in milliseconds after midnight."""
    from cronsim import CronSim, CronSimError

    try:
        times = CronSim(f"{minute} {hour} * * *", EPOCH - timedelta(seconds=1))
    except CronSimError as error:
        raise ValueError(str(error)) from error
    return tuple(takewhile(lambda at_ms: at_ms < DAY_MS, map(_ms, times)))


def _steady_offset_ms(zone: tzinfo, midnight_ms: int) -> int | None:
    """Return the zone's offset on a day of its clock, or None where a shift is so near that days may be mixed."""
    days = range(-SPREAD_DAYS + 1, SPREAD_DAYS + 1)
    around = {_offset_ms(zone, midnight_ms + day * DAY_MS) for day in days}
    return around.pop() if len(around) == 1 else None


@lru_cache(maxsize=256)
def _of_day(minute: str, hour: str, zone: tzinfo, midnight_ms: int) -> tuple[int, ...]:
    """Return the moments that two fields name on a day of the zone's clock, near a shift of it."""
    walls = [midnight_ms + at for at in _times_of_day(minute, hour)]
    if minute.startswith("*") or hour.startswith("*"):
        return tuple([at_ms for wall_ms in walls for at_ms in _moments(zone, wall_ms)])
    return tuple([_first(zone, wall_ms) for wall_ms in walls])


def _moments(zone: tzinfo, wall_ms: int) -> set[int]:
    """Return the moments at which the zone's clock shows a time: none, one or two."""
    return {at_ms for at_ms in _readings(zone, wall_ms) if at_ms + _offset_ms(zone, at_ms) == wall_ms}


def _first(zone: tzinfo, wall_ms: int) -> int:
    """Return the first moment at which the zone's clock shows a time, or the end of the gap in which it lies."""
    if found := _moments(zone, wall_ms):
        return min(found)
    later_ms, before_ms = _readings(zone, wall_ms)  # on either side of the shift
    while later_ms - before_ms > SECOND_MS:
        middle_ms = (later_ms + before_ms) // 2 // SECOND_MS * SECOND_MS
        if middle_ms + _offset_ms(zone, middle_ms) < wall_ms:
            before_ms = middle_ms
        else:
            later_ms = middle_ms
    return later_ms


def _readings(zone: tzinfo, wall_ms: int) -> tuple[int, int]:
    """Return the two moments that a time of the clock may be: with the offset before a shift, and after it."""
    wall = EPOCH + timedelta(milliseconds=wall_ms)
    return _ms(wall.replace(tzinfo=zone, fold=0)), _ms(wall.replace(tzinfo=zone, fold=1))


def _offset_ms(zone: tzinfo, at_ms: int) -> int:
    offset = (EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone).utcoffset()
    return (offset or timedelta()) // timedelta(milliseconds=1)


def _ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)
