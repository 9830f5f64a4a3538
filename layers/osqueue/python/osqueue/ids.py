"""Clients' own ids: which job an id stands for.

    ids/<queue>/<SHA-256 of the id>      the key of the newest job enqueued under it

An entry is created with If-None-Match before its job is enqueued, so of any number of callers one names the key.
The others find the entry and ask the queue what became of that job; if it is nowhere, its first caller has not
come to enqueue it yet, or never will, and they enqueue it under the same key. The reducer accepts a key once.
An entry is replaced (the job is over, the id may be used again) and removed by conditional writes only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from .commit.effects import All, Flow, Sleep
from .core.wire import frame, unframe
from .errors import Damaged, Unavailable
from .shards import unavailable
from .stores.base import (
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    Missing,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Reply,
    Request,
    Written,
)

FOLDER = "ids/"
REQUESTS_AT_ONCE = 32
TRIES = 4  # of one request that brings no definite answer
PAUSE_SECONDS = 0.05  # before the second try, doubled for each further one


class Entry(Struct, frozen=True):
    """What an id stands for, as it was read."""

    key: bytes
    version: str


class _Stored(Struct, frozen=True, array_like=True):
    key: bytes


_decode = msgspec.msgpack.Decoder(_Stored).decode


def place_of(queue: str, client_id: str) -> str:
    """The key of an id's entry. The id itself stands in no key: keys reach logs and inventories."""
    return f"{FOLDER}{queue}/{hashlib.sha256(client_id.encode()).hexdigest()}"


def _encode(key: bytes) -> bytes:
    return frame(b"OSQD", msgspec.msgpack.encode(_Stored(key)))


def entry_of(found: Found, place: str) -> Entry:
    """An entry's content. Raises Damaged or NewerFormat."""
    try:
        return Entry(_decode(unframe(b"OSQD", found.body, place)).key, found.version)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{place} cannot be decoded: {error}") from error


def read(queue: str, ids: Sequence[str]) -> Flow[list[Entry | None]]:
    """What each id stands for; None where it stands for nothing."""
    places = [place_of(queue, each) for each in ids]
    replies = yield from _insist([Get(place) for place in places], "what an id stands for")
    return [
        entry_of(reply, place) if isinstance(reply, Found) else None
        for place, reply in zip(places, replies, strict=True)
    ]


def create(queue: str, wished: Sequence[tuple[str, bytes]]) -> Flow[list[Entry]]:
    """Let each id stand for its key, unless it stands for another already; answers what each stands for now."""
    places = [place_of(queue, client_id) for client_id, _ in wished]
    entries: dict[int, Entry] = {}
    tried = 0  # rounds that the store took no part in
    while len(entries) < len(wished):
        left = [at for at in range(len(wished)) if at not in entries]
        puts = [PutIfAbsent(places[at], _encode(wished[at][1])) for at in left]
        replies = yield from _ask(puts)
        unsure: list[int] = []
        failed: Reply | None = None
        for at, reply in zip(left, replies, strict=True):
            if isinstance(reply, Written):
                entries[at] = Entry(wished[at][1], reply.version)
            else:
                unsure.append(at)  # another's, or ours with its answer lost: the entry tells
                failed = reply if isinstance(reply, Failed) else failed
        found = yield from _insist([Get(places[at]) for at in unsure], "what an id stands for")
        for at, reply in zip(unsure, found, strict=True):
            if isinstance(reply, Found):
                entries[at] = entry_of(reply, places[at])
        if failed is not None and len(entries) < len(wished):
            tried += 1
            if tried == TRIES:
                raise unavailable(failed, "room for an id")
            yield Sleep(PAUSE_SECONDS * 2 ** (tried - 1))
    return [entries[at] for at in range(len(wished))]


def replace(queue: str, client_id: str, entry: Entry, key: bytes) -> Flow[Entry | None]:
    """Let an id stand for another key, if it still stands for ``entry``'s; None: it does not any more."""
    place = place_of(queue, client_id)
    (reply,) = yield from _ask([PutIfMatch(place, _encode(key), entry.version)])
    if isinstance(reply, Written):
        return Entry(key, reply.version)
    (now,) = yield from read(queue, [client_id])
    return now if now is not None and now.key == key else None


def free(queue: str, jobs: Sequence[tuple[str, bytes]]) -> Flow[int]:
    """Remove the entries of ids that still stand for these keys; answers how many. Raises what kept it from that."""
    left = list(jobs)
    freed = 0
    for tried in range(TRIES):
        entries = yield from read(queue, [client_id for client_id, _ in left])
        left_entries = zip(left, entries, strict=True)
        idle = [(job, entry) for job, entry in left_entries if entry is not None and entry.key == job[1]]
        if not idle:
            return freed
        if tried:
            yield Sleep(PAUSE_SECONDS * 2 ** (tried - 1))
        wishes = [DeleteIfMatch(place_of(queue, job[0]), entry.version) for job, entry in idle]
        replies = yield from _insist(wishes, "leave to remove an id")
        freed += sum(isinstance(reply, Deleted) for reply in replies)
        # Refused is not yet another's entry: a store may also refuse two who write at once.
        left = [job for (job, _), reply in zip(idle, replies, strict=True) if isinstance(reply, Refused)]
    if left:
        raise Unavailable("the store did not let an id be removed, again and again. The next pass goes on.")
    return freed


def _ask(requests: Sequence[Request]) -> Flow[list[Reply]]:
    """Many requests, some at a time."""
    replies: list[Reply] = []
    for at in range(0, len(requests), REQUESTS_AT_ONCE):
        group = tuple(requests[at : at + REQUESTS_AT_ONCE])
        replies.extend((yield All(group)))
    return replies


def _insist(requests: Sequence[Request], what: str) -> Flow[list[Reply]]:
    """Ask until each has a definite answer; raises when one has none after a few tries."""
    replies = yield from _ask(requests)
    for tried in range(1, TRIES):
        again = [at for at, reply in enumerate(replies) if isinstance(reply, Failed)]
        if not again:
            break
        yield Sleep(PAUSE_SECONDS * 2 ** (tried - 1))
        fresh = yield from _ask([requests[at] for at in again])
        for at, reply in zip(again, fresh, strict=True):
            replies[at] = reply
    for reply in replies:
        if not isinstance(reply, Found | Missing | Deleted | Refused):
            raise unavailable(reply, what)
    return replies
