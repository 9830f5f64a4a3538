"""Purges, and what others do beside them, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import QueueFlow
from osqueue.core import admin, erase, restore
from osqueue.core.draft import Draft
from osqueue.core.job_ops import SetResultTtl, SpanSwap
from osqueue.core.ops import Code, Outcome
from osqueue.core.queue_ops import EraseJobs, MergeTables
from osqueue.core.restore import BackupFilter, Evidence
from osqueue.core.state import FinishedJob, JobRecord, State
from osqueue.maintenance.head_restore import Restorer
from osqueue.operations import purge_shard
from osqueue.operations.purge_shard import ShardPurge
from osqueue.stores.base import Delete, Put

from .control import Control, dispatched, patched
from .repairs import in_repair


# ── Others that steer ────────────────────────────────────────────────────────
def rows_of_any_table() -> AbstractContextManager[None]:
    """A row comes back to the head, whether or not its table is still there."""
    real = admin._amend_table

    def amend_table(draft: Draft, op: SetResultTtl, *rest: Any) -> Code:
        there = draft.tables[0].name if draft.tables else op.table
        gone = not any(table.name == op.table for table in draft.tables)
        return real(draft, replace(op, table=there) if gone else op, *rest)

    return patched((admin, "_amend_table", amend_table))


def born_with_an_old_head() -> AbstractContextManager[None]:
    """What a purge writes anew is as old as the head that its process knows."""

    def stage(self: Any, state: State) -> QueueFlow[Any]:
        return (yield from self.flows.stage(self.shard))

    return patched((ShardPurge, "_stage", stage))


def erased_in_silence() -> AbstractContextManager[None]:
    """A commit does not say that a purge lets jobs be forgotten that were in the head."""

    def apply(draft: Draft, op: EraseJobs) -> Outcome:
        before = draft.forgotten
        answer = erase.erase(draft, op)
        draft.forgotten = before
        return answer

    return dispatched(EraseJobs, apply)


def rewritten_in_silence() -> AbstractContextManager[None]:
    """The same of jobs that were in tables."""

    def merge(taken: Any, put: Any, forgets: bool) -> MergeTables:
        return MergeTables(taken, put)

    return patched((purge_shard, "MergeTables", merge))


# ── Others that redrive ──────────────────────────────────────────────────────
def blank_ones_redriven() -> AbstractContextManager[None]:
    """A dead letter is queued again, although a purge has made it blank."""
    return patched((admin, "is_blank", lambda job: False))


def blank_ones_restored() -> AbstractContextManager[None]:
    """A job waits again after a restore, although a purge has made it blank."""
    return patched((restore, "is_blank", lambda job: False))


def swapped_by_name() -> AbstractContextManager[None]:
    """Dead letters in a segment are exchanged although some have left it since."""

    def apply(draft: Draft, op: EraseJobs) -> Outcome:
        now = {span.name: span for span in draft.dead.spans}
        swaps = tuple(SpanSwap(now.get(each.span.name, each.span), each.replacement) for each in op.swaps)
        return erase.erase(draft, replace(op, swaps=swaps))

    return dispatched(EraseJobs, apply)


def never_spared() -> AbstractContextManager[None]:
    """A purge that gives a job up leaves it in the list for those who restore."""

    def spare(self: Any, note: Put) -> QueueFlow[None]:
        yield from ()

    return patched((ShardPurge, "_spare", spare))


def erased_as_they_live() -> AbstractContextManager[None]:
    """A job is erased in the head, whether or not it was redriven meanwhile."""
    return patched((erase, "_is_alive", lambda draft, keys: False))


# ── Others at the same objects ───────────────────────────────────────────────
def written_over_others() -> AbstractContextManager[None]:
    """A purge writes an object whatever another one has made of it since."""
    return patched((purge_shard, "PutIfMatch", lambda key, body, version: Put(key, body)))


def objects_deleted_whole() -> AbstractContextManager[None]:
    """A purge deletes the object in which a content lies, whatever else is there."""

    def wipe(self: Any, body: Any) -> QueueFlow[int]:
        yield Delete((self.root + body.name,))
        return 1

    return patched((ShardPurge, "_wipe", wipe))


def copies_of_the_meantime() -> AbstractContextManager[None]:
    """A purge looks once for copies of heads, before the head forgets the jobs."""
    real = ShardPurge._backups

    def backups(self: Any) -> QueueFlow[None]:
        if not getattr(self, "been", False):
            self.been = True
            yield from real(self)

    return patched((ShardPurge, "_backups", backups))


def contents_of_the_meantime() -> AbstractContextManager[None]:
    """A purge takes rows out of tables and leaves what they refer to."""
    real = ShardPurge._without

    def without(self: Any, *args: Any) -> QueueFlow[Any]:
        rows, self._rows = self._rows, _nothing
        try:
            return (yield from real(self, *args))
        finally:
            self._rows = rows

    return patched((ShardPurge, "_without", without))


def _nothing(rows: Any) -> QueueFlow[None]:
    yield from ()


def letters_of_any_age() -> AbstractContextManager[None]:
    """Dead letters are exchanged for a segment that the collector may have taken."""

    def apply(draft: Draft, op: EraseJobs) -> Outcome:
        floor, draft.gc_floor = draft.gc_floor, 0
        answer = erase.erase(draft, op)
        draft.gc_floor = floor
        return answer

    return dispatched(EraseJobs, apply)


# ── Those who restore ────────────────────────────────────────────────────────
def rows_of_copies_restored() -> AbstractContextManager[None]:
    """A restore brings back the finished jobs of a copy, whatever the lists say."""
    real = restore._finished

    def finished(rows: Any, evidence: Evidence) -> list[FinishedJob]:
        return real(rows, replace(evidence, purged=frozenset()))

    return patched((restore, "_finished", finished))


def rows_of_tables_restored() -> AbstractContextManager[None]:
    """The same of the tables that are there."""
    real = Restorer._read_tables

    def read(self: Any, known: Any, since: Any) -> Any:
        purged, since.purged = since.purged, frozenset()
        yield from real(self, known, since)
        since.purged = purged

    return patched((Restorer, "_read_tables", read))


def jobs_of_copies_restored() -> AbstractContextManager[None]:
    """The same of the jobs that wait in a copy."""
    real = BackupFilter._ended

    def ended(self: Any, job: JobRecord, *, leased: bool, dead: bool) -> bool:
        evidence, self.evidence = self.evidence, replace(self.evidence, purged=frozenset())
        answer = real(self, job, leased=leased, dead=dead)
        self.evidence = evidence
        return answer

    return patched((BackupFilter, "_ended", ended))


BACK, LEGIBLE = "purged jobs came back", "was purged, and can be read"

CONTROLS: tuple[Control, ...] = (
    Control("purged since it was seen", rows_of_any_table, (in_repair("prolonged once purged", BACK),)),
    Control(
        "birth of what a purge writes anew",
        born_with_an_old_head,
        (in_repair("shortened beside a purged one", "had expired, and came back"),),
    ),
    Control(
        "erasing is told", erased_in_silence, (in_repair("enqueued once purged", "accepted a second time"),)
    ),
    Control(
        "erasing in tables is told",
        rewritten_in_silence,
        (in_repair("enqueued once purged from a table", "accepted a second time"),),
    ),
    Control(
        "blank letters stay dead",
        blank_ones_redriven,  # a blank job has the priority of nobody
        (in_repair("redriven once blank", "made it blank|a job of priority 100 started"),),
    ),
    Control(
        "blank jobs are not restored",
        blank_ones_restored,
        (in_repair("blank in its copy", "blank jobs came"),),
    ),
    Control(
        "letters as they were seen",
        swapped_by_name,
        (in_repair("redriven beside a purged one", "in two places|do not balance"),),
    ),
    Control(
        "jobs that live",
        erased_as_they_live,
        (
            in_repair("given up as it waits", "the archive tells"),
            in_repair("given up as it runs", "the archive tells"),
        ),
    ),
    Control("jobs that a purge gives up", never_spared, (in_repair("spared", "was given up by a purge"),)),
    Control(
        "purges by compare-and-swap",
        written_over_others,
        (
            in_repair("payloads purged by two", LEGIBLE),
            in_repair("copies purged by two", LEGIBLE),
            in_repair("segments purged by two", LEGIBLE),
            in_repair("parts purged by two", LEGIBLE),
        ),
    ),
    Control(
        "contents of others",
        objects_deleted_whole,
        (in_repair("payloads purged by two", "invariant 8"),),
    ),
    Control(
        "copies made meanwhile", copies_of_the_meantime, (in_repair("copied while it is purged", LEGIBLE),)
    ),
    Control(
        "contents of rows shelved meanwhile",
        contents_of_the_meantime,
        (in_repair("shelved while it is purged", LEGIBLE),),
    ),
    Control(
        "age of letters written anew",
        letters_of_any_age,
        (in_repair("collected while it is purged", "invariant 8"),),
    ),
    Control("purged jobs in copies", jobs_of_copies_restored, (in_repair("copied too late", BACK),)),
    Control(
        "rows of purged jobs in copies", rows_of_copies_restored, (in_repair("restored once purged", BACK),)
    ),
    Control(
        "rows of purged jobs in tables",
        rows_of_tables_restored,
        (in_repair("restored once purged from a table", BACK),),
    ),
)
