"""Removals of queues, and those who use one meanwhile, with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from osqueue.clock import Machine
from osqueue.commit import protocol
from osqueue.commit.effects import Flow
from osqueue.commit.writer import HEAD, Head, ShardWriter
from osqueue.core.state import State
from osqueue.errors import Conflict
from osqueue.maintenance import removal
from osqueue.maintenance.removal import HeadFound, QueueFound
from osqueue.objects.layout import REGISTER, root_of
from osqueue.stores.base import Delete, Get, Missing, Put, PutIfMatch

from ..ledger import Violation
from ..removal_scenes import play
from .control import Control, Detection, patched


def in_removal(name: str, words: str) -> Detection:
    """A scene of a removal goes wrong."""

    def look() -> str:
        try:
            play(name)
        except Violation as violation:
            return str(violation)
        return ""

    return Detection(name, look, words)


def marked_whatever_is_there() -> AbstractContextManager[None]:
    """A head is marked although it is not the one that was shown."""

    def swap(queue: str, shard: int, version: str | None, body: bytes) -> Flow[str]:
        place = root_of(queue, shard) + HEAD
        written = yield Put(place, body)
        return str(written.version)

    return patched((removal, "_swap", swap))


def unchecked(queue: str, marks: Sequence[tuple[int, str]]) -> Flow[None]:
    """Nobody looks whether marks still stand."""
    yield from ()


def deleted_without_a_mark() -> AbstractContextManager[None]:
    """Heads are deleted at once, and then what belonged to them."""

    def mark(found: QueueFound, machine: Machine) -> Flow[list[tuple[int, str]]]:
        yield Delete(tuple(root_of(found.queue, head.shard) + HEAD for head in found.heads))
        return []

    return patched((removal, "_mark", mark), (removal, "_check_mark", unchecked))


def listed_for_longer() -> AbstractContextManager[None]:
    """The name leaves the register last, when anybody may begin the queue again."""
    real = removal._delete
    ended = removal._end

    def delete(keys: list[str]) -> Flow[None]:
        kept = [key for key in keys if not key.startswith(REGISTER)]
        yield from real(kept)

    def end(queue: str, shard: int, version: str) -> Flow[None]:
        yield from ended(queue, shard, version)
        if not shard:
            yield from real([REGISTER + queue])

    return patched((removal, "_delete", delete), (removal, "_end", end))


def marks_not_looked_at_again() -> AbstractContextManager[None]:
    """What is listed is deleted, whoever has ended the removal meanwhile."""

    return patched((removal, "_check_mark", unchecked))


def marks_left_where_they_are() -> AbstractContextManager[None]:
    """A removal that is refused does not put the heads back that it had marked."""

    def put_back(queue: str, head: HeadFound, version: str) -> Flow[bool]:
        yield Get(root_of(queue, head.shard) + HEAD, length=0)
        return True

    return patched((removal, "_put_back", put_back))


def put_back_unheard() -> AbstractContextManager[None]:
    """Nobody looks whether a head was put back."""

    def put_back(queue: str, head: HeadFound, version: str) -> Flow[bool]:
        yield PutIfMatch(root_of(queue, head.shard) + HEAD, head.body, version)
        return True

    return patched((removal, "_put_back", put_back))


def shards_beside_the_marks() -> AbstractContextManager[None]:
    """Nobody looks whether other shards began beside the marks."""

    def check_shards(found: QueueFound) -> Flow[None]:
        yield from ()

    return patched((removal, "_check_shards", check_shards))


def denied_once_it_was_sent() -> AbstractContextManager[None]:
    """Whoever meets a mark is told that nothing was done, whatever it had sent before."""
    return patched((protocol, "perhaps_done_before_removal", lambda queue: Conflict("nothing was done")))


def begun_where_a_head_is_gone() -> AbstractContextManager[None]:
    """A writer whose head is gone begins another one, and says nothing."""
    real = ShardWriter.see

    def see(self: ShardWriter, reply: Any, began: Any) -> Head | None:
        if isinstance(reply, Missing) and self.head is not None and self.head.version is not None:
            self.head = Head(State(commit=b"\0" * 16, epoch=self.head.state.epoch), None, began)
        return real(self, reply, began)

    return patched((ShardWriter, "see", see))


def shards_of_any_queue() -> AbstractContextManager[None]:
    """A shard's first head is written without a look whether the queue is still the same."""

    def check_queue(self: ShardWriter) -> Flow[None]:
        yield from ()

    return patched((ShardWriter, "check_queue", check_queue))


LOST = "accepted jobs are nowhere"
UNKNOWN = "not in the register"
CONTROLS: tuple[Control, ...] = (
    Control(
        "heads are marked as they were shown",
        marked_whatever_is_there,
        (in_removal("used since it was shown", f"{LOST}|{UNKNOWN}"),),
    ),
    Control(
        "marks before deletion",
        deleted_without_a_mark,
        (
            in_removal("used while it is deleted", f"{LOST}|{UNKNOWN}"),
            in_removal("used while it is unlisted", UNKNOWN),
        ),
    ),
    Control("marks until the end", listed_for_longer, (in_removal("used while it is unlisted", UNKNOWN),)),
    Control(
        "marks stand while others delete",
        marks_not_looked_at_again,
        (in_removal("removed by two", f"{LOST}|{UNKNOWN}"),),
    ),
    Control(
        "marks are taken back",
        marks_left_where_they_are,
        (in_removal("changed in its last shard", "nobody can use the queue"),),
    ),
    Control(
        "heads are put back for sure",
        put_back_unheard,
        (in_removal("put back at a second try", "nobody can use the queue"),),
    ),
    Control(
        "no shards beside the marks",
        shards_beside_the_marks,
        (in_removal("grown beside the marks", "a shard of a removed queue is left"),),
    ),
    Control(
        "what was sent is not denied",
        denied_once_it_was_sent,
        (in_removal("announced before the marks", "told that nothing was done"),),
    ),
    Control(
        "a head that is gone is told",
        begun_where_a_head_is_gone,
        (in_removal("known from before", UNKNOWN),),
    ),
    Control(
        "shards of the queue that is known",
        shards_of_any_queue,
        (in_removal("known with more shards", LOST),),
    ),
)
