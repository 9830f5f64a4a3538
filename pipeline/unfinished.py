"""What a run has not finished: marks in the tables' folder, so that a later run takes up what a killed one left.

    <tables>/_unfinished/queue=<queue>/<since>-<until>             hours of a queue, in milliseconds since 1970
    <tables>/_unfinished/queue=<queue>/<since>-<until>-emptied     those without parts in the archive are to be emptied

A run sets a mark for each queue before it writes, moves its beginning as it gets on, and removes it at the end, with
those that runs before it have left and that it has covered. A run that skips hours leaves a mark for them.
"""

from __future__ import annotations

import re

from msgspec import Struct

from osqueue.commit.effects import Flow
from osqueue.inventory import keys
from osqueue.shards import unavailable
from osqueue.stores.base import Delete, Deleted, Put, Written

FOLDER = "_unfinished/"
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


def marks() -> Flow[list[Mark]]:
    """What runs have begun and not ended: killed ones, and those still at it. Raises Unavailable."""
    named = map(_KEY.fullmatch, (yield from keys(FOLDER)))
    return [Mark(found[1], int(found[2]), int(found[3]), bool(found[4])) for found in named if found]


def move(old: set[Mark], new: set[Mark]) -> Flow[None]:
    """Set some marks in the place of others. Raises Unavailable."""
    for mark in sorted(new - old, key=lambda each: each.key):
        reply = yield Put(mark.key, b"")
        if not isinstance(reply, Written):
            raise unavailable(reply, mark.key)
    if gone := tuple(sorted(each.key for each in old - new)):
        reply = yield Delete(gone)
        if not isinstance(reply, Deleted):
            raise unavailable(reply, gone[0])
