"""Hourly copies of heads.

    backup/<queue>/<shard>/<YYYY-MM-DDTHH>      the head's bytes as they were in that hour
    backup/<queue>/<shard>/damaged-<time>       a head that a restore replaced; kept until somebody deletes it

A head is small and everything it names is immutable, so a copy of it is a consistent copy of its shard. Collection
spares what the copies of the last day name, except tables that were merged since: their rows lie in those they became,
which a restore reads as well (``osqueue doctor --restore``).
"""

from __future__ import annotations

from datetime import UTC, datetime

from . import limits
from .commit.effects import All
from .commit.writer import HEAD
from .core.state import State
from .core.wire import decode_head
from .errors import Damaged, NewerFormat
from .shards import QueueFlow, root_of, unavailable
from .stores.base import Delete, Found, Get, List, Listed, Missing, PutIfAbsent, Refused, Written

FOLDER = "backup/"
REPLACED = "damaged-"  # begins the name of a head that a restore replaced
SPARED_MS = limits.DAY_MS  # what backups younger than this name is not collected


def folder_of(queue: str, shard: int) -> str:
    """Where the copies of one shard lie."""
    return f"{FOLDER}{queue}/{shard:02d}/"


def name_of(queue: str, shard: int, ms: int) -> str:
    """The copy of one hour."""
    return folder_of(queue, shard) + datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H")


def is_replaced(name: str) -> bool:
    """Is this the copy of a head that a restore replaced, and none of an hour?"""
    return name.rpartition("/")[2].startswith(REPLACED)


def save(queue: str, shard: int, now_ms: int) -> QueueFlow[bool]:
    """Copy the head, unless this hour has its copy, and drop copies that are too old. True: a copy was made."""
    name = name_of(queue, shard, now_ms)
    if not isinstance((yield Get(name, start=0, length=1)), Missing):
        return False
    head = yield Get(root_of(queue, shard) + HEAD)
    if not isinstance(head, Found):
        raise unavailable(head, "the queue's head")
    decode_head(head.body)  # what is damaged is no backup
    written = yield PutIfAbsent(name, head.body)
    if not isinstance(written, Written | Refused):
        raise unavailable(written, "room for a backup of the head")
    kept = name_of(queue, shard, now_ms - limits.BACKUPS_KEPT_MS)
    old = tuple(each for each in (yield from saved(queue, shard)) if each < kept)
    if old:
        yield Delete(old)
    return isinstance(written, Written)


def saved(queue: str, shard: int) -> QueueFlow[list[str]]:
    """The names of a shard's copies, the oldest first, and then those of replaced heads."""
    reply = yield List(folder_of(queue, shard))
    if not isinstance(reply, Listed):
        raise unavailable(reply, "the list of backups")
    return list(reply.keys)  # a week of hours is one page


def recent(queue: str, shard: int) -> QueueFlow[list[State]]:
    """The copies of the last day that can be read."""
    states: list[State] = []
    hourly = [each for each in (yield from saved(queue, shard)) if not is_replaced(each)]
    young = hourly[-(SPARED_MS // limits.HOUR_MS) :]
    for found in (yield All(tuple(map(Get, young)))) if young else ():
        if isinstance(found, Found):
            try:
                states.append(decode_head(found.body))
            except (Damaged, NewerFormat):
                continue  # of no use to anybody: nothing to spare for it
        elif not isinstance(found, Missing):
            raise unavailable(found, "a backup of the head")
    return states
