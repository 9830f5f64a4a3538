"""Clients' own ids: which job an id stands for.

    ids/<queue>/<SHA-256 of the id>      the key of the newest job enqueued under it

An entry is created with If-None-Match before its job is enqueued, so of any number of callers one names the key.
The others find the entry and ask the queue what became of that job; if it is nowhere, its first caller has not
come to enqueue it yet, or never will, and they enqueue it under the same key. The reducer accepts a key once.
An entry is replaced (the job is over, the id may be used again) and removed by conditional writes only.

A job that restarts the one that runs under its id is enqueued like any other, after its entry names it. Until then the
id stands for the one that runs, which the entry names as well: its caller may never come to enqueue its job.

A job that took the place of another under its id was accepted before the entry names it: the old job names its
successor. So an entry that says ``place`` and names a job that is nowhere tells of one that is over and forgotten, and
nobody enqueues under that key again. An entry may be behind: it names a job that was replaced. It never is behind a job
that is forgotten: see ``free``.
"""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ..commit.deadline import IDLE_REFUSALS_MAX, refuses_everything
from ..commit.effects import Flow, Pause, Sleep
from ..commit.retry import ENTRY, ONCE, Tries, ask_all, before_commit
from ..core.encoding import frame, unframe
from ..errors import Damaged, NewerFormat, OsqueueError, Unavailable
from ..model.keys import is_like
from ..stores.base import (
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    Missing,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    Written,
)
from .layout import unavailable

FOLDER = "ids/"


class IdEntry(Struct, frozen=True):
    """What an id stands for, as it was read."""

    key: bytes
    version: str
    closing: bool = False  # it is about to be removed: nobody may enqueue under its key
    modified_ms: int = 0  # when it was written, by the store's clock
    fresh: bool = False  # this very call wrote it, and knows so
    place: int = 0  # how many jobs of the id its job took the place of; above 0 it was enqueued before this was written
    restarts: bytes = b""  # the job that the id stands for as long as nobody has enqueued one under `key`


class FinishedId(Struct, frozen=True):
    """A job that is over, and whose id may be free."""

    client_id: str
    key: bytes
    finished_ms: int = 0  # by the store's clock; 0: unknown
    successor: bytes | None = None  # the job that took its place: the id may stand for that one
    place: int = 0  # how many it took the place of itself

    def handed_on(self, entry: IdEntry) -> bytes | None:
        """What an entry has to say instead before this job is forgotten: if it stands for it, or for one before it."""
        if self.successor is None:
            return None
        before = is_like(entry.key, self.key) and entry.place < self.place
        return encode(self.successor, place=self.place + 1) if before or entry.key == self.key else None


class _Stored(Struct, frozen=True, array_like=True):
    key: bytes
    closing: bool = False
    place: int = 0
    restarts: bytes = b""


_decode = msgspec.msgpack.Decoder(_Stored).decode


def entry_key(queue: str, client_id: str) -> str:
    """The key of an id's entry. The id itself stands in no key: keys reach logs and inventories."""
    return f"{FOLDER}{queue}/{hashlib.sha256(client_id.encode()).hexdigest()}"


def encode(key: bytes, closing: bool = False, place: int = 0, restarts: bytes = b"") -> bytes:
    """The content of an entry."""
    return frame(b"OSQD", msgspec.msgpack.encode(_Stored(key, closing, place, restarts)))


def closed(entry: IdEntry) -> bytes:
    """The content of an entry that is about to be removed."""
    return encode(entry.key, closing=True, place=entry.place, restarts=entry.restarts)


def entry_of(found: Found, place: str) -> IdEntry:
    """An entry's content. Raises Damaged or NewerFormat."""
    try:
        stored = _decode(unframe(b"OSQD", found.body, place))
    except msgspec.MsgspecError as error:
        raise Damaged(f"{place} cannot be decoded: {error}") from error
    return IdEntry(
        stored.key,
        found.version,
        stored.closing,
        found.modified_ms,
        place=stored.place,
        restarts=stored.restarts,
    )


def _entry_or_error(
    reply: StoreReply, place: str, queue: str, client_id: str
) -> IdEntry | OsqueueError | None:
    """What an id stands for, None for nothing, or why nobody knows."""
    if not isinstance(reply, Found):
        return None if isinstance(reply, Missing) else unavailable(reply, "what an id stands for")
    try:
        return entry_of(reply, place)
    except Damaged as error:
        return Damaged(
            f"id {client_id!r}: nobody can tell which job it stands for: {error.message} Repair it with"
            f" 'osqueue doctor ADDRESS {queue} --fix-ids'."
        )
    except NewerFormat as error:
        return error


def look_up(queue: str, ids: Sequence[str]) -> Flow[list[IdEntry | OsqueueError | None]]:
    """What each id stands for, also after a power cut; None for nothing, an error where nobody knows."""
    places = [entry_key(queue, each) for each in ids]
    replies = yield from ask_all([Get(place, flushed=True) for place in places], ENTRY)
    return [
        _entry_or_error(reply, place, queue, client_id)
        for reply, place, client_id in zip(replies, places, ids, strict=True)
    ]


def read(queue: str, ids: Sequence[str]) -> Flow[list[IdEntry | None]]:
    """The same; the first error is raised."""
    return [_sound(each) for each in (yield from look_up(queue, ids))]


def _sound(found: IdEntry | OsqueueError | None) -> IdEntry | None:
    if isinstance(found, OsqueueError):
        raise found
    return found


def create(queue: str, wished: Sequence[tuple[str, bytes]]) -> Flow[list[IdEntry | OsqueueError]]:
    """Let each id stand for its key, unless it stands for another already.

    Answers what each stands for now, or what keeps it from standing for anything: that of one harms no other.
    """
    places = [entry_key(queue, client_id) for client_id, _ in wished]
    done: dict[int, IdEntry | OsqueueError] = {}
    refused = 0  # rounds in which the store refused what it has no reason to refuse
    tries = Tries(ENTRY)
    while len(done) < len(wished):
        left = [at for at in range(len(wished)) if at not in done]
        replies = yield from ask_all([PutIfAbsent(places[at], encode(wished[at][1])) for at in left], ONCE)
        unsure: list[int] = []
        failed: OsqueueError | None = None
        for at, reply in zip(left, replies, strict=True):
            if isinstance(reply, Written):
                done[at] = IdEntry(wished[at][1], reply.version, fresh=True)
            else:
                unsure.append(at)  # another's, or ours with its answer lost: the entry decides
                failed = unavailable(reply, "room for an id") if isinstance(reply, Failed) else failed
        failed = None if failed is None else before_commit(failed)
        found = yield from look_up(queue, [wished[at][0] for at in unsure])
        for at, each in zip(unsure, found, strict=True):
            if each is not None:
                done[at] = before_commit(each) if isinstance(each, Unavailable) else each
        if len(done) == len(wished):
            break
        if failed is not None:
            if failed.permanent or not (yield from tries.again()):
                done.update((at, failed) for at in unsure if at not in done)
        elif len(unsure) == len(left) and not any(found):  # refused, and there is nothing
            refused += 1
            if refused == IDLE_REFUSALS_MAX:
                raise refuses_everything(refused, "Nothing was enqueued.")
            yield Pause(ENTRY.pause_after(refused))
    return [done[at] for at in range(len(wished))]


def replace(
    queue: str, client_id: str, entry: IdEntry, key: bytes, restarts: bytes = b""
) -> Flow[IdEntry | None]:
    """Let an id stand for another key, if it still stands for ``entry``'s; None: ``create`` tells what now."""
    put = PutIfMatch(entry_key(queue, client_id), encode(key, restarts=restarts), entry.version)
    (reply,) = yield from ask_all([put], ONCE)
    if not isinstance(reply, Written):
        return None
    return IdEntry(key, reply.version, fresh=True, restarts=restarts)


def follow(queue: str, client_id: str, entry: IdEntry, key: bytes, place: int) -> Flow[IdEntry | None]:
    """Let an id stand for a job that took the place of ``entry``'s, if it still stands for that; None: look again."""
    put = PutIfMatch(entry_key(queue, client_id), encode(key, place=place), entry.version)
    (reply,) = yield from ask_all([put], ONCE)
    return IdEntry(key, reply.version, place=place) if isinstance(reply, Written) else None


def _last_of_each(jobs: Sequence[FinishedId]) -> list[FinishedId]:
    """Of those who took the place of one another the last, which speaks for all of them; and all others."""
    last: dict[object, FinishedId] = {}
    for each in jobs:
        which = each.key if each.successor is None else (each.client_id, each.key[:6], each.key[15])
        if which not in last or last[which].place < each.place:
            last[which] = each
    return list(last.values())


def free(queue: str, jobs: Sequence[FinishedId]) -> Flow[tuple[int, list[Damaged]]]:
    """Remove the entries of ids that still stand for these jobs. Raises what kept it from that.

    That of a job with a successor is handed to it instead, also one that is behind, and still names a job before it.

    Answers how many were removed, and of which nobody can tell what they stand for. Of those, the ones go that were
    written before their job was over, for an id is not used again before that.
    """
    left = _last_of_each(jobs)
    freed = 0
    damaged: list[Damaged] = []
    for tried in range(ENTRY.tries):
        places = [entry_key(queue, each.client_id) for each in left]
        found = yield from ask_all([Get(place) for place in places], ENTRY)
        wishes: dict[int, DeleteIfMatch | PutIfMatch] = {}
        for at, (each, place, reply) in enumerate(zip(left, places, found, strict=True)):
            entry = _entry_or_error(reply, place, queue, each.client_id)
            if isinstance(entry, Damaged) and isinstance(reply, Found):
                if reply.modified_ms < each.finished_ms:
                    wishes[at] = DeleteIfMatch(place, reply.version)
                else:
                    damaged.append(entry)
            elif isinstance(entry, OsqueueError):
                raise entry
            elif entry is not None and (heir := each.handed_on(entry)) is not None:
                wishes[at] = PutIfMatch(place, heir, entry.version)
            elif entry is not None and entry.key == each.key:
                wishes[at] = DeleteIfMatch(place, entry.version)
        if not wishes:
            return freed, damaged
        if tried:
            yield Sleep(ENTRY.pause_after(tried))
        replies = yield from ask_all(list(wishes.values()), ENTRY)
        for reply in replies:
            if not isinstance(reply, Deleted | Written | Refused):
                raise unavailable(reply, "leave to remove an id")
        freed += sum(isinstance(reply, Deleted) for reply in replies)
        # Refused is not yet another's entry: a store may also refuse two who write at once.
        left = [left[at] for at, reply in zip(wishes, replies, strict=True) if isinstance(reply, Refused)]
    if left:
        raise Unavailable("the store did not let an id be removed, again and again. The next pass goes on.")
    return freed, damaged
