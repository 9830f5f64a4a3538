"""Finished jobs, wherever they lie: the rows of tables, read by key or whole.

Tables are immutable and named by a committed head. One that is gone was merged into another since that head was
read: after NotFound a reader reads the head again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from ..commit.effects import All, Flow, together
from ..core.encoding import BlockInfo
from ..core.state import ARCHIVE_ONLY, FinishedJob, TableRef
from ..core.tables import decode_rows, decode_table_index
from ..errors import Damaged
from ..stores.base import Found, Get, StoreReply
from .segments import FOOTER_BYTES_GUESS, footer_of, read_failure, read_range

READS_AT_ONCE = 16


class FoundRow(Struct, frozen=True):
    """A finished job found in a table."""

    row: FinishedJob
    top: TableRef  # the pointer in the head that led to it


def find(root: str, tables: Sequence[TableRef], key: bytes) -> Flow[FoundRow | None]:
    """The newest row of a key."""
    return (yield from find_many(root, tables, (key,))).get(key)


def find_many(
    root: str, tables: Sequence[TableRef], keys: Iterable[bytes], known: Collection[str] = ()
) -> Flow[dict[bytes, FoundRow]]:
    """The newest row of each key that has one.

    Tables that may hold one are read some at a time, the newest first, each once for all keys. Those whose names
    are ``known`` are passed over, also below an index.
    """
    left = list(keys)
    found: dict[bytes, FoundRow] = {}
    newest = list(reversed(tables))
    while left and newest:
        able = [table for table in newest if table.name not in known and _between(table, left)]
        group, newest = able[:READS_AT_ONCE], able[READS_AT_ONCE:]
        ends = yield All(tuple(map(_end, [f"{root}{table.name}" for table in group], group)))
        for table, end in zip(group, ends, strict=True):
            rows = yield from _find(root, table, end, _between(table, left), known)
            found.update((key, FoundRow(row, table)) for key, row in rows.items())
            left = [key for key in left if key not in rows]
            if not left:
                break
    return found


def find_all(
    root: str, tables: Sequence[TableRef], keys: Collection[bytes]
) -> Flow[dict[bytes, FinishedJob]]:
    """The rows of those of many jobs that are over."""
    found = yield from find_many(root, tables, keys)
    return {key: kept.row for key, kept in found.items()}


def _between(run: TableRef | BlockInfo, keys: Sequence[bytes]) -> list[bytes]:
    return [key for key in keys if run.first <= key <= run.last]


def _end(name: str, table: TableRef) -> Get:
    """The part of a table that says where to look: all of a small one, the footer of a large one."""
    length = table.size if table.level else min(FOOTER_BYTES_GUESS, table.size)
    return Get(name, start=table.size - length, length=length)


def _find(
    root: str, table: TableRef, end: StoreReply, keys: Sequence[bytes], known: Collection[str]
) -> Flow[dict[bytes, FinishedJob]]:
    if not keys:
        return {}
    if not isinstance(end, Found):
        raise read_failure(end, table.name)
    if table.level:
        kept = yield from find_many(root, decode_table_index(end.body, table.name), keys, known)
        return {key: each.row for key, each in kept.items()}
    footer = yield from footer_of(root, table.name, table.size, end.body)
    found: dict[bytes, FinishedJob] = {}
    for block in footer.blocks:
        wanted = [key for key in _between(block, keys) if key not in found]
        if not wanted:
            continue
        before = table.size - len(end.body)  # bytes of the table that have not been read
        if block.offset >= before:
            data = end.body[block.offset - before :][: block.length]
        else:
            data = yield from read_range(root, table.name, block.offset, block.length)
        for row in decode_rows(data, block.length, table.name):
            if row.key in wanted and row.mark != ARCHIVE_ONLY:
                found.setdefault(row.key, row)
    return found


def children(root: str, index: TableRef) -> Flow[tuple[TableRef, ...]]:
    """The pointers in an index, the oldest first."""
    return decode_table_index((yield from read_range(root, index.name, 0, index.size)), index.name)


def pointers(root: str, tables: Sequence[TableRef]) -> Flow[list[TableRef]]:
    """These pointers and all below them, indexes included, the oldest first."""
    indexes = [table for table in tables if table.level]
    below = iter((yield from together([children(root, table) for table in indexes])))
    found: list[TableRef] = []
    for table in tables:
        found.append(table)
        if table.level:
            found.extend((yield from pointers(root, next(below))))
    return found


def leaves(root: str, tables: Sequence[TableRef]) -> Flow[list[TableRef]]:
    """Every table below these pointers, the oldest first."""
    return [each for each in (yield from pointers(root, tables)) if not each.level]


def rows(root: str, table: TableRef) -> Flow[list[FinishedJob]]:
    """All rows of one table, sorted by key."""
    data = yield from read_range(root, table.name, 0, table.size)
    footer = yield from footer_of(root, table.name, table.size, data)
    found = list(decode_rows(data, footer.blocks[0].length, table.name))
    if len(found) != table.count:
        raise Damaged(f"{table.name} is shorter than the head says. See docs/operations.md.")
    return found


def bodies_of(root: str, table: TableRef) -> Flow[tuple[str, ...]]:
    """The names of the bodies that a table's results lie in."""
    length = min(FOOTER_BYTES_GUESS, table.size)
    end = yield from read_range(root, table.name, table.size - length, length)
    return (yield from footer_of(root, table.name, table.size, end)).bodies
