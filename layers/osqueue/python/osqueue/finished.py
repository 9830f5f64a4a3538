"""Finished jobs, wherever they lie: the rows of tables, read by key or whole.

Tables are immutable and named by a committed head. One that is gone was merged into another since that head was
read: whoever meets NotFound reads the head again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .commit.effects import All, Flow, together
from .core.state import ECHO, Finished, Table
from .core.tables import covering, decode_index, decode_rows
from .core.wire import Footer, decode_footer
from .errors import Damaged
from .segments import FOOTER_BYTES_GUESS, read_range, unread
from .stores.base import Found, Get, Reply

READS_AT_ONCE = 16


class Kept(Struct, frozen=True):
    """A finished job found in a table."""

    row: Finished
    top: Table  # the pointer in the head that led to it


def find(root: str, tables: Sequence[Table], key: bytes) -> Flow[Kept | None]:
    """The newest row of a key. Tables that may hold it are read some at a time, the newest first."""
    able = covering(tables, key)
    for at in range(0, len(able), READS_AT_ONCE):
        group = able[at : at + READS_AT_ONCE]
        ends = yield All(tuple(map(_end, [f"{root}{table.name}" for table in group], group)))
        for table, end in zip(group, ends, strict=True):
            row = yield from _find(root, table, end, key)
            if row is not None:
                return Kept(row, table)
    return None


def _end(name: str, table: Table) -> Get:
    """The part of a table that tells where to look: all of a small one, the footer of a large one."""
    length = table.size if table.level else min(FOOTER_BYTES_GUESS, table.size)
    return Get(name, start=table.size - length, length=length)


def _find(root: str, table: Table, end: Reply, key: bytes) -> Flow[Finished | None]:
    if not isinstance(end, Found):
        raise unread(end, table.name)
    if table.level:
        kept = yield from find(root, decode_index(end.body, table.name), key)
        return kept.row if kept is not None else None
    footer = yield from _footer(root, table, end.body)
    for block in footer.blocks:
        if block.first <= key <= block.last:
            before = table.size - len(end.body)  # bytes of the table that have not been read
            if block.offset >= before:
                data = end.body[block.offset - before :][: block.length]
            else:
                data = yield from read_range(root, table.name, block.offset, block.length)
            for row in decode_rows(data, block.length, table.name):
                if row.key == key and row.mark != ECHO:
                    return row
    return None


def _footer(root: str, table: Table, data: bytes) -> Flow[Footer]:
    found = decode_footer(data, table.name)
    if isinstance(found, Footer):
        return found
    if not len(data) < found <= table.size:
        raise Damaged(f"{table.name} is shorter than the head says. See docs/operations.md.")
    found = decode_footer((yield from read_range(root, table.name, table.size - found, found)), table.name)
    if not isinstance(found, Footer):
        raise Damaged(f"{table.name} has no footer where it should. See docs/operations.md.")
    return found


def children(root: str, index: Table) -> Flow[tuple[Table, ...]]:
    """The pointers in an index, the oldest first."""
    return decode_index((yield from read_range(root, index.name, 0, index.size)), index.name)


def leaves(root: str, tables: Sequence[Table]) -> Flow[list[Table]]:
    """Every table below these pointers, the oldest first."""
    indexes = [table for table in tables if table.level]
    below = iter((yield from together([children(root, table) for table in indexes])))
    found: list[Table] = []
    for table in tables:
        if table.level:
            found.extend((yield from leaves(root, next(below))))
        else:
            found.append(table)
    return found


def rows(root: str, table: Table) -> Flow[list[Finished]]:
    """All rows of one table, sorted by key."""
    data = yield from read_range(root, table.name, 0, table.size)
    footer = decode_footer(data, table.name)
    if not isinstance(footer, Footer):
        raise Damaged(f"{table.name} has no footer where it should. See docs/operations.md.")
    found = list(decode_rows(data, footer.blocks[0].length, table.name))
    if len(found) != table.count:
        raise Damaged(f"{table.name} is shorter than the head says. See docs/operations.md.")
    return found


def objects(root: str, tables: Sequence[Table]) -> Flow[tuple[set[str], set[str]]]:
    """The names of everything below these pointers: of tables and indexes, and of the bodies they refer to."""
    names: set[str] = set()
    bodies: set[str] = set()
    for table in tables:
        names.add(table.name)
        if table.level:
            more, kept = yield from objects(root, (yield from children(root, table)))
            names |= more
            bodies |= kept
        elif table.bodies:
            length = min(FOOTER_BYTES_GUESS, table.size)
            end = yield from read_range(root, table.name, table.size - length, length)
            bodies.update((yield from _footer(root, table, end)).bodies)
    return names, bodies
