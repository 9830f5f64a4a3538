"""Recorded transitions that have left the head of a shard: see ``core.event_log``.

Nothing points to their objects. Of two that overlap, one was written by a commit that was lost: both tell the same.
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
    root: str, seq: int, position: int, end: int, most: int
) -> Flow[tuple[list[Transition], int]]:
    """Transitions from a position on, in order, and the seq of the object that the last one lies in.

    ``seq`` is that of a head that had not dropped any of them. No more than ``most``, but for the rest of an object,
    and none at or behind ``end``. None at all: they are not kept any more.
    """
    after = f"{root}{FOLDER}/{seq:012x}"
    while True:
        listed = yield from _listed(root, after)
        chain = _chain(listed.keys, root, position, min(end, position + most))
        if chain or not listed.more:
            break
        after = listed.keys[-1]
    replies = yield from ask_all([Get(root + each.name) for each in chain], OBJECT)
    rows: list[Transition] = []
    for each, reply in zip(chain, replies, strict=True):
        if isinstance(reply, Missing):
            break
        if not isinstance(reply, Found):
            raise unavailable(reply, each.name)
        found = rows_of(reply.body, each.name)[position - each.first : end - each.first]
        rows += found
        position += len(found)
        seq = each.born
    return rows, seq


def oldest(root: str, first: int, since_ms: int) -> Flow[tuple[int, int]]:
    """The seq and the position at which to begin for all that is kept since a time; ``first`` is the head's own."""
    seq = 0
    for each in reversed((yield from objects_since(root, since_ms))):
        if each.first < first <= each.end:
            first, seq = each.first, each.born
    return seq, first


def objects_since(root: str, since_ms: int) -> Flow[list[EventObject]]:
    """The objects that hold transitions of a time or later, in order."""
    found: list[EventObject] = []
    after = ""
    while True:
        listed = yield from _listed(root, after)
        objects = [object_of(key.removeprefix(root)) for key in listed.keys]
        found += [each for each in objects if each is not None and each.at_ms >= since_ms]
        if not listed.more:
            return found
        after = listed.keys[-1]


def _listed(root: str, after: str) -> Flow[Listed]:
    listed = yield from ask(List(f"{root}{FOLDER}/", after=after), OBJECT)
    if not isinstance(listed, Listed):
        raise unavailable(listed, "the list of recorded events")
    return listed


def _chain(keys: Sequence[str], root: str, position: int, end: int) -> list[EventObject]:
    """The objects that follow one another from a position on, some of them."""
    chain: list[EventObject] = []
    for key in keys:
        found = object_of(key.removeprefix(root))
        if found is not None and found.first <= position < min(found.end, end):
            chain.append(found)
            position = found.end
            if len(chain) == READS_AT_ONCE:
                break
    return chain
