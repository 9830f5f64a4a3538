"""What there is by queue and hour, in the archive and in tables. What is in a part of the archive the library knows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from ..commit.effects import Flow
from ..model.validation import is_queue_name
from ..objects.archive import ROOT
from ..objects.layout import unavailable
from ..stores.base import List, Listed

SUFFIX = ".jsonl.gz"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_AFTER = "\U0010ffff"  # sorts after whatever lies in a folder
_HOUR = re.compile(r"queue=([^/]+)/date=(\d{4}-\d\d-\d\d)/hour=(\d\d?)")


class Hour(Struct, frozen=True, order=True):
    """One hour of a queue."""

    at_ms: int  # when it begins
    queue: str
    parts: tuple[str, ...] = ()  # keys of its objects, in order; none: the archive has nothing of it

    @property
    def partition(self) -> str:
        """Where its jobs go."""
        return partition_of(self.queue, self.at_ms)


def partition_of(queue: str, at_ms: int) -> str:
    """The partition of the tables that a moment of a queue falls into, as a folder: a day."""
    return f"queue={queue}/{_day_of(at_ms)}"


def begin_of(folder: str) -> int | None:
    """When the hour of a folder begins, where ``hour=07`` is ``hour=7``; None: it is a folder of somebody else's."""
    found = _HOUR.fullmatch(folder)
    if found is None:
        return None
    try:
        begin = datetime.fromisoformat(f"{found[2]}T{int(found[3]):02d}:00:00+00:00")
    except ValueError:  # no such day or hour
        return None
    return round(begin.timestamp() * 1000)


def hour_of(part: str) -> int:
    """When the hour of a part begins, which lies in one."""
    at = begin_of(part.removeprefix(ROOT).rpartition("/")[0])
    assert at is not None
    return at


def hour_of_day(at_ms: int) -> int:
    """Which hour of its day a moment falls into, 0 to 23."""
    return at_ms % DAY_MS // HOUR_MS


def queues_of(folder: str = ROOT) -> Flow[list[str]]:
    """The queues that the archive, or a table in a folder of its own, tells of. Raises Unavailable."""
    found: list[str] = []
    after = ""
    while True:
        listed = yield List(folder, after=after, limit=1)
        if not isinstance(listed, Listed):
            raise unavailable(listed, f"the list of {folder}")
        if not listed.keys:
            return found
        first = listed.keys[0].removeprefix(folder).partition("/")[0]
        name = first.removeprefix("queue=")
        if first.startswith("queue=") and is_queue_name(name):
            found.append(name)
        after = f"{folder}{first}/{_AFTER}"


def hours(queue: str, since_ms: int | None, until_ms: int | None) -> Flow[list[Hour]]:
    """The hours of a range that have parts, in order. Whatever else lies there is left out. Raises Unavailable."""
    found: dict[int, list[str]] = {}
    for key in (yield from days_of(ROOT, queue, since_ms, until_ms)):
        at = begin_of(key.removeprefix(ROOT).rpartition("/")[0])
        if at is not None and key.endswith(SUFFIX) and inside(at, since_ms, until_ms):
            found.setdefault(at, []).append(key)
    return [Hour(at, queue, in_order(found[at])) for at in sorted(found)]


def in_order(parts: Iterable[str]) -> tuple[str, ...]:
    """The parts of an hour as they are read: by their names, whatever folder of it they lie in."""
    return tuple(sorted(parts, key=_name))


def days_of(folder: str, queue: str, since_ms: int | None, until_ms: int | None) -> Flow[list[str]]:
    """What lies in a queue's folders from the day of one moment to that of another, in the archive or a table."""
    whole = f"{folder}queue={queue}/"
    after = whole if since_ms is None else f"{whole}{_day_of(since_ms)}"
    last = whole + (_AFTER if until_ms is None else f"{_day_of(until_ms)}/{_AFTER}")
    own = whole
    if since_ms is not None and until_ms is not None and _day_of(since_ms) == _day_of(until_ms - 1):
        own = f"{after}/"  # one day: nothing else is listed
    found: list[str] = []
    while True:
        listed = yield List(own, after=after)
        if not isinstance(listed, Listed):
            raise unavailable(listed, f"the list of {own}")
        found += listed.keys
        if not listed.more or found[-1] > last:
            return found
        after = found[-1]


def inside(at_ms: int, since_ms: int | None, until_ms: int | None) -> bool:
    """Is a moment in a range, which may have no beginning or no end?"""
    return (since_ms is None or at_ms >= since_ms) and (until_ms is None or at_ms < until_ms)


def _day_of(at_ms: int) -> str:
    """The folder of a moment's day."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):date=%Y-%m-%d}"


def _name(key: str) -> str:
    return key.rpartition("/")[2]
