"""What a run has not finished: marks in the tables' folder, so that a later run takes up what a killed one left.

    <tables>/_unfinished/queue=<queue>/<since>-<until>         hours of a queue, in milliseconds since 1970

A run sets a mark for each queue before it writes, moves its beginning as it gets on, and removes it at the end, with
those that runs before it have left within the same hours.
"""

from __future__ import annotations

import re

from msgspec import Struct

from osqueue.commit.effects import Flow
from osqueue.inventory import keys
from osqueue.shards import unavailable
from osqueue.stores.base import Delete, Deleted, Put, Written

FOLDER = "_unfinished/"
_KEY = re.compile(re.escape(FOLDER) + r"queue=([^/]+)/(\d+)-(\d+)")


class Mark(Struct, frozen=True):
    """Hours of a queue that a run is at."""

    queue: str
    since_ms: int
    until_ms: int

    @property
    def key(self) -> str:
        return f"{FOLDER}queue={self.queue}/{self.since_ms}-{self.until_ms}"


def marks() -> Flow[list[Mark]]:
    """What runs have begun and not ended: killed ones, and those still at it."""
    named = map(_KEY.fullmatch, (yield from keys(FOLDER)))
    return [Mark(found[1], int(found[2]), int(found[3])) for found in named if found]


def move(old: Mark | None, new: Mark | None) -> Flow[None]:
    """Set a mark in the place of another; None: there was none, or there is to be none. Raises Unavailable."""
    if new is not None and new != old:
        reply = yield Put(new.key, b"")
        if not isinstance(reply, Written):
            raise unavailable(reply, new.key)
    if old is not None and new != old:
        reply = yield Delete((old.key,))
        if not isinstance(reply, Deleted):
            raise unavailable(reply, old.key)
