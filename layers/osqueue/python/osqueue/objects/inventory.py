"""What lies in the store for one shard: its objects by name, and what its pointers lead to.

Unlike the readers of everyday work, everything here goes on when an object is missing or damaged, and reports it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..commit.effects import Flow
from ..core.audit import spans_of
from ..core.encoding import Footer, decode_footer
from ..core.event_log import FOLDER as EVENTS
from ..core.intents import intents_prefix, writer_of_publication
from ..core.restore import names_in_head
from ..core.state import FinishedJob, Span, State, TableRef, referenced_objects
from ..core.tables import FOLDER as TABLES
from ..core.tables import decode_rows, encode_table
from ..errors import Damaged, NewerFormat, NotFound
from ..stores.base import List, Listed
from . import finished_tables, segments
from .layout import unavailable
from .staging import UPLOADS

REFERENCED = ("segments/", "bodies/", f"{TABLES}/")  # whatever is in use there, something refers to
STAGED = (*REFERENCED, f"{EVENTS}/", f"{UPLOADS}/")
UNREADABLE = (Damaged, NewerFormat, NotFound)
_BORN = re.compile(r"(?:(?:segments|bodies|finished|events|uploads)/)?([0-9a-f]{12})[-.]")
_PART = re.compile(r"/(\d{2,})-([0-9a-f]{12})-[0-9a-f]+\.jsonl\.gz$")


class ReachableObjects(Struct):
    """What pointers led to."""

    names: set[str]  # every object met, whether it can be read or not
    broken: dict[str, str]  # the objects that are missing or damaged, and what is wrong with them

    def note(self, name: str, error: Damaged | NewerFormat | NotFound) -> None:
        """An object cannot be read."""
        missing = isinstance(error, NotFound)
        self.broken[name] = f"{name} is not there" if missing else error.message


def keys(prefix: str, most: int | None = None) -> Flow[list[str]]:
    """The keys under a prefix in order, at least ``most`` if there are as many. Raises Unavailable."""
    found: list[str] = []
    while True:
        listed = yield List(prefix, after=found[-1] if found else "")
        if not isinstance(listed, Listed):
            raise unavailable(listed, f"the list of {prefix}")
        found.extend(listed.keys)
        if not listed.more or (most is not None and len(found) >= most):
            return found


def announcements(root: str, most: int | None = None) -> Flow[list[str]]:
    """The announced requests of a shard, by their names."""
    place = intents_prefix(root)
    found = [key[len(place) :] for key in (yield from keys(place, most))]
    return [name for name in found if writer_of_publication(name) is None]


def names(root: str, folders: Sequence[str] = STAGED, most: int | None = None) -> Flow[list[str]]:
    """The objects of a shard in these folders, by their names below its prefix."""
    found: list[str] = []
    for folder in folders:
        found.extend(key[len(root) :] for key in (yield from keys(root + folder, most)))
    return found


def born_in(name: str) -> int:
    """When one of the library's own objects was born, by its name; 0 for any other."""
    found = _BORN.match(name)
    return int(found[1], 16) if found else 0


def part_of(name: str) -> tuple[int, int] | None:
    """The shard of an archive part, and when the youngest table in it was born."""
    found = _PART.search(name)
    return (int(found[1]), int(found[2], 16)) if found else None


# ── Following pointers ───────────────────────────────────────────────────────
def walk(root: str, state: State, deep: bool) -> Flow[ReachableObjects]:
    """Follow a head's pointers: to each object it names, and with ``deep`` to the last row of every one.

    Without ``deep`` an object's end is read, which shows that it is there and whole; what lies below an index is not
    looked at.
    """
    met = ReachableObjects(names_in_head(state), {})
    for span in spans_of(state):
        yield from _span(root, span, deep, met)
    for table in state.tables:
        yield from _table(root, table, deep, met)
    return met


def _span(root: str, span: Span, deep: bool, met: ReachableObjects) -> Flow[None]:
    met.names.add(span.name)
    met.names |= referenced_objects(span)
    try:
        if span.level:
            below = yield from segments.children(root, span)
        else:
            below = ()
            yield from segments.deleted_from(root, span)
            met.names.update((yield from segments.footer(root, span)).bodies)
            if deep:
                yield from segments.segment_jobs(root, span)
    except UNREADABLE as error:
        met.note(span.name, error)
        return
    if deep:
        for child in below:
            yield from _span(root, child, deep, met)


def _table(root: str, table: TableRef, deep: bool, met: ReachableObjects) -> Flow[None]:
    met.names.add(table.name)
    try:
        if table.level:
            below = yield from finished_tables.children(root, table)
        else:
            below = ()
            met.names.update((yield from finished_tables.bodies_of(root, table)))
            if deep:
                yield from finished_tables.rows(root, table)
    except UNREADABLE as error:
        met.note(table.name, error)
        return
    if deep:
        for child in below:
            yield from _table(root, child, deep, met)


# ── Tables that no head may name any more ────────────────────────────────────
def rows_of(data: bytes, name: str) -> list[FinishedJob]:
    """The rows of a table without the pointer to it. Raises Damaged, also for what is no table, or NewerFormat."""
    end = decode_footer(data, name)
    if not isinstance(end, Footer) or not end.blocks:
        raise Damaged(f"{name} has no footer where it should.")
    return list(decode_rows(data, end.blocks[0].length, name))


def pointer_to(rows: Sequence[FinishedJob], data: bytes, name: str) -> TableRef:
    """The pointer to a table of these rows. Whether the archive has them is for the caller to see to."""
    return replace(encode_table(rows, True, name)[1], size=len(data))
