"""The second half of a job's life (archive, ids, tables of finished jobs) with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from osqueue import limits
from osqueue.commit.effects import QueueFlow
from osqueue.core import dedup, reduce, tables
from osqueue.core.draft import Draft
from osqueue.core.job_ops import JobSpec
from osqueue.core.ops import Code, Outcome, outcome
from osqueue.core.queue_ops import MergeTables, RunTimers
from osqueue.core.state import FinishedJob, State
from osqueue.maintenance import orphan_ids
from osqueue.maintenance.reaper import Reaper
from osqueue.model.reports import ReapReport as Reaped
from osqueue.objects import archive, id_index
from osqueue.objects.staging import StagingArea
from osqueue.stores.base import Delete, Put, Written

from .control import Control, dispatched, in_scene, patched


def no_look_at_newer_pointers() -> AbstractContextManager[None]:
    """A job that passed through the head into an object written since counts as never seen."""

    def seen_before(draft: Draft, new: JobSpec) -> Code | None:
        if draft.knows(new.key):
            return Code.DUPLICATE
        return Code.RETRY if draft.forgotten > new.seen else None

    return patched((reduce, "seen_before", seen_before))


def no_forgotten() -> AbstractContextManager[None]:
    """Nobody asks whether jobs were forgotten since a caller looked."""
    real = dedup.seen_before

    def seen_before(draft: Draft, new: JobSpec) -> Code | None:
        draft.forgotten, forgotten = -1, draft.forgotten
        answer = real(draft, new)
        draft.forgotten = forgotten
        return answer

    return patched((reduce, "seen_before", seen_before))


def ids_freed_whatever_they_stand_for() -> AbstractContextManager[None]:
    """An id's entry is deleted, even if it was taken over since it was read."""
    return patched((id_index, "DeleteIfMatch", lambda key, version: Delete((key,))))


def ids_freed_last() -> AbstractContextManager[None]:
    """Jobs are forgotten, and then their ids are freed."""
    real_exchange = Reaper._exchange

    def free(self: Any, shard: int, taken: Any, gone: Any) -> QueueFlow[tuple[int, frozenset[bytes]]]:
        self.owed = _ends(gone)
        yield from ()
        return 0, frozenset()

    def exchange(self: Any, *args: Any, **more: Any) -> QueueFlow[Reaped]:
        report = yield from real_exchange(self, *args, **more)
        yield from id_index.free(self.queue, self.owed)
        return report

    return patched((Reaper, "_free", free), (Reaper, "_exchange", exchange))


def _ends(gone: Sequence[FinishedJob]) -> list[id_index.FinishedId]:
    return [id_index.FinishedId(row.job.client_id, row.key) for row in gone if row.job.client_id is not None]


def ids_freed_of_remembered_jobs() -> AbstractContextManager[None]:
    """A job's id is freed with its oldest row, although a younger one is remembered for longer."""

    def free(self: Any, shard: int, taken: Any, gone: Any) -> QueueFlow[tuple[int, frozenset[bytes]]]:
        freed, _ = yield from id_index.free(self.queue, _ends(gone))
        return freed, frozenset()

    return patched((Reaper, "_free", free))


def ids_swept_at_once() -> AbstractContextManager[None]:
    """An entry without a job is removed although somebody may be about to enqueue on its word."""
    return patched((orphan_ids, "LOOK_AGAIN", RunTimers()))


def no_check_of_taken() -> AbstractContextManager[None]:
    """Tables are exchanged for what was made of them, whether or not they are still there."""

    def merge(draft: Draft, op: MergeTables) -> Outcome:
        names = {table.name for table in op.taken}
        rest = [table for table in draft.tables if table.name not in names]
        draft.tables = (*op.put, *rest)
        draft.count("archived", op.archived)
        draft.forgotten = draft.state.seq + 1 if op.forgets else draft.forgotten
        draft.changed = True
        return outcome([Code.OK])

    return dispatched(MergeTables, merge)


def parts_after_the_commit() -> AbstractContextManager[None]:
    """Tables count as archived, and then their records are written."""
    real_write, real_exchange = Reaper._write, Reaper._exchange

    def write(self: Any, *args: Any) -> QueueFlow[None]:
        self.unwritten = args
        yield from ()

    def exchange(self: Any, *args: Any, **more: Any) -> QueueFlow[Reaped]:
        report = yield from real_exchange(self, *args, **more)
        if getattr(self, "unwritten", None):
            yield from real_write(self, *self.unwritten)
            self.unwritten = None
        return report

    return patched((Reaper, "_write", write), (Reaper, "_exchange", exchange))


def parts_of_a_past_hour() -> AbstractContextManager[None]:
    """A part stays where it was meant to be, whenever it is written."""

    def write(self: Any, shard: int, state: State, taken: Any, data: bytes, number: int) -> QueueFlow[None]:
        now = yield from self.clock(shard, state)
        name = archive.part_name(self.queue, shard, now, taken, number)
        while not isinstance((yield Put(name, data)), Written):
            pass

    return patched((Reaper, "_write", write))


def kept_ignored() -> AbstractContextManager[None]:
    """A row whose time to live was shortened is forgotten before older ones of its job."""

    def known_until_ms(row: FinishedJob) -> int:
        return row.expires_ms + limits.EXPIRED_KNOWN_MS

    return patched((tables, "known_until_ms", known_until_ms))


def tables_born_too_early() -> AbstractContextManager[None]:
    """A merged table passes for older than what it was made of."""

    def stage(self: Any, shard: int, state: State) -> QueueFlow[StagingArea]:
        born: StagingArea = yield from self.stage(shard)
        return born

    return patched((Reaper, "_stage", stage))


CONTROLS: tuple[Control, ...] = (
    Control(
        "newer pointers",
        no_look_at_newer_pointers,
        (in_scene("merged by a slow reaper", "accepted a second time"),),
    ),
    Control("forgotten", no_forgotten, (in_scene("forgotten meanwhile", "accepted a second time"),)),
    Control(
        "ids freed conditionally",
        ids_freed_whatever_they_stand_for,
        (in_scene("freed and taken over", "an id was freed while its job"),),
    ),
    Control("ids freed first", ids_freed_last, (in_scene("freed and taken over", "accepted a second time"),)),
    Control(
        "ids of remembered jobs",
        ids_freed_of_remembered_jobs,
        (in_scene("lives on", "an id was freed while the result"),),
    ),
    Control(
        "ids swept once all look again",
        ids_swept_at_once,
        (in_scene("swept while another helps", "whose entry had been removed"),),
    ),
    Control(
        "tables that are still there",
        no_check_of_taken,
        (
            in_scene("lives on", "came back out of a table"),
            in_scene("written by two", "never left the head"),
        ),
    ),
    Control("parts before the commit", parts_after_the_commit, (in_scene("written by two", "invariant 10"),)),
    Control("parts in their hour", parts_of_a_past_hour, (in_scene("late for its hour", "invariant 10"),)),
    Control("kept_ms", kept_ignored, (in_scene("shortened", "came back out of a table"),)),
    Control(
        "birth of merged tables",
        tables_born_too_early,
        (in_scene("merged by a slow reaper", "accepted a second time"),),
    ),
)
