"""Recorded transitions that have left the head of a shard: see ``core.event_log``.

Nothing points to their objects. Of those that overlap, all but one were written by commits that were lost. All tell the
same, but for what a purge took out: so the youngest is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..commit.effects import Flow
from ..commit.retry import OBJECT, ask, ask_all
from ..core.event_log import FOLDER, EventObject, object_of, rows_of
from ..core.state import Transition
from ..stores.base import Found, Get, List, Listed, Missing
from .layout import unavailable

READS_AT_ONCE = 8


def rows_behind(
    root: str, epoch: int, seq: int, position: int, end: int, most: int
) -> Flow[list[tuple[int, Transition]]]:
    """Transitions from a position on, in order, each with the seq that its object was born at.

    ``seq`` is that of a head that had not dropped any of them. No more than ``most``, but for the rest of an object,
    and none at or behind ``end``. None at all: they are not kept any more.
    """
    found: list[EventObject] = []
    after = f"{root}{FOLDER}/{seq:012x}"
    while True:
        listed = yield from _listed(root, after)
        found += _objects(listed, root, epoch)
        # One more than is read: of two that overlap, the youngest may be the first of the next page.
        if not listed.more or (
            found and found[-1].end > min(end, position + most) and len(found) > READS_AT_ONCE
        ):
            break
        after = listed.keys[-1]
    chain = _chain(found, position, min(end, position + most))
    replies = yield from ask_all([Get(root + each.name) for each in chain], OBJECT)
    rows: list[tuple[int, Transition]] = []
    for each, reply in zip(chain, replies, strict=True):
        if isinstance(reply, Missing):
            break
        if not isinstance(reply, Found):
            raise unavailable(reply, each.name)
        read = rows_of(reply.body, each.name)[position - each.first : end - each.first]
        rows += [(each.born, row) for row in read]
        position += len(read)
    return rows


def objects_since(root: str, since_ms: int, epoch: int | None = None) -> Flow[list[EventObject]]:
    """The objects that hold transitions of a time or later, in order; of one epoch, or of all."""
    found: list[EventObject] = []
    after = ""
    while True:
        listed = yield from _listed(root, after)
        found += [each for each in _objects(listed, root, epoch) if each.at_ms >= since_ms]
        if not listed.more:
            return found
        after = listed.keys[-1]


def _listed(root: str, after: str) -> Flow[Listed]:
    listed = yield from ask(List(f"{root}{FOLDER}/", after=after), OBJECT)
    if not isinstance(listed, Listed):
        raise unavailable(listed, "the list of recorded events")
    return listed


def _objects(listed: Listed, root: str, epoch: int | None) -> list[EventObject]:
    found = [object_of(key.removeprefix(root)) for key in listed.keys]
    return [each for each in found if each is not None and epoch in (None, each.epoch)]


def _chain(objects: Sequence[EventObject], position: int, end: int) -> list[EventObject]:
    """The objects that follow one another from a position on, some of them. They are given the oldest first."""
    chain: list[EventObject] = []
    while position < end and len(chain) < READS_AT_ONCE:
        covering = [each for each in objects if each.first <= position < each.end]
        if not covering:
            break
        chain.append(covering[-1])
        position = covering[-1].end
    return chain
