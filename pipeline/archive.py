"""The archive hour by hour: which hours a queue has, in which parts. What is in a part the library knows."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from msgspec import Struct

from osqueue.archive import ROOT, folder_of
from osqueue.commit.effects import Flow
from osqueue.shards import unavailable
from osqueue.stores.base import List, Listed
from osqueue.validation import is_queue_name

SUFFIX = ".jsonl.gz"
HOUR_MS = 3_600_000
_AFTER = "~"  # sorts after whatever lies in a queue's folder
_PARTITION = re.compile(r"queue=([^/]+)/date=(\d{4}-\d\d-\d\d)/hour=(\d\d?)")


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
    """The partition of an hour, as a folder."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"queue={queue}/{at:date=%Y-%m-%d}/hour={at.hour}"


def begin_of(partition: str) -> int | None:
    """When the hour of a partition begins, where ``hour=07`` is ``hour=7``; None: it is a folder of somebody else's."""
    found = _PARTITION.fullmatch(partition)
    if found is None:
        return None
    try:
        begin = datetime.fromisoformat(f"{found[2]}T{int(found[3]):02d}:00:00+00:00")
    except ValueError:  # no such day or hour
        return None
    return round(begin.timestamp() * 1000)


def day_of(at_ms: int) -> str:
    """The folder of a moment's day: what sorts after it is of that day or a later one."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):date=%Y-%m-%d}"


def queues_of() -> Flow[list[str]]:
    """The queues that have an archive."""
    found: list[str] = []
    after = ""
    while True:
        listed = yield List(ROOT, after=after, limit=1)
        if not isinstance(listed, Listed):
            raise unavailable(listed, "the list of the archive")
        if not listed.keys:
            return found
        folder = listed.keys[0].removeprefix(ROOT).partition("/")[0]
        name = folder.removeprefix("queue=")
        if folder.startswith("queue=") and is_queue_name(name):
            found.append(name)
        after = f"{ROOT}{folder}/{_AFTER}"


def hours(queue: str, since_ms: int | None, until_ms: int | None) -> Flow[list[Hour]]:
    """The hours of a range that have parts, in order. Whatever else lies there is left out."""
    folder = folder_of(queue)
    found: dict[int, list[str]] = {}
    after = folder if since_ms is None else f"{folder}{day_of(since_ms)}"
    last = folder + _AFTER if until_ms is None else f"{folder}{day_of(until_ms)}/{_AFTER}"
    while True:
        listed = yield List(folder, after=after)
        if not isinstance(listed, Listed):
            raise unavailable(listed, f"the list of {folder}")
        for key in listed.keys:
            at = begin_of(key.removeprefix(ROOT).rpartition("/")[0])
            if at is not None and key.endswith(SUFFIX) and _inside(at, since_ms, until_ms):
                found.setdefault(at, []).append(key)
        if not listed.more or listed.keys[-1] > last:
            return [Hour(at, queue, tuple(sorted(found[at], key=_name))) for at in sorted(found)]
        after = listed.keys[-1]


def _inside(at: int, since_ms: int | None, until_ms: int | None) -> bool:
    return (since_ms is None or at >= since_ms) and (until_ms is None or at < until_ms)


def _name(key: str) -> str:
    return key.rpartition("/")[2]
