"""Hourly copies of heads.

    backup/<queue>/<shard>/<YYYY-MM-DDTHH>      the head's bytes as they were in that hour
    backup/<queue>/<shard>/damaged-<time>       a head that a restore replaced; kept until somebody deletes it
    backup/<queue>/<shard>/purged-<hour>-<…>    keys of jobs that were purged, for as long as a restore could find them

A head is small and everything it names is immutable, so a copy of it is a consistent copy of its shard. Collection
spares what the copies of the last day name, except tables that were merged since: their rows lie in those they became,
which a restore reads as well (``osqueue doctor --restore``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import UTC, datetime

from .. import limits
from ..commit.effects import All, Flow, QueueFlow
from ..commit.writer import HEAD
from ..core.encoding import decode_head
from ..core.state import State
from ..errors import Damaged, NewerFormat
from ..stores.base import (
    BACKUPS,
    Delete,
    Found,
    Get,
    List,
    Listed,
    Missing,
    Put,
    PutIfAbsent,
    Refused,
    Written,
)
from .layout import root_of, unavailable

FOLDER = BACKUPS
REPLACED = "damaged-"  # begins the name of a head that a restore replaced
PURGED = "purged-"  # begins the name of a list of purged jobs
PURGED_KEPT_MS = (
    limits.BACKUPS_KEPT_MS + limits.GC_HORIZON_MS
)  # the oldest copy, and what lay about when it was made
KEY_BYTES = 16
SPARED_MS = limits.DAY_MS  # what backups younger than this name is not collected


def folder_of(queue: str, shard: int) -> str:
    """Where the copies of one shard lie."""
    return f"{FOLDER}{queue}/{shard:02d}/"


def name_of(queue: str, shard: int, ms: int) -> str:
    """The copy of one hour."""
    return folder_of(queue, shard) + _hour(ms)


def _hour(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H")


def is_hourly(name: str) -> bool:
    """Is this the copy of an hour?"""
    return not name.rpartition("/")[2].startswith((REPLACED, PURGED))


def is_purge(name: str) -> bool:
    """Is this a list of purged jobs?"""
    return name.rpartition("/")[2].startswith(PURGED)


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
    known = f"{folder_of(queue, shard)}{PURGED}{_hour(now_ms - PURGED_KEPT_MS)}"
    found = yield from saved(queue, shard)
    old = tuple(each for each in found if each < (known if is_purge(each) else kept))
    if old:
        yield Delete(old)
    return isinstance(written, Written)


def saved(queue: str, shard: int) -> QueueFlow[list[str]]:
    """The names of a shard's copies, the oldest first, then those of replaced heads, then lists of purged jobs."""
    reply = yield List(folder_of(queue, shard))
    if not isinstance(reply, Listed):
        raise unavailable(reply, "the list of backups")
    return list(reply.keys)  # the copies of a week fit into one page, whatever stands behind them


def recent(queue: str, shard: int) -> QueueFlow[list[State]]:
    """The copies of the last day that can be read."""
    states: list[State] = []
    hourly = [each for each in (yield from saved(queue, shard)) if is_hourly(each)]
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


# ── Purged jobs ──────────────────────────────────────────────────────────────
def purge_list(queue: str, shard: int, now_ms: int, keys: Collection[bytes]) -> Put:
    """The list that lets every restore leave these jobs out, whatever objects still hold of them."""
    body = _listed(keys)
    digest = hashlib.sha256(body).hexdigest()[:12]  # a repeated purge writes the same list
    return Put(f"{folder_of(queue, shard)}{PURGED}{_hour(now_ms)}-{digest}", body)


def shorten_purge_list(note: Put, keys: Collection[bytes]) -> Put:
    """The same list with these jobs alone."""
    return Put(note.key, _listed(keys))


def _listed(keys: Collection[bytes]) -> bytes:
    return b"".join(sorted(keys))


def purged_keys(names: Collection[str]) -> Flow[frozenset[bytes]]:
    """The keys in lists of purged jobs. Raises Unavailable."""
    found: set[bytes] = set()
    for name in names:
        reply = yield Get(name)
        if isinstance(reply, Found):
            found.update(reply.body[at : at + KEY_BYTES] for at in range(0, len(reply.body), KEY_BYTES))
        elif not isinstance(reply, Missing):
            raise unavailable(reply, name)
    return frozenset(found)
