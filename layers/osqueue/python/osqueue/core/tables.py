"""Finished jobs that have left the head: tables sorted by key, and how their number is kept small.

What exceeds the head's budget for finished jobs becomes a *table*: one immutable object, its rows sorted by key,
and one pointer in the head. The reaper merges neighbouring tables, writes the archive from them and drops what
need not be remembered, so that a lookup meets few of them: this is a log-structured merge tree (P. O'Neil et al.,
1996) whose lookups go from the newest table to the oldest. Should nobody reap, ``fold`` replaces the oldest
pointers by indexes, so that the head stays bounded all the same.

    table    block … block | frame "OSQF" of the footer | length of the footer frame (4 bytes)
    block    frame "OSQT" | length of the next block (4 bytes, 0 after the last) | MessagePack of rows
    index    frame "OSQY" | MessagePack of tables, oldest first
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import groupby

import msgspec

from ..errors import Damaged
from ..limits import EXPIRED_KNOWN_MS, FANOUT, TABLE_BYTES_MAX
from .encoding import (
    FRAME_BYTES,
    BlockInfo,
    Footer,
    cut_by_weight,
    cut_rows,
    encode,
    frame,
    pack_length,
    unframe,
    unpack_length,
)
from .state import ARCHIVE_ONLY, UPDATED, FinishedJob, TableRef

FOLDER = "finished"
ROW_BYTES_TYPICAL = 150
LARGER_MAX = (
    2  # a table is merged with younger ones that together have at least this share of its size: a half
)

_decode_rows = msgspec.msgpack.Decoder(tuple[FinishedJob, ...]).decode
_decode_tables = msgspec.msgpack.Decoder(tuple[TableRef, ...]).decode

Spill = Callable[[str, Callable[[str], tuple[bytes, TableRef]]], TableRef]


def known_until_ms(row: FinishedJob) -> int:
    """Until when a finished job is told from one that never was; never before any earlier version of its row."""
    taken = row.job.enqueued_ms + row.job.window_ms if row.job.window_ms and row.successor is None else 0
    return max(row.expires_ms, row.kept_ms, taken) + EXPIRED_KNOWN_MS


def encode_table(rows: Sequence[FinishedJob], archived: bool, name: str) -> tuple[bytes, TableRef]:
    """A table of these rows, which are sorted by key, and the pointer to it."""
    return _encode_table(list(cut_rows(rows)), archived, name)


def encode_tables(
    rows: Sequence[FinishedJob], archived: bool, name: Callable[[], str]
) -> Iterator[tuple[bytes, TableRef]]:
    """The same, cut into tables of at most ``TABLE_BYTES_MAX`` (and a block each at least), each with a new name."""
    for runs in cut_by_weight(cut_rows(rows), lambda run: _block_bytes(run[1]), TABLE_BYTES_MAX):
        yield _encode_table(runs, archived, name())


def _block_bytes(body: bytes) -> int:
    return FRAME_BYTES + 4 + len(body)


def _encode_table(
    runs: Sequence[tuple[list[FinishedJob], bytes]], archived: bool, name: str
) -> tuple[bytes, TableRef]:
    out: list[bytes] = []
    infos: list[BlockInfo] = []
    offset = 0
    rows = [row for run, _ in runs for row in run]
    lengths = [_block_bytes(body) for _, body in runs] + [0]
    for at, (run, body) in enumerate(runs):
        out.append(frame(b"OSQT", pack_length(lengths[at + 1]) + body))
        infos.append(BlockInfo(offset, lengths[at], len(run), run[0].key, run[-1].key))
        offset += lengths[at]
    until = sorted(map(known_until_ms, rows))
    bodies = sorted({body.name for row in rows for body in row.bodies})
    footer = frame(b"OSQF", encode(Footer(tuple(infos), tuple(bodies))))
    data = b"".join((*out, footer, pack_length(len(footer))))
    return data, TableRef(
        name=name,
        level=0,
        count=len(rows),
        size=len(data),
        first=rows[0].key,
        last=rows[-1].key,
        until_ms=until[-1],
        half_expired_ms=until[len(until) // 2],
        named=sum([row.job.client_id is not None for row in rows]),
        bodies=bool(bodies),
        archived=archived,
        updated_rows=sum([row.mark == UPDATED for row in rows]),
        archive_bytes=sum([row.archive_bytes for row in rows]),
    )


def decode_rows(data: bytes, length: int, name: str) -> Iterator[FinishedJob]:
    """The rows of whole blocks, the first of which is ``length`` bytes long. Raises Damaged or NewerFormat."""
    offset = 0
    while length:
        rest = unframe(b"OSQT", data[offset : offset + length], name)
        try:
            yield from _decode_rows(memoryview(rest)[4:])
        except msgspec.MsgspecError as error:
            raise Damaged(f"{name} cannot be decoded: {error}") from error
        offset += length
        length = unpack_length(rest)
        if offset + length > len(data):
            return


def encode_table_index(tables: Sequence[TableRef], name: str) -> tuple[bytes, TableRef]:
    """An index of these tables, oldest first, and the pointer to it."""
    data = frame(b"OSQY", encode(tuple(tables)))
    return data, TableRef(
        name=name,
        level=max(table.level for table in tables) + 1,
        count=sum(table.count for table in tables),
        size=len(data),
        first=min(table.first for table in tables),
        last=max(table.last for table in tables),
        until_ms=max(table.until_ms for table in tables),
        half_expired_ms=max(table.half_expired_ms for table in tables),
        named=sum(table.named for table in tables),
        bodies=any(table.bodies for table in tables),
        archived=all(table.archived for table in tables),
        updated_rows=sum(table.updated_rows for table in tables),
        below=sum(map(bytes_below, tables)),
        archive_bytes=sum(table.archive_bytes for table in tables),
    )


def decode_table_index(data: bytes, name: str) -> tuple[TableRef, ...]:
    """The inverse of ``encode_table_index``."""
    try:
        return _decode_tables(unframe(b"OSQY", data, name))
    except msgspec.MsgspecError as error:
        raise Damaged(f"{name} cannot be decoded: {error}") from error


# ── Few pointers ─────────────────────────────────────────────────────────────
def fold(tables: list[TableRef], spill: Spill) -> bool:
    """Keep the number of pointers logarithmic; answers whether any changed.

    ``FANOUT`` neighbours of one level become an index, the oldest first. The newest stay as they are: the reaper is
    about to merge them.
    """
    changed = False
    while (at := _foldable(tables)) is not None:
        group = tables[at : at + FANOUT]
        tables[at : at + FANOUT] = [spill(FOLDER, partial(encode_table_index, group))]
        changed = True
    return changed


def _foldable(tables: Sequence[TableRef]) -> int | None:
    run = 0
    for at in range(len(tables) - FANOUT):
        before = tables[at - 1]
        alike = (before.level, before.archived) == (tables[at].level, tables[at].archived)
        run = run + 1 if run and alike else 1
        if run == FANOUT:
            return at - FANOUT + 1
    return None


# ── Merging ──────────────────────────────────────────────────────────────────
def merge_rows(runs: Sequence[Sequence[FinishedJob]]) -> Iterator[FinishedJob]:
    """The rows of several tables, oldest first, in one order; where two know a key, the younger is right.

    Rows that were only for the archive have served their purpose.
    """
    ages = [[(row.key, -age, row) for row in run if row.mark != ARCHIVE_ONLY] for age, run in enumerate(runs)]
    latest = b""
    for key, _, row in heapq.merge(*ages, key=lambda each: each[:2]):
        if key != latest:
            latest = key
            yield row


def to_archive(tables: Sequence[TableRef], without: Collection[str] = ()) -> tuple[TableRef, ...]:
    """The oldest neighbours whose rows the archive does not have yet, as many as one pass can hold.

    ``without``: names of tables to leave as they are.
    """
    group: list[TableRef] = []
    size = 0
    for table in tables:
        if table.archived or table.name in without:
            if group:
                break
            continue
        size += bytes_below(table) + table.archive_bytes
        if group and size > TABLE_BYTES_MAX:
            break
        group.append(table)
    return tuple(group)


def to_merge(tables: Sequence[TableRef], without: Collection[str] = ()) -> tuple[TableRef, ...]:
    """Archived neighbours worth merging, or none: the youngest, and older ones while they are of like size.

    Each row is rewritten about log n times, and about log n tables are left ("universal compaction" in RocksDB).
    Tables that together exceed ``TABLE_BYTES_MAX`` are left as they are. So are those in ``without``; neighbours on
    either side of one of them do not meet.
    """
    able = [(table.archived and table.name not in without, table) for table in reversed(tables)]
    for mergeable, neighbours in groupby(able, key=lambda each: each[0]):
        group: list[TableRef] = []
        size = 0
        for _, table in neighbours if mergeable else ():
            below = bytes_below(table)
            if group and (below > LARGER_MAX * size or size + below > TABLE_BYTES_MAX):
                break
            group.append(table)
            size += below
        if len(group) > 1:
            return tuple(reversed(group))
    return ()


def bytes_below(table: TableRef) -> int:
    """About how many bytes the rows of a table take, wherever they lie."""
    return table.size if table.level == 0 else table.below or table.count * ROW_BYTES_TYPICAL
