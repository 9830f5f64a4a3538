"""The workers of a queue, by their own word: an object for each, which nobody else writes.

    <root of the first shard>workers/<id>     what a worker says of itself, again and again for as long as it runs

They lie beside the heads: a worker costs its queue no commit and no room, and a job nothing. The store's time of an
object says when its worker was heard of last. A worker that ends takes its object away. One that crashes leaves it,
which is evidence: it is shown for ``KEPT_MS`` after the last word, and then the reaper removes it.

Nothing depends on these objects. They may be lost, late or wrong, and one that cannot be read is passed over.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from .. import limits
from ..commit.effects import Flow
from ..commit.retry import OBJECT, ask_all
from ..core.encoding import encode, frame, unframe
from ..errors import Damaged, NewerFormat, Rejected
from ..model.worker import WorkerEntry, check_entry
from ..stores.base import Delete, Deleted, DeleteIfMatch, Found, Get, Missing, Put, Refused, Written
from .inventory import keys
from .layout import root_of, unavailable

FOLDER = "workers/"
MAGIC = b"OSQW"
KEPT_MS = limits.HOUR_MS  # after its last word: for how long a worker is shown that says nothing any more

_decode = msgspec.msgpack.Decoder(WorkerEntry).decode


class FoundWorker(Struct, frozen=True):
    """A worker's entry as it was found."""

    id: str
    entry: WorkerEntry
    seen_ms: int  # when the store says it was written


def folder_of(queue: str) -> str:
    """Where the entries of a queue's workers lie."""
    return root_of(queue, 0) + FOLDER


def write(queue: str, worker_id: str, entry: WorkerEntry) -> Flow[None]:
    """Put down what a worker says of itself. Raises Unavailable: it says it again soon, so nothing is repeated here."""
    reply = yield Put(folder_of(queue) + worker_id, frame(MAGIC, encode(entry)), durable=False)
    if not isinstance(reply, Written):
        raise unavailable(reply, "room for the worker's entry")


def remove(queue: str, worker_id: str) -> Flow[None]:
    """Take a worker's entry away. Raises Unavailable."""
    reply = yield Delete((folder_of(queue) + worker_id,))
    if not isinstance(reply, Deleted):
        raise unavailable(reply, "leave to remove the worker's entry")


def entries(queue: str) -> Flow[list[FoundWorker]]:
    """All entries that can be read. Raises Unavailable."""
    folder = folder_of(queue)
    places = yield from keys(folder)
    found = []
    for place, reply in zip(
        places, (yield from ask_all([Get(each) for each in places], OBJECT)), strict=True
    ):
        if isinstance(reply, Missing):  # it has just ended
            continue
        if not isinstance(reply, Found):
            raise unavailable(reply, "a worker's entry")
        try:
            check_entry(entry := _decode(unframe(MAGIC, reply.body, place)))
        except (Damaged, NewerFormat, Rejected, msgspec.MsgspecError):
            continue
        found.append(FoundWorker(place.removeprefix(folder), entry, reply.modified_ms))
    return found


def forget(queue: str, now_ms: int) -> Flow[int]:
    """Remove the entries of workers not heard of for ``KEPT_MS``; answers how many. Raises Unavailable."""
    places = yield from keys(folder_of(queue))
    replies = yield from ask_all([Get(each, start=0, length=1) for each in places], OBJECT)
    gone = 0
    for place, reply in zip(places, replies, strict=True):
        if isinstance(reply, Found) and reply.modified_ms < now_ms - KEPT_MS:
            # Should it have been frozen and speak again, its entry stays.
            done = yield DeleteIfMatch(place, reply.version)
            if not isinstance(done, Deleted | Refused):
                raise unavailable(done, "leave to remove a worker's entry")
            gone += isinstance(done, Deleted)
        elif not isinstance(reply, Found | Missing):
            raise unavailable(reply, "a worker's entry")
    return gone
