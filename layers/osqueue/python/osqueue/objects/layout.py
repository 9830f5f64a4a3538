"""Where a queue's objects lie, and how its shards are found.

    queues/<name>                     registers a queue
    <hash>/<name>/<shard>/head        one shard's state; its segments and bodies lie beside it
    archive/queue=<name>/…            finished jobs of all shards; ``archive=`` puts them in a store of their own
    backup/<name>/<shard>/…           copies of heads; in the same store as the archive
    limits/<name>                     registers a pacer
    <hash>/_limits/<name>/head        its state: no queue has such a name

The hash comes first, so that S3 can split the key space between queues and shards.
"""

from __future__ import annotations

import functools
import hashlib

import msgspec

from ..commit.effects import Flow
from ..commit.retry import HEAD_READ, OBJECT, ask
from ..commit.writer import HEAD
from ..core.encoding import decode_head
from ..core.state import State
from ..errors import OsqueueError, Unavailable
from ..model.validation import is_queue_name
from ..stores.base import Failed, Found, Get, List, Listed, PutIfAbsent, Refused, Written

REGISTER = "queues/"
PACERS = "limits/"
ROOTS_KEPT = 1_024  # prefixes that are remembered: each claim asks for that of its shard


def root_of(queue: str, shard: int) -> str:
    """The prefix of everything that belongs to one shard."""
    return _hashed(f"{queue}/{shard}")


def root_of_pacer(name: str) -> str:
    """The prefix of everything that belongs to a pacer."""
    return _hashed(f"_limits/{name}")


@functools.lru_cache(ROOTS_KEPT)
def _hashed(place: str) -> str:
    return f"{hashlib.sha256(place.encode()).hexdigest()[:4]}/{place}/"


def register(queue: str) -> PutIfAbsent:
    """The request that makes a queue known by name."""
    return PutIfAbsent(REGISTER + queue, msgspec.json.encode({"format": 1, "queue": queue}))


def register_pacer(name: str) -> Flow[None]:
    """Make a pacer known by name, before its head is written. Raises Unavailable."""
    body = msgspec.json.encode({"format": 1, "pacer": name})
    reply = yield from ask(PutIfAbsent(PACERS + name, body), OBJECT)
    if not isinstance(reply, Written | Refused):
        raise unavailable(reply, "room for the pacer's registration")


def is_registered(queue: str) -> Flow[bool]:
    """Was a queue of this name ever used? Asked by a listing, which whoever may look at numbers is allowed."""
    listed = yield List(REGISTER + queue, limit=1)
    if not isinstance(listed, Listed):
        raise unavailable(listed, "the list of queues")
    return listed.keys[:1] == (REGISTER + queue,)


def registered(register: str = REGISTER) -> Flow[list[str]]:
    """The names of all queues of a store. What is no name was put there by somebody else, and is passed over."""
    names: list[str] = []
    after = ""
    while True:
        listed = yield List(register, after=after)
        if not isinstance(listed, Listed):
            raise unavailable(listed, "the list of queues")
        found = (key.removeprefix(register) for key in listed.keys)
        names.extend(name for name in found if is_queue_name(name))
        if not listed.more:
            return names
        after = listed.keys[-1]


def read_state(queue: str, shard: int) -> Flow[State | None]:
    """The committed state of a shard as it is now; None when it has none yet. Raises Unavailable."""
    # An answer from it must outlast a power cut, although its writer may be flushing yet.
    reply = yield from ask(Get(root_of(queue, shard) + HEAD, flushed=True), HEAD_READ)
    if isinstance(reply, Found):
        return decode_head(reply.body)
    if isinstance(reply, Failed):
        raise unavailable(reply, "the queue's head")
    return None


def unavailable(reply: object, what: str) -> OsqueueError:
    """The error for a request that brought no definite answer."""
    if isinstance(reply, Failed) and reply.error.permanent:
        return reply.error  # it says best itself what has to be changed
    why = reply.error.message if isinstance(reply, Failed) else f"unexpected answer {type(reply).__name__}"
    return Unavailable(f"the store did not give {what}: {why}")
