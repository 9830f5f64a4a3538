"""Tables of finished jobs and the archive's parts, with one check removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow, QueueFlow, Submit
from osqueue.core import tables
from osqueue.core.encoding import born_of, staged_name
from osqueue.core.state import FinishedJob, State, TableRef
from osqueue.errors import Damaged
from osqueue.maintenance import compaction, garbage_collection
from osqueue.maintenance.compaction import _Broken
from osqueue.maintenance.reaper import Reaper
from osqueue.objects import archive, finished_tables, staging
from osqueue.objects.layout import root_of
from osqueue.stores.base import Put

from .control import Control, in_scene, patched


# ── The archive ──────────────────────────────────────────────────────────────
def parts_perhaps_written() -> AbstractContextManager[None]:
    """Tables count as archived, whatever the store said of their part."""

    def write(
        self: Any, shard: int, state: State, taken: Sequence[TableRef], data: bytes, number: int
    ) -> QueueFlow[None]:
        now = yield from self.clock(shard, state)
        yield Put(archive.part_name(self.queue, shard, now, taken, number), data)

    return patched((Reaper, "_write", write))


def parts_named_by_the_last_table() -> AbstractContextManager[None]:
    """Two parts have one name if the youngest table in them is the same."""

    def part_name(queue: str, shard: int, now_ms: int, taken: Sequence[TableRef], number: int = 0) -> str:
        born = born_of(taken[-1].name)
        return f"{archive.hour_of(queue, now_ms)}{shard:02d}-{born:012x}.jsonl.gz"

    return patched((archive, "part_name", part_name))


def archived_hours_after_others() -> AbstractContextManager[None]:
    """A part is written, whether or not another pass has archived its tables meanwhile."""
    return patched((Reaper, "_is_gone", lambda self, taken, state: False))


def merged_before_they_are_archived() -> AbstractContextManager[None]:
    """Tables are merged, whether or not the archive has their rows."""
    real = tables.to_merge

    def to_merge(given: Sequence[TableRef], without: Collection[str] = ()) -> tuple[TableRef, ...]:
        by_name = {each.name: each for each in given}
        taken = real([replace(each, archived=True) for each in given], without)
        return tuple(by_name[each.name] for each in taken)

    return patched((tables, "to_merge", to_merge))


def forgotten_before_they_are_archived() -> AbstractContextManager[None]:
    """Rows are forgotten, whether or not the archive has them."""

    def is_old(table: TableRef, now: int) -> bool:
        return min(table.half_expired_ms, table.until_ms) <= now

    return patched((compaction, "_is_old", is_old))


# ── Exchanging ───────────────────────────────────────────────────────────────
def names_that_repeat() -> AbstractContextManager[None]:
    """A staged object is named by its birth, and by nothing that only its writer knows."""

    def name(self: Any, folder: str) -> str:
        self._count += 1
        return staged_name(folder, self.born, 0, self._count)

    return patched((staging.StagingArea, "name", name))


def deleted_before_the_exchange() -> AbstractContextManager[None]:
    """Tables are deleted, and then others take their place."""
    real = Reaper._exchange

    def exchange(self: Any, shard: int, state: State, taken: Any, **more: Any) -> QueueFlow[Any]:
        root = root_of(self.queue, shard)
        flow, reply = real(self, shard, state, taken, **more), None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            if isinstance(effect, Submit):
                yield from garbage_collection.delete([root + name for name in taken.names])
            reply = yield effect

    return patched((Reaper, "_exchange", exchange))


def index_deleted_before_the_exchange() -> AbstractContextManager[None]:
    """An index is deleted, and then copies of what is in it take its place."""
    real = Reaper._unfolded

    def unfolded(self: Any, shard: int, state: State, index: TableRef) -> QueueFlow[Any]:
        flow, reply = real(self, shard, state, index), None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            if isinstance(effect, Submit):
                yield from garbage_collection.delete([root_of(self.queue, shard) + index.name])
            reply = yield effect

    return patched((Reaper, "_unfolded", unfolded))


def unreadable_tables_are_empty() -> AbstractContextManager[None]:
    """A table that cannot be read has no rows."""
    real = finished_tables.rows

    def rows(root: str, table: TableRef) -> Flow[list[FinishedJob]]:
        try:
            return (yield from real(root, table))
        except Damaged:
            return []

    return patched((finished_tables, "rows", rows))


def unreadable_indexes_are_empty() -> AbstractContextManager[None]:
    """There is nothing in an index that cannot be read."""
    real = finished_tables.children

    def children(root: str, index: TableRef) -> Flow[tuple[TableRef, ...]]:
        try:
            return (yield from real(root, index))
        except Damaged:
            return ()

    return patched((finished_tables, "children", children))


def trouble_of_the_past() -> AbstractContextManager[None]:
    """A table that is gone is missed, also by a head that knows it no longer."""
    real = Reaper._set_aside

    def set_aside(self: Any, broken: _Broken, moved: bool) -> None:
        real(self, broken, False)

    return patched((Reaper, "_set_aside", set_aside))


def older_rows_are_right() -> AbstractContextManager[None]:
    """Where two tables know a job, the older one is believed."""
    real = tables.merge_rows

    def merge(runs: Sequence[Sequence[FinishedJob]]) -> Iterator[FinishedJob]:
        return real(runs[::-1])

    return patched((tables, "merge_rows", merge))


# ── Forgetting ───────────────────────────────────────────────────────────────
def forgotten_with_their_ids() -> AbstractContextManager[None]:
    """A job is forgotten, whether or not its id could be freed."""
    real = Reaper._free

    def free(self: Any, *args: Any) -> QueueFlow[tuple[int, frozenset[bytes]]]:
        freed, _ = yield from real(self, *args)
        return freed, frozenset()

    return patched((Reaper, "_free", free))


def tables_that_are_gone_were_the_youngest() -> AbstractContextManager[None]:
    """Where the table of a row has been merged away, no other one knows its job."""
    real = Reaper._free

    def free(self: Any, shard: int, taken: Sequence[TableRef], gone: Sequence[FinishedJob]) -> QueueFlow[Any]:
        def state_of(shard: int) -> QueueFlow[State]:
            state: State = yield from type(self).state_of(self, shard)
            if taken[-1] in state.tables:
                return state
            return replace(state, tables=(*state.tables, taken[-1]))

        self.state_of = state_of
        answer = yield from real(self, shard, taken, gone)
        del self.state_of
        return answer

    return patched((Reaper, "_free", free))


def unreadable_tables_remember_nothing() -> AbstractContextManager[None]:
    """A younger table that cannot be read has no row of any job in question."""
    real = Reaper._remembered

    def remembered(self: Any, *args: Any) -> Flow[None]:
        with suppress(_Broken):
            yield from real(self, *args)

    return patched((Reaper, "_remembered", remembered))


_ARCHIVE = "count as archived and are in no part"
_FREED = "an id was freed while the result"

CONTROLS: tuple[Control, ...] = (
    Control("parts that were written", parts_perhaps_written, (in_scene("parts refused", _ARCHIVE),)),
    Control(
        "parts named by all their tables",
        parts_named_by_the_last_table,
        (in_scene("part of fewer tables", "was written again"),),
    ),
    Control(
        "archived by nobody else",
        archived_hours_after_others,
        (
            in_scene("archived hours ago, when it was read", "more than once"),
            in_scene("archived hours ago, when it was made", "more than once"),
        ),
    ),
    Control(
        "archived before they are merged",
        merged_before_they_are_archived,
        (in_scene("parts refused", _ARCHIVE),),
    ),
    Control(
        "archived before they are forgotten",
        forgotten_before_they_are_archived,
        (in_scene("parts refused", _ARCHIVE),),
    ),
    Control("names of their own", names_that_repeat, (in_scene("written by two", "says other than"),)),
    Control(
        "tables deleted after the exchange",
        deleted_before_the_exchange,
        (in_scene("written by two", "was deleted while the head refers"),),
    ),
    Control(
        "indexes deleted after the exchange",
        index_deleted_before_the_exchange,
        (in_scene("unfolded after the collector", "was deleted while the head refers"),),
    ),
    Control(
        "unreadable tables are left as they are",
        unreadable_tables_are_empty,
        (in_scene("unreadable table", "too early"),),
    ),
    Control(
        "unreadable indexes are left as they are",
        unreadable_indexes_are_empty,
        (in_scene("unreadable index", "too early"), in_scene("unreadable index, too large", "too early")),
    ),
    Control(
        "no trouble of the past",
        trouble_of_the_past,
        (in_scene("merged meanwhile", "told of trouble"),),
    ),
    Control(
        "younger rows are right",
        older_rows_are_right,
        (in_scene("merged with an older row", "came back out of a table"),),
    ),
    Control(
        "remembered while their ids stand",
        forgotten_with_their_ids,
        (
            in_scene("id refused to be freed", "accepted a second time"),
            in_scene("id perhaps freed", "accepted a second time"),
        ),
    ),
    Control(
        "rows of merged tables",
        tables_that_are_gone_were_the_youngest,
        (in_scene("prolonged, and merged", _FREED),),
    ),
    Control(
        "ids of what cannot be read",
        unreadable_tables_remember_nothing,
        (in_scene("prolonged, and unreadable", _FREED),),
    ),
)
