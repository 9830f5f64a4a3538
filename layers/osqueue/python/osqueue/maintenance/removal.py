"""Removing a queue for good: every object that belongs to it, and its name in the register.

    look      read the heads, list everything: what is there, for the caller to show and to ask
    mark      each head is replaced by a mark, if it is still the one that was shown; one that is not there yet is made
    delete    list and delete until nothing is left but the marks, and the archive unless it goes as well
    unlist    the queue leaves the register
    end       the marks are deleted, the first shard's last

From the mark on, whoever reads or writes the queue hears that it is being removed. So nothing is added to what is
deleted, and a queue of the same name begins only when nothing of the old one is left. A removal that was interrupted
goes on where it is run again: the marks tell that it had begun, until the last of them is gone.

A head that has changed since it was shown, or that came beside the marks, ends the removal: the heads that were marked
are put back as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from .. import limits
from ..bulk.receipts import FOLDER as BATCHES
from ..clock import Machine
from ..commit.effects import Flow, together
from ..commit.retry import NEEDED, ask, ask_all
from ..commit.writer import HEAD
from ..core.encoding import decode_head, is_removal_mark, removal_mark
from ..core.intents import intents_prefix
from ..core.state import FAILING, PROCESSING, QUEUED, SCHEDULED, State
from ..errors import Conflict, OsqueueError, Unavailable
from ..objects import archive, backups, inventory
from ..objects.id_index import FOLDER as IDS
from ..objects.layout import REGISTER, root_of, unavailable
from ..objects.listing import count_states
from ..stores.base import (
    LIST_KEYS_MAX,
    Delete,
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
    Unchanged,
    Written,
)
from ..stores.stray_keys import is_nameable

LIVE = (PROCESSING, QUEUED, SCHEDULED, FAILING)  # jobs that somebody still waits for
LISTS_MAX = 10  # rounds of listing and deleting; what was under way when the heads were marked lands within one or two
PUT_BACK_MAX = 3  # tries of a store that refuses a head although its mark stands
NO_VERSION = f'"{"0" * 32}"'  # of no object: to ask whether a head may be deleted, without deleting it
DELETED_HEADS = (
    "The store does not let heads be deleted, so nothing was changed. In the buckets of 'make deploy' a policy sees to"
    ' that (HeadsAreNeverDeleted): deploy the environment with "queues_removable": true, remove the queue, and deploy'
    " it as before (docs/deploy.md). Elsewhere allow s3:DeleteObject."
)


class HeadFound(Struct, frozen=True):
    """The head of a shard as it was found."""

    shard: int
    version: str | None = None  # None: there is none
    body: bytes = b""
    state: State | None = None  # None: there is none, or it cannot be read
    error: OsqueueError | None = None  # why it cannot be read

    @property
    def marked(self) -> bool:
        """Has a removal begun?"""
        return is_removal_mark(self.body)


class QueueFound(Struct, frozen=True):
    """All that belongs to a queue."""

    queue: str
    heads: tuple[HeadFound, ...]  # one for each shard
    keys: dict[str, tuple[str, ...]]  # by what they are; heads and the register apart
    registered: bool

    def exists(self, with_archive: bool) -> bool:
        """Is there anything that a removal would delete?"""
        there = any(head.version is not None for head in self.heads)
        return there or self.registered or bool(self.keys.keys() - (() if with_archive else {"archive"}))

    @property
    def begun(self) -> bool:
        """Has a removal begun, that did not come to its end?"""
        return any(head.marked for head in self.heads)

    def jobs(self) -> dict[str, int]:
        """Jobs by state, where heads can be read."""
        counts: dict[str, int] = {}
        for head in self.heads:
            for name, count in count_states(head.state).items() if head.state is not None else ():
                counts[name] = counts.get(name, 0) + count
        return counts

    def check_idle(self) -> None:
        """Raises Conflict while somebody may wait for a job, or nobody can tell."""
        alive = {name: count for name, count in self.jobs().items() if name in LIVE and count}
        if alive:
            told = ", ".join(f"{count:,} {name}" for name, count in alive.items())
            raise Conflict(
                f"queue {self.queue}: there are jobs: {told}. Let workers end them, or pause the queue and cancel them"
                " ('osqueue queue pause', 'osqueue queue cancel --all'); or delete them with the queue: --force."
            )
        for head in self.heads:
            if head.error is not None and not head.marked:
                raise Conflict(
                    f"queue {self.queue}: nobody can tell which jobs are in shard {head.shard}: {head.error.message}"
                    " Repair it ('osqueue doctor'), or delete it as it is: --force."
                )


# ── Looking ──────────────────────────────────────────────────────────────────
def look(queue: str) -> Flow[QueueFound]:
    """What there is of a queue, of every shard that it may ever have had. Raises Unavailable."""
    heads = yield from _heads(queue)
    keys = yield from _keys(queue)
    register = yield from ask(Get(REGISTER + queue, length=0), NEEDED)
    return QueueFound(queue, heads, keys, isinstance(register, Found))


def _heads(queue: str) -> Flow[tuple[HeadFound, ...]]:
    places = [root_of(queue, shard) + HEAD for shard in range(limits.SHARDS_MAX)]
    replies = yield from ask_all([Get(place, flushed=True) for place in places], NEEDED)
    heads = [_head(shard, reply) for shard, reply in enumerate(replies)]
    counts = [head.state.settings.shards for head in heads if head.state is not None]
    counts += [head.shard + 1 for head in heads if head.version is not None]
    return tuple(heads[: max([1, *counts])])


def _head(shard: int, reply: StoreReply) -> HeadFound:
    if isinstance(reply, Missing):
        return HeadFound(shard)
    if not isinstance(reply, Found):
        raise unavailable(reply, "the queue's head")
    try:
        return HeadFound(shard, reply.version, reply.body, decode_head(reply.body))
    except OsqueueError as error:
        return HeadFound(shard, reply.version, reply.body, None, error)


def _keys(queue: str) -> Flow[dict[str, tuple[str, ...]]]:
    """The keys of everything but the heads and the register, by what they are.

    Left out are keys that the queue cannot have written, and that a store may refuse to delete.
    """
    roots = [root_of(queue, shard) for shard in range(limits.SHARDS_MAX)]
    places = [
        *(("shards", root) for root in roots),
        *(("announcements", intents_prefix(root)) for root in roots),
        ("ids", f"{IDS}{queue}/"),
        ("batches", f"{BATCHES}{queue}/"),
        ("backups", f"{backups.FOLDER}{queue}/"),
        ("archive", archive.folder_of(queue)),
    ]
    listed = yield from together([inventory.keys(prefix) for _, prefix in places])
    found: dict[str, list[str]] = {}
    for (what, prefix), keys in zip(places, listed, strict=True):
        for key in filter(is_nameable, keys):
            if what != "shards":
                found.setdefault(what, []).append(key)
            elif key != prefix + HEAD:  # segments, bodies, finished: by their folders
                folder, slash, _ = key.removeprefix(prefix).partition("/")
                found.setdefault(folder if slash else "clocks", []).append(key)
    return {what: tuple(found[what]) for what in sorted(found)}


# ── Removing ─────────────────────────────────────────────────────────────────
def remove(found: QueueFound, machine: Machine, with_archive: bool) -> Flow[int]:
    """Delete what ``look`` found, if it is still so; answers how many objects are gone.

    Raises Conflict when the queue changed since, which leaves it as it is, and Unavailable. After an Unavailable it may
    be half done: look and remove again.
    """
    yield from _may_delete(found)
    marks = yield from _mark(found, machine)
    count = 0
    for _ in range(LISTS_MAX):
        listed = yield from _keys(found.queue)
        keys = [key for what, group in listed.items() if with_archive or what != "archive" for key in group]
        if not keys:
            break
        yield from _check_mark(found.queue, marks)
        yield from _delete(keys)
        count += len(keys)
    else:
        raise Unavailable(
            f"queue {found.queue}: something keeps writing objects of it. End the processes that use it; repeat this."
        )
    yield from _check_mark(found.queue, marks)
    yield from _delete([REGISTER + found.queue])
    for shard, version in reversed(marks):
        yield from _end(found.queue, shard, version)
    return count + len(marks) + found.registered


def _may_delete(found: QueueFound) -> Flow[None]:
    """Ask whether a head may be deleted, on a condition that never holds. Raises the remedy, else the error."""
    reply = yield from ask(DeleteIfMatch(root_of(found.queue, 0) + HEAD, NO_VERSION), NEEDED)
    if isinstance(reply, Failed) and reply.error.permanent:
        raise Unavailable(f"queue {found.queue}: {reply.error.message} {DELETED_HEADS}", permanent=True)
    if isinstance(reply, Failed):
        raise reply.error


def _mark(found: QueueFound, machine: Machine) -> Flow[list[tuple[int, str]]]:
    """Replace each head by a mark; answers the marks' shards and versions. Raises Conflict where one has changed."""
    marks: list[tuple[int, str]] = []
    try:
        for head in found.heads:
            if head.marked:
                assert head.version is not None
                marks.append((head.shard, head.version))
                continue
            body = removal_mark(machine.bits(128).to_bytes(16, "big"))
            marks.append((head.shard, (yield from _swap(found.queue, head.shard, head.version, body))))
        yield from _check_shards(found)
    except Conflict:
        left = []
        for shard, version in marks:
            if not (yield from _put_back(found.queue, found.heads[shard], version)):
                left.append(shard)
        if left:
            raise Unavailable(
                f"queue {found.queue}: it has changed since it was shown, and the store did not let every head be put"
                f" back (shard {', '.join(map(str, left))}). There the mark of the removal stands, and nobody can use"
                " the queue: run 'osqueue queue rm' again, which deletes it."
            ) from None
        raise
    return marks


def _swap(queue: str, shard: int, version: str | None, body: bytes) -> Flow[str]:
    """Put a mark in the place of a head, if it is the one shown; its version. Raises Conflict and Unavailable."""
    place = root_of(queue, shard) + HEAD
    put = PutIfAbsent(place, body) if version is None else PutIfMatch(place, body, version)
    reply = yield from ask(put, NEEDED)
    if isinstance(reply, Written):
        return reply.version
    there = yield from ask(Get(place), NEEDED)  # ours, with its answer lost?
    if isinstance(there, Found) and there.body == body:
        return there.version
    if isinstance(reply, Refused):
        raise Conflict(
            f"queue {queue}: it has changed since it was shown (shard {shard}), so it was left as it is. Somebody uses"
            " it: end workers and callers, and look again."
        )
    raise unavailable(reply, "room for the mark of a removal")


def _check_shards(found: QueueFound) -> Flow[None]:
    """See that no other shard began beside the marks, by a commit that was under way. Raises Conflict."""
    count = len((yield from _heads(found.queue)))
    if count > len(found.heads):
        raise Conflict(
            f"queue {found.queue}: it has got more shards since it was shown ({count}), so it was left as it is."
            " Somebody uses it: end workers and callers, and look again."
        )


def _put_back(queue: str, head: HeadFound, version: str) -> Flow[bool]:
    """Put a head in the place of its mark. Is the mark gone, or an earlier removal's own?"""
    if head.marked:
        return True
    place = root_of(queue, head.shard) + HEAD
    # The same bytes: whoever knows that head may go on with it.
    back = DeleteIfMatch(place, version) if head.version is None else PutIfMatch(place, head.body, version)
    for _ in range(PUT_BACK_MAX):
        reply = yield from ask(back, NEEDED)
        if isinstance(reply, Written | Deleted):
            return True
        there = yield from ask(Get(place, unless=version, length=0), NEEDED)
        if isinstance(there, Found | Missing):  # put back, with the answer lost
            return True
    return False


def _check_mark(queue: str, marks: Sequence[tuple[int, str]]) -> Flow[None]:
    """See that the marks still stand, so that what was listed is of the old queue. Raises Conflict."""
    shard, version = marks[0]  # the last one that goes
    reply = yield from ask(Get(root_of(queue, shard) + HEAD, unless=version, length=0), NEEDED)
    if isinstance(reply, Failed):
        raise unavailable(reply, "the mark of a removal")
    if not isinstance(reply, Unchanged):
        raise Conflict(f"queue {queue}: somebody else has removed it meanwhile. Look again.")


def _delete(keys: Sequence[str]) -> Flow[None]:
    for group in _groups(keys):
        reply = yield from ask(Delete(group), NEEDED)
        if not isinstance(reply, Deleted):
            raise unavailable(reply, "leave to delete objects")


def _groups(keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(keys[at : at + LIST_KEYS_MAX]) for at in range(0, len(keys), LIST_KEYS_MAX))


def _end(queue: str, shard: int, version: str) -> Flow[None]:
    """Delete a mark."""
    place = root_of(queue, shard) + HEAD
    reply = yield from ask(DeleteIfMatch(place, version), NEEDED)
    if isinstance(reply, Deleted):
        return
    there = yield from ask(Get(place, length=0), NEEDED)
    if isinstance(there, Missing):  # our own, with its answer lost, or another removal's
        return
    if isinstance(reply, Failed):
        raise unavailable(reply, "leave to delete the mark of a removal")
    raise Conflict(
        f"queue {queue}: somebody put a head in the place of shard {shard} while it was removed. Look again."
    )
