"""What a head's tables of finished jobs hold, by really reading them, and what a commit may do to it.

A job leaves the head into a table as it was, is remembered until its time is over, and its record is in the archive
before a commit says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from osqueue.core.archive_record import ArchiveRecord, wants_record
from osqueue.core.encoding import Footer, decode_footer
from osqueue.core.state import ARCHIVE_ONLY, FinishedJob, TableRef
from osqueue.core.tables import decode_rows, decode_table_index, known_until_ms
from osqueue.objects.archive import hour_of

from .ledger import Violation
from .places import Read

Record = tuple[bytes, int, str]  # key, run, state
CLOCK_SLACK_MS = 3_000  # between a reaper's clock and the head's
DOUBT_MS = 3_600_000  # of parts' hours: of heads whose time is ahead, and of hours that are just over


def check_hour(part: str, records: Iterable[ArchiveRecord], now_ms: int) -> None:
    """Is a part in an hour that whoever looks for its jobs reads? From where they finished, until now."""
    queue, hour = part.split("/")[1].removeprefix("queue="), f"{part.rpartition('/')[0]}/"
    if hour > hour_of(queue, now_ms + DOUBT_MS):
        raise Violation(f"invariant 10: {part} lies in an hour that is yet to come")
    if hour < hour_of(queue, max(each.finished_ms for each in records) - DOUBT_MS):
        raise Violation(f"invariant 10: {part} lies in an hour before its jobs finished")


def record_of(row: FinishedJob) -> Record:
    """What tells a record from all others."""
    return (row.key, row.job.run, row.state)


class TableLeaf(Struct, frozen=True):
    """One table that a head refers to."""

    table: TableRef
    rows: tuple[FinishedJob, ...]


class Shelves:
    """Reads tables once: they never change."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._rows: dict[str, tuple[FinishedJob, ...]] = {}
        self._indexes: dict[str, tuple[TableRef, ...]] = {}

    def leaves(self, tables: Iterable[TableRef]) -> Iterator[TableLeaf]:
        """Every table below these pointers, the oldest first. What is missing is a violation."""
        for table in tables:
            data = self._read(table.name)
            if data is None:
                raise Violation(f"invariant 8: {table.name} is referenced and does not exist")
            if table.level:
                if table.name not in self._indexes:
                    self._indexes[table.name] = decode_table_index(data, table.name)
                yield from self.leaves(self._indexes[table.name])
                continue
            if table.name not in self._rows:
                self._rows[table.name] = _rows(table, data)
            yield TableLeaf(table, self._rows[table.name])

    def names(self, tables: Iterable[TableRef]) -> Iterator[str]:
        """Everything below these pointers that was read when they were new, indexes included."""
        for table in tables:
            yield table.name
            yield from self.names(self._indexes.get(table.name, ()))


def _rows(table: TableRef, data: bytes) -> tuple[FinishedJob, ...]:
    footer = decode_footer(data, table.name)
    if not isinstance(footer, Footer):
        raise Violation(f"{table.name} has no footer")
    rows = tuple(decode_rows(data, footer.blocks[0].length, table.name))
    keys = [row.key for row in rows]
    bodies = {body.name for row in rows for body in row.bodies}
    if keys != sorted(keys) or (table.count, table.first, table.last) != (len(keys), keys[0], keys[-1]):
        raise Violation(f"the pointer to {table.name} says other than what is there")
    if (table.size, table.bodies, set(footer.bodies)) != (len(data), bool(bodies), bodies):
        raise Violation(f"the pointer to {table.name} says other than what is there")
    return rows


def newest(leaves: Sequence[TableLeaf]) -> dict[bytes, FinishedJob]:
    """The row of each key that is right: the youngest."""
    return {row.key: row for leaf in leaves for row in leaf.rows if row.mark != ARCHIVE_ONLY}


def unwritten(leaves: Sequence[TableLeaf]) -> set[Record]:
    """The records that the archive is still to get."""
    return {
        record_of(row) for leaf in leaves if not leaf.table.archived for row in leaf.rows if wants_record(row)
    }


def check(
    before: Sequence[TableLeaf],
    after: Sequence[TableLeaf],
    shelved: Sequence[FinishedJob],
    now_ms: int,
    written: set[Record],
    purged: Collection[bytes] = (),
) -> None:
    """A commit put ``shelved`` rows into tables, and may have exchanged, merged and forgotten others.

    ``now_ms``: the latest time of any head. ``written``: the records in the archive's parts as they are now.
    ``purged``: jobs that may go from anywhere.
    """
    was, now = newest(before), newest(after)
    was.update((row.key, row) for row in shelved if row.mark != ARCHIVE_ONLY)
    for key, row in was.items():
        if key in purged:
            continue
        if key not in now:
            early = known_until_ms(row) - now_ms
            if early > CLOCK_SLACK_MS:
                raise Violation(f"{key.hex()}, {row.state}, was forgotten {early} ms too early")
        elif not alike(now[key], row) and known_until_ms(row) - now_ms > CLOCK_SLACK_MS:
            raise Violation(f"an older record of {key.hex()} came back out of a table")
    if strange := now.keys() - was.keys():
        raise Violation(f"{len(strange)} jobs are in tables that never left the head")
    owed = unwritten(before) | {record_of(row) for row in shelved if wants_record(row)}
    if lost := {each for each in owed - unwritten(after) - written if each[0] not in purged}:
        raise Violation(f"invariant 10: {len(lost)} records count as archived and are in no part")


def alike(row: FinishedJob, other: FinishedJob) -> bool:
    """The same end of the same job, with the same time to live, wherever its result lies and its payload lay."""
    return _bare(row) == _bare(other)


def _bare(row: FinishedJob) -> FinishedJob:
    return replace(row, result=b"", payload=None, spent=None)
