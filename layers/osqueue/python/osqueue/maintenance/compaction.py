"""Upkeep of the tables of one queue: written to the archive, merged, and rewritten without what is forgotten.

No more than about ``TABLE_BYTES_MAX`` of rows is read for one step, and a table that is made is no larger. A table
that cannot be read is set aside for the pass, and reported; its neighbours are looked after without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..commit.effects import Flow, QueueFlow, Submit, together
from ..core import tables
from ..core.archive_record import (
    ArchiveRecord,
    archived_contents,
    contents_of,
    cut_by_contents,
    encode_part,
    to_record,
    wants_record,
)
from ..core.encoding import born_of
from ..core.ops import Code
from ..core.queue_ops import MergeTables
from ..core.state import FinishedJob, State, TableRef
from ..errors import Damaged, NewerFormat, NotFound, OsqueueError, Unavailable
from ..model.reports import ReapReport
from ..objects import archive, finished_tables, id_index
from ..objects.layout import read_state, root_of, unavailable
from ..objects.segments import lost_object, read_bodies
from ..objects.staging import StagingArea
from ..stores.base import Found, Get, Missing, Put, StoreReply, Written
from . import garbage_collection, two_clocks

STEPS_MAX = 200  # of archiving, merging or forgetting in one pass; the next pass goes on
PUT_TRIES = 3

ClockFlow = Callable[[int, State], QueueFlow[int]]  # shard, its state → the store's time in ms
StageFactory = Callable[[int], QueueFlow[StagingArea]]


PassStep = QueueFlow[tuple[ReapReport, State]]  # what it did, and the state after it


class TakenTables(Struct, frozen=True):
    """Tables that are about to be exchanged for others."""

    tables: tuple[TableRef, ...]  # the pointers in the head
    names: tuple[str, ...]  # of all objects at or below them
    runs: Sequence[Sequence[FinishedJob]]  # the rows of each table, the oldest first


class _Broken(Exception):
    """A table that cannot be read, or not all that is below it."""

    def __init__(self, table: TableRef, error: OsqueueError) -> None:
        super().__init__(error.message)
        self.table = table
        self.error = error


class TableCompaction:
    """The steps of a pass that are about tables."""

    def __init__(self, queue: str, clock: ClockFlow, stage: StageFactory) -> None:
        self.queue = queue
        self.clock = clock
        self.stage = stage
        self.troubles: list[OsqueueError] = []  # of this pass
        self.aside: set[str] = set()  # tables that it leaves as they are, because they cannot be read

    def state_of(self, shard: int) -> QueueFlow[State]:
        """The shard's state as it is now."""
        state = yield from read_state(self.queue, shard)
        if state is None:
            raise Unavailable("the queue's head is not there any more. See docs/operations.md.")
        return state

    # ── Steps ────────────────────────────────────────────────────────────────
    def archive(self, shard: int, state: State) -> PassStep:
        """Write the records of tables that the archive does not have, oldest first, some MB at a time.

        Only the tables that were there when the pass began: on a busy queue there are always new ones, and few large
        parts are better than many small ones.
        """
        total = ReapReport()
        began = state.seq
        for _ in range(STEPS_MAX):
            taken = tuple(
                takewhile(
                    lambda each: each.level or born_of(each.name) < began,
                    tables.to_archive(state.tables, self.aside),
                )
            )
            if not taken:
                break
            done, state = yield from self._guarded(shard, state, self._archive_some(shard, state, taken))
            total += done
        return total, state

    def _archive_some(self, shard: int, state: State, taken: tuple[TableRef, ...]) -> QueueFlow[ReapReport]:
        if (yield from self._unfolded(shard, state, taken[0])):
            return ReapReport()
        read = yield from self._read(shard, taken)
        rows = [row for run in read.runs for row in run if wants_record(row)]
        rows.sort(key=lambda row: (row.finished_ms, row.key))
        for number, group in enumerate(cut_by_contents(rows)):
            data = encode_part((yield from self._records(shard, group)))
            if (yield from self._write(shard, state, taken, data, number)):
                return ReapReport()
        return (yield from self._exchange(shard, state, read, archived=len(rows)))

    def _records(self, shard: int, rows: Sequence[FinishedJob]) -> QueueFlow[list[ArchiveRecord]]:
        """The records of some rows, with payloads and results where the queue archives them.

        A content that is not there or damaged is left out, with the reason: it must not keep all others from the
        archive. (A purge may be erasing it, and takes the record out in the end.) Without an answer from the store
        the next pass goes on.
        """
        wanted = [content for row in rows for content in contents_of(row)]
        read = (yield from read_bodies(root_of(self.queue, shard), wanted)) if wanted else []
        for error in read:
            if isinstance(error, OsqueueError) and not isinstance(error, Damaged | NotFound):
                raise error
        contents = iter(read)
        return [to_record(row, archived_contents(row, contents)) for row in rows]

    def merge(self, shard: int, state: State) -> PassStep:
        """Put neighbours of like size together."""
        total = ReapReport()
        for _ in range(STEPS_MAX):
            taken = tables.to_merge(state.tables, self.aside)
            if not taken:
                break
            done, state = yield from self._guarded(shard, state, self._merge_some(shard, state, taken))
            total += done
        return total, state

    def _merge_some(self, shard: int, state: State, taken: tuple[TableRef, ...]) -> QueueFlow[ReapReport]:
        read = yield from self._read(shard, taken)
        return replace((yield from self._exchange(shard, state, read)), merged=len(taken))

    def forget(self, shard: int, state: State) -> PassStep:
        """Rewrite, or drop, tables of which many rows are no longer needed."""
        total = ReapReport()
        now = yield from self.clock(shard, state)
        seen = set(self.aside)
        for _ in range(STEPS_MAX):
            old = (each for each in state.tables if _is_old(each, now))
            table = next((each for each in old if each.name not in seen), None)
            if table is None:
                break
            seen.add(table.name)
            done, state = yield from self._guarded(shard, state, self._forget_some(shard, state, table, now))
            total += done
        return total, state

    def _forget_some(self, shard: int, state: State, table: TableRef, now: int) -> QueueFlow[ReapReport]:
        if table.until_ms <= now and not table.named:  # nothing to keep, no id to free: no need to read it
            names = yield from self._names(shard, table)
            return (
                yield from self._exchange(shard, state, TakenTables((table,), names, ()), unread=table.count)
            )
        if (yield from self._unfolded(shard, state, table)):
            return ReapReport()
        return (yield from self._exchange(shard, state, (yield from self._read(shard, (table,)))))

    def _guarded(self, shard: int, state: State, step: QueueFlow[ReapReport]) -> PassStep:
        """Take one step, and look at the head again. A table that cannot be read, now as before, is set aside."""
        done = ReapReport()
        broken: _Broken | None = None
        try:
            done = yield from step
        except _Broken as error:
            broken = error
        now = yield from self.state_of(shard)
        if broken is not None:
            self._set_aside(broken, moved=now.commit != state.commit)
        return done, now

    def _set_aside(self, broken: _Broken, moved: bool) -> None:
        """Report a table. One that is gone from a head that has moved on was only merged by another pass."""
        error = broken.error
        if isinstance(error, NotFound):
            if moved:
                return
            error = lost_object(error, self.queue)
        self.aside.add(broken.table.name)
        self.troubles.append(error)

    # ── Reading ──────────────────────────────────────────────────────────────
    def _read(self, shard: int, taken: tuple[TableRef, ...]) -> Flow[TakenTables]:
        """The rows of each table below these pointers, oldest first."""
        root = root_of(self.queue, shard)
        found = yield from together([_whole(root, table) for table in taken])
        names = [name for below, _ in found for name in below]
        return TakenTables(taken, tuple(names), [run for _, runs in found for run in runs])

    def _names(self, shard: int, table: TableRef) -> Flow[tuple[str, ...]]:
        try:
            below = yield from finished_tables.pointers(root_of(self.queue, shard), [table])
        except (Damaged, NewerFormat, NotFound) as error:
            raise _Broken(table, error) from error
        return tuple(each.name for each in below)

    # ── Exchanging ───────────────────────────────────────────────────────────
    def _exchange(
        self, shard: int, state: State, taken: TakenTables, *, archived: int = 0, unread: int = 0
    ) -> QueueFlow[ReapReport]:
        """Replace tables by others, if the replaced ones are still there.

        ``unread``: how many rows, none of which has to be remembered, were not even read.
        """
        root = root_of(self.queue, shard)
        now = yield from self.clock(shard, state)
        rows: list[FinishedJob] = []
        gone: list[FinishedJob] = []
        for row in tables.merge_rows(taken.runs):
            row = row if row.payload is None else replace(row, payload=None)  # the archive has it
            (rows if tables.known_until_ms(row) > now else gone).append(row)
        freed, bound = yield from self._free(shard, taken.tables, gone)
        if bound:  # what stands for them could not be removed: they stay, so that nobody runs them again
            rows = sorted([*rows, *(row for row in gone if row.key in bound)], key=lambda row: row.key)
            gone = [row for row in gone if row.key not in bound]
        idle = len(taken.tables) == 1 and taken.tables[0].archived and not taken.tables[0].level
        if idle and not gone and not unread:
            return ReapReport(freed=freed)  # it would only be written again
        put: list[TableRef] = []
        if rows:
            stage = yield from self._stage(shard, state)
            for data, table in tables.encode_tables(rows, True, lambda: stage.name(tables.FOLDER)):
                yield from stage.write([(table.name, data)])
                put.append(table)
        forgotten = len(gone) + unread
        answer = yield Submit(shard, (MergeTables(taken.tables, tuple(put), archived, forgotten > 0),))
        if answer.outcomes[0].code != Code.OK:
            return ReapReport(freed=freed)  # another pass was faster: what was staged is collected one day
        yield from garbage_collection.delete([root + name for name in taken.names])
        return ReapReport(archived=archived, forgotten=forgotten, freed=freed)

    def _stage(self, shard: int, state: State) -> QueueFlow[StagingArea]:
        """A place for tables made from those of a state.

        They are born no earlier than what they replace: by that the reducer sees what may hold a job that was
        enqueued since somebody looked for it.
        """
        stage = yield from self.stage(shard)
        stage.born = max(stage.born, state.seq)
        return stage

    def _free(
        self, shard: int, taken: Sequence[TableRef], gone: Sequence[FinishedJob]
    ) -> QueueFlow[tuple[int, frozenset[bytes]]]:
        """Free the ids of jobs that are about to be forgotten; how many, and the keys that must not be, yet.

        An id must not stand for a job that nobody remembers: its next caller would believe it was never enqueued.
        Nor may it be freed while a younger row of its job is remembered for longer. So the head is read now that it is
        known which rows are over: none of them can get another time to live any more.
        """
        named = {row.key: row for row in gone if row.job.client_id is not None}
        if not named:
            return 0, frozenset()
        bound = frozenset(named)
        state = yield from self.state_of(shard)
        if taken[-1] not in state.tables:
            return 0, bound  # another pass was faster
        try:
            yield from self._remembered(shard, state, taken, named)
            for row in state.finished:
                named.pop(row.key, None)
            ends = [
                id_index.FinishedId(
                    row.job.client_id or "", row.key, row.finished_ms, row.successor, row.job.replaced
                )
                for row in named.values()
            ]
            freed, damaged = yield from id_index.free(self.queue, ends)
        except _Broken as broken:
            self._set_aside(broken, moved=(yield from self.state_of(shard)).commit != state.commit)
            return 0, bound
        except OsqueueError as error:
            self.troubles.append(error)
            return 0, bound
        self.troubles.extend(damaged)
        return freed, frozenset()

    def _remembered(
        self, shard: int, state: State, taken: Sequence[TableRef], named: dict[bytes, FinishedJob]
    ) -> Flow[None]:
        """Take out those of which a younger table has a row, one table in memory at a time."""
        root = root_of(self.queue, shard)
        for table in state.tables[state.tables.index(taken[-1]) + 1 :]:
            if not _covers(table, named):
                continue
            try:
                for leaf in (yield from finished_tables.leaves(root, [table])):
                    for row in (yield from finished_tables.rows(root, leaf)) if _covers(leaf, named) else ():
                        named.pop(row.key, None)
            except (Damaged, NewerFormat, NotFound) as error:
                raise _Broken(table, error) from error

    # ── Indexes ──────────────────────────────────────────────────────────────
    def _unfolded(self, shard: int, state: State, index: TableRef) -> QueueFlow[bool]:
        """Put copies of what is in an index in its place, if all that is below it is too much for one step.

        Copies, because the reducer takes no pointer to an object that was born before ``gc_floor``. False: it is a
        table, or there is no more than that in it.
        """
        if not index.level or tables.bytes_below(index) + index.archive_bytes <= limits.TABLE_BYTES_MAX:
            return False
        root = root_of(self.queue, shard)
        try:
            below = yield from finished_tables.children(root, index)
            if len(below) == 1 and not below[0].level:
                return False
            deeper = [child for child in below if child.level]
            inside = iter((yield from together([finished_tables.children(root, child) for child in deeper])))
        except (Damaged, NewerFormat, NotFound) as error:
            raise _Broken(index, error) from error
        stage = yield from self._stage(shard, state)
        objects: list[tuple[str, bytes]] = []
        put: list[TableRef] = []
        for child in below:
            name = stage.name(tables.FOLDER)
            data, copy = tables.encode_table_index(next(inside) if child.level else (child,), name)
            objects.append((name, data))
            put.append(copy)
        yield from stage.write(objects)
        answer = yield Submit(shard, (MergeTables((index,), tuple(put)),))
        if answer.outcomes[0].code == Code.OK:
            yield from garbage_collection.delete(
                [root + index.name, *(root + child.name for child in deeper)]
            )
        return True

    # ── Parts ────────────────────────────────────────────────────────────────
    def _write(
        self, shard: int, state: State, taken: Sequence[TableRef], data: bytes, number: int
    ) -> QueueFlow[bool]:
        """Write an archive part into the hour in which, by the clock of heads, it was written.

        Who reads an hour that is over has then read all that any commit relies on. True: another pass was faster.
        Then nothing is written in this hour: readers know a record that is repeated for a few hours only, and this
        pass may have stood still for longer.
        """
        now = yield from self.clock(shard, state)
        reply: StoreReply = Missing()
        for _ in range(PUT_TRIES):
            if self._is_gone(taken, (yield from self.state_of(shard))):
                return True
            name = archive.part_name(self.queue, shard, now, taken, number)
            reply = yield Put(name, data)
            if isinstance(reply, Written):
                reply = yield Get(name, start=0, length=1)
            if isinstance(reply, Found):
                now = reply.modified_ms
                if reply.apart:  # by a clock of its own: what is written here only now was written after it
                    now = yield from two_clocks.time_now(self.queue, shard, name.encode())
                if archive.part_name(self.queue, shard, now, taken, number) == name:
                    return False
        raise unavailable(reply, "room for an archive part")

    def _is_gone(self, taken: Sequence[TableRef], state: State) -> bool:
        """Have other tables replaced these?"""
        return any(table not in state.tables for table in taken)


def _whole(root: str, table: TableRef) -> Flow[tuple[list[str], list[list[FinishedJob]]]]:
    """The names of all objects at or below a pointer, and the rows of each table of them. Raises _Broken."""
    try:
        below = yield from finished_tables.pointers(root, [table])
        runs = yield from together([finished_tables.rows(root, each) for each in below if not each.level])
    except (Damaged, NewerFormat, NotFound) as error:
        raise _Broken(table, error) from error
    return [each.name for each in below], runs


def _is_old(table: TableRef, now: int) -> bool:
    """Are many of its rows no longer needed? Never before the archive has them."""
    return table.archived and min(table.half_expired_ms, table.until_ms) <= now


def _covers(table: TableRef, named: dict[bytes, FinishedJob]) -> bool:
    """May it hold a younger row of one of these jobs?"""
    return table.updated_rows > 0 and any(table.first <= key <= table.last for key in named)
