"""What a run has not finished: marks in the tables' folder, so that a later run takes up what a killed one left.

    <tables>/_unfinished/queue=<queue>/<since>-<until>             hours of a queue, in milliseconds since 1970
    <tables>/_unfinished/queue=<queue>/<since>-<until>-emptied     those without parts in the archive are to be emptied
    <tables>/_unfinished/aside/<part>                              a part that could not be read, as archive/<part>

A run sets a mark for each queue before it writes, moves its beginning as it gets on, and removes it at the end, with
those that runs before it have left and that it has covered. A run that skips hours leaves a mark for them.

A part that is set aside leaves one of its own, which costs later runs no more than a look at this part: its hour, and
what follows, is done again only when it can be read. The mark goes then, or with the part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from msgspec import Struct

from ..commit.effects import Flow
from ..objects.archive import ROOT
from ..objects.inventory import keys
from ..objects.layout import unavailable
from ..stores.base import Delete, Deleted, Put, Written
from .archive import HOUR_MS, begin_of

FOLDER = "_unfinished/"
SKIPPED = f"{FOLDER}aside/"
UNREAD_MAX = 100  # of a queue, the oldest: every run looks at each
_KEY = re.compile(re.escape(FOLDER) + r"queue=([^/]+)/(\d+)-(\d+)(-emptied)?")


class Mark(Struct, frozen=True):
    """Hours of a queue that a run is at."""

    queue: str
    since_ms: int
    until_ms: int
    emptied: bool = False  # also hours that the archive has no more

    @property
    def key(self) -> str:
        """Where it is kept."""
        suffix = "-emptied" if self.emptied else ""
        return f"{FOLDER}queue={self.queue}/{self.since_ms}-{self.until_ms}{suffix}"


class Unread(Struct, frozen=True):
    """A part of the archive that could not be read: its hour is in the tables without it."""

    hour: Mark
    part: str  # its key in the archive

    @property
    def key(self) -> str:
        """Where it is kept."""
        return SKIPPED + self.part.removeprefix(ROOT)


def unread(parts: Iterable[str]) -> set[Unread]:
    """The marks of some parts."""
    found = set()
    for part in parts:
        partition = part.removeprefix(ROOT).rpartition("/")[0]
        at = begin_of(partition)
        if at is not None:
            queue = partition.partition("/")[0].removeprefix("queue=")
            found.add(Unread(Mark(queue, at, at + HOUR_MS), part))
    return found


def oldest(found: Iterable[Unread]) -> set[Unread]:
    """Those that are kept: no more than UNREAD_MAX of each queue."""
    queues: dict[str, list[Unread]] = {}
    for each in sorted(found, key=lambda each: (each.hour.since_ms, each.part)):
        queues.setdefault(each.hour.queue, []).append(each)
    return {each for own in queues.values() for each in own[:UNREAD_MAX]}


def set_aside() -> Flow[set[Unread]]:
    """What runs could not read. Raises Unavailable."""
    return unread([ROOT + key.removeprefix(SKIPPED) for key in (yield from keys(SKIPPED))])


def marks() -> Flow[list[Mark]]:
    """What runs have begun and not ended: killed ones, and those still at it. Raises Unavailable."""
    named = map(_KEY.fullmatch, (yield from keys(FOLDER)))
    return [Mark(found[1], int(found[2]), int(found[3]), bool(found[4])) for found in named if found]


def move(old: Set[Mark | Unread], new: Set[Mark | Unread]) -> Flow[None]:
    """Set some marks in the place of others. Raises Unavailable."""
    for mark in sorted(new - old, key=lambda each: each.key):
        reply = yield Put(mark.key, b"")
        if not isinstance(reply, Written):
            raise unavailable(reply, mark.key)
    if gone := tuple(sorted(each.key for each in old - new)):
        reply = yield Delete(gone)
        if not isinstance(reply, Deleted):
            raise unavailable(reply, gone[0])
