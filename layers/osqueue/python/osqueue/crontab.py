"""When the ticks of a schedule are: of a crontab line in a time zone, or of an interval.

A line is meant as Debian's cron means it. Where clocks go forward, a time that does not exist comes when the gap is
over; where they go back, one that exists twice comes once, the first time. Only a line whose minute or hour begins with
``*`` goes by the hours that pass, in which nothing is left out or doubled.

It knows the tables of time zones and nothing else: the same question has the same answer, until a release of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, takewhile

Ticks = tuple[
    tuple[int, ...], int
]  # of a time, oldest first; and the first one behind it, 0 where there is none

MARGIN = timedelta(hours=3)  # by which an hour that is left out or doubled may displace a tick, and more
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


def ticks(cron: str, zone: str, every_ms: int, after_ms: int, until_ms: int, most: int) -> Ticks | None:
    """The latest ticks after one moment and up to another, at most so many, and the one that follows.

    None where nobody here knows the time zone, or the line.
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
    """A time zone by its name. Raises LookupError or ValueError for one that this machine does not know."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except OSError as error:  # a folder of the tables, or a name that no file can have
        raise LookupError(name) from error


def check(cron: str) -> None:
    """Is this a crontab line? Raises ValueError that says what is wrong with it."""
    if len(cron.split()) != 5:
        raise ValueError(
            "a crontab line has five fields: minute, hour, day of the month, month, day of the week"
        )
    if next(_from(cron, EPOCH, reverse=False), None) is None:
        raise ValueError("no day is ever like that")


def in_words(cron: str) -> str:
    """What a crontab line says, in English."""
    from cronsim import CronSim

    return CronSim(cron, EPOCH).explain()


def _ticks(cron: str, zone: tzinfo, after_ms: int, until_ms: int, most: int) -> Ticks:
    after, until = _moment(after_ms), _moment(until_ms)
    found: list[int] = []
    if most:
        back = takewhile(lambda at: at >= after, _from(cron, until.astimezone(zone), reverse=True))
        early = list(islice(back, most))
        start = max(after, min(early, default=after).astimezone(UTC) - MARGIN)
        for at in _from(cron, start.astimezone(zone), reverse=False):
            at_ms = _ms(at)
            if at_ms > until_ms:
                break
            if at_ms > max(
                after_ms, found[-1] if found else 0
            ):  # two lines of a day may meet at the end of a gap
                found.append(at_ms)
    following = (_ms(at) for at in _from(cron, until.astimezone(zone), reverse=False))
    return tuple(found[-most:] if most else found), next((at for at in following if at > until_ms), 0)


def _from(cron: str, at: datetime, *, reverse: bool) -> Iterator[datetime]:
    """The ticks from a moment on, to either side. Raises ValueError for what is no crontab line."""
    from cronsim import CronSim, CronSimError

    try:
        yield from CronSim(cron, at, reverse=reverse)
    except CronSimError as error:
        raise ValueError(str(error)) from error


def _moment(at_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at_ms)


def _ms(at: datetime) -> int:
    return (at.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)
