"""Restores, purges and repairs of the clock, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue.commit import announcements, publications, steps
from osqueue.commit.effects import Flow, QueueFlow
from osqueue.commit.request_status import RequestStatus
from osqueue.commit.request_status import status_of_request as real_verdict
from osqueue.core import erase, reduce, spill
from osqueue.core import restore as core_restore
from osqueue.core.draft import Draft
from osqueue.core.ops import Request
from osqueue.core.restore import BackupFilter, Evidence, RestoredHead
from osqueue.core.restore import reset_clock as real_reclock
from osqueue.core.restore import restore as real_restore
from osqueue.core.state import ARCHIVE_ONLY, FinishedJob, JobRecord, State
from osqueue.core.weights import finished_weight
from osqueue.maintenance import doctor, head_restore, salvage
from osqueue.objects import backups, staging
from osqueue.operations.purge_shard import ShardPurge
from osqueue.stores.base import Put

from ..ledger import Violation
from ..purge_scenes import PURGE_SCENES
from ..repair_scenes import REPAIR_SCENES, mended
from .control import Control, Detection, in_runs, patched

RUNS = partial(in_runs, "repairs")


def in_repair(name: str, words: str) -> Detection:
    """A scene of repairs, or of purges, goes wrong."""

    def look() -> str:
        try:
            mended({**REPAIR_SCENES, **PURGE_SCENES}[name])
        except Violation as violation:
            return str(violation)
        return ""

    return Detection(name, look, words)


# ── What a restore believes ──────────────────────────────────────────────────
def echoes_at_once() -> AbstractContextManager[None]:
    """What the archive is to be told of a failure goes into a table with the failure itself."""
    real = spill.shelve

    def shelve(draft: Draft) -> None:
        echoes = [row for row in draft.finished[draft.committed :] if row.mark == ARCHIVE_ONLY]
        rest = [row for row in draft.finished[draft.committed :] if row.mark != ARCHIVE_ONLY]
        draft.finished = [*draft.finished[: draft.committed], *echoes, *rest]
        draft.committed += len(echoes)
        draft.fresh_bytes = sum(map(finished_weight, rest))
        real(draft)

    return patched((spill, "shelve", shelve))


def amended_in_place() -> AbstractContextManager[None]:
    """A row that was changed leaves the head like those that were not."""

    def amend(draft: Draft, at: int, row: FinishedJob) -> None:
        draft.finished[at] = row
        draft.changed = True

    return patched((Draft, "amend_finished", amend))


def archive_unread() -> AbstractContextManager[None]:
    """A restore does not ask the archive what has finished since."""

    def read(self: Any, since: Any) -> Flow[None]:
        yield from ()

    return patched((head_restore.Restorer, "_read_archive", read))


def results_unlooked_for() -> AbstractContextManager[None]:
    """A restore takes every row of a table as it is, whether or not its result is still there."""
    return patched((head_restore.Restorer, "_intact", lambda self, rows, since: list(rows)))


def failures_of_any_run() -> AbstractContextManager[None]:
    """A job is a dead letter by the record of a failure that it had when it was copied."""
    real = BackupFilter._ended

    def ended(self: Any, job: JobRecord, *, leased: bool, dead: bool) -> bool:
        return real(self, job, leased=True, dead=dead)

    return patched((BackupFilter, "_ended", ended))


def payloads_unlooked_for() -> AbstractContextManager[None]:
    """A restore takes every job as it is, whether or not its payload is still there."""
    return patched((head_restore, "names_in_head", lambda state: set()))


def doomed_tables_kept() -> AbstractContextManager[None]:
    """A restored head refers to tables that a reaper may be about to delete."""

    def read(self: Any, known: Any, since: Any) -> Flow[None]:
        yield from ()

    return patched((head_restore.Restorer, "_read_doomed", read))


def strange_tables_kept() -> AbstractContextManager[None]:
    """A restored head refers to tables that its copy does not know, unless they overlap one another."""
    real = head_restore.Restorer._read_doomed

    def read(self: Any, known: Any, since: Any) -> Flow[None]:
        since.rests = {name: rows for name, rows in since.rests.items() if name in known}
        yield from real(self, known, since)

    return patched((head_restore.Restorer, "_read_doomed", read))


def cancelled_rows_unread() -> AbstractContextManager[None]:
    """Where a vector is lost, the copy's own rows do not tell which jobs were cancelled."""
    real = BackupFilter.unmarked

    def unmarked(self: Any, span: Any, jobs: Any, marked: Any, copy: State) -> list[JobRecord]:
        return real(self, span, jobs, marked, replace(copy, finished=()))

    return patched((BackupFilter, "unmarked", unmarked))


def later_vectors_unread() -> AbstractContextManager[None]:
    """Nor does a later vector, which the replaced head names."""

    def marked(*args: Any) -> Flow[None]:
        yield from ()

    return patched((salvage, "_marked", marked))


def told_to_the_archive_again() -> AbstractContextManager[None]:
    """The finished jobs of a copy go to the archive, whether or not it has got them since."""
    real = core_restore._finished

    def finished(rows: Any, evidence: Evidence) -> list[FinishedJob]:
        return real(rows, replace(evidence, archived=frozenset()))

    return patched((core_restore, "_finished", finished))


# ── One life and the next ────────────────────────────────────────────────────
def one_epoch() -> AbstractContextManager[None]:
    """Nobody asks to which life of a shard a request belongs."""

    def applicable(draft: Draft | State, request: Request) -> bool:
        row = draft.sessions.get(request.env)
        return request.born >= draft.floor and (row is None or request.n > row.n)

    def verdict(state: State, request: Request) -> RequestStatus:
        return real_verdict(state, replace(request, epoch=state.epoch))

    return patched(
        (reduce, "applicable", applicable),
        (announcements, "applicable", applicable),
        (publications, "applicable", applicable),
        (steps, "status_of_request", verdict),
    )


def old_gc_floor() -> AbstractContextManager[None]:
    """A new life takes staged objects from as far back as its backup did."""

    def restore(old: State, *rest: Any) -> RestoredHead:
        made = real_restore(old, *rest)
        return replace(made, state=replace(made.state, gc_floor=old.gc_floor))

    return patched((head_restore, "restore", restore))


def runs_begin_again() -> AbstractContextManager[None]:
    """The runs of a job count on from the backup's."""

    def raised(self: Any, job: JobRecord) -> JobRecord:
        return job

    return patched((BackupFilter, "raised", raised))


def numbers_begin_again() -> AbstractContextManager[None]:
    """A new life counts on from what is known of the old one."""
    return patched((head_restore, "seq_after", max))


def former_restores_unknown() -> AbstractContextManager[None]:
    """A restore does not look for the numbers that others began with."""

    def marks(self: Any) -> Flow[list[int]]:
        yield from ()
        return []

    return patched((head_restore.Restorer, "_marks", marks))


def leases_live_on() -> AbstractContextManager[None]:
    """A lease of the copy ends in its own time."""
    real = core_restore._sifted

    def sifted(old: State, *rest: Any) -> State:
        return replace(real(old, *rest), leases=old.leases)

    return patched((core_restore, "_sifted", sifted))


def restored_over_anything() -> AbstractContextManager[None]:
    """A restored head is written whatever is there by now."""
    return patched((head_restore, "PutIfMatch", lambda key, body, version: Put(key, body)))


# ── The clock ────────────────────────────────────────────────────────────────
def reclocked_below() -> AbstractContextManager[None]:
    """Writers' rows are forgotten when a clock is set back, and the floor stays."""

    def reclock(state: State, now_ms: int, commit: bytes) -> State:
        return replace(real_reclock(state, now_ms, commit), floor=state.floor)

    return patched((doctor, "reset_clock", reclock))


def reclocked_leases() -> AbstractContextManager[None]:
    """Leases end when the clock is set back."""

    def reclock(state: State, now_ms: int, commit: bytes) -> State:
        made = real_reclock(state, now_ms, commit)
        leases = {key: replace(lease, expires_ms=now_ms) for key, lease in made.leases.items()}
        return replace(made, leases=leases)

    return patched((doctor, "reset_clock", reclock))


# ── Purges ───────────────────────────────────────────────────────────────────
def _forgets(step: str) -> AbstractContextManager[None]:
    """A purge leaves out one step."""

    def nothing(self: Any, *args: Any) -> QueueFlow[int]:
        yield from ()
        return 0

    return patched((ShardPurge, step, nothing))


def unnoted() -> AbstractContextManager[None]:
    """A purge leaves no list for those who restore."""
    return patched((backups, "purge_list", lambda queue, *rest: Put(f"{backups.FOLDER}{queue}/nowhere", b"")))


def moved_contents() -> AbstractContextManager[None]:
    """A purge takes a row out of the head whose result has been moved since it was wiped."""
    return patched((erase, "_bodies", lambda draft, keys: iter(())))


def wiped_whatever_is_there() -> AbstractContextManager[None]:
    """What was refused is wiped, even if a purge has wiped what lies beside it since."""
    return patched((staging, "PutIfMatch", lambda key, body, version: Put(key, body)))


CONTROLS: tuple[Control, ...] = (
    Control(
        "a failure is not shelved with itself",
        echoes_at_once,
        (RUNS("left the head in the commit"), in_repair("failed in a lost swap", "which never was")),
    ),
    Control(
        "a change is not shelved with itself",
        amended_in_place,
        (in_repair("changed as it leaves", "the commit that changed it"),),
    ),
    Control("the archive is evidence", archive_unread, (RUNS("runs again after a restore", seed=4),)),
    Control(
        "results are looked for",
        results_unlooked_for,
        (in_repair("results collected since", "invariant 8: bodies"),),
    ),
    Control(
        "runs that failed",
        failures_of_any_run,
        (in_repair("failed before its copy", "says that it buried"),),
    ),
    Control(
        "payloads are looked for",
        payloads_unlooked_for,
        (in_repair("collected since its copy", "invariant 8"),),
    ),
    Control(
        "tables about to be deleted",
        doomed_tables_kept,
        (in_repair("merged in a former life", "invariant 8"),),
    ),
    Control(
        "tables that were merged before the copy",
        strange_tables_kept,
        (in_repair("merged before its copy", "invariant 8"),),
    ),
    Control(
        "records that the archive has got",
        told_to_the_archive_again,
        (in_repair("archived since its copy", "the archive tells"),),
    ),
    Control("rows of cancelled jobs", cancelled_rows_unread, (in_repair("vectors lost", "in two places"),)),
    Control("later vectors", later_vectors_unread, (in_repair("vectors lost of a copy", "it could know"),)),
    Control(
        "leases end with a life", leases_live_on, (in_repair("leased in its copy", "outlived its life"),)
    ),
    Control(
        "numbers of former restores",
        former_restores_unknown,
        (in_repair("restored twice", "counts from a number"),),
    ),
    Control("epoch", one_epoch, (in_repair("announced in a former life", "applied twice"),)),
    Control(
        "gc_floor of a new life", old_gc_floor, (in_repair("collected in a former life", "invariant 8"),)
    ),
    Control("runs of a new life", runs_begin_again, (RUNS("was granted before"),)),
    Control("numbers of a new life", numbers_begin_again, (RUNS("counts from a number"),)),
    Control("a restore by compare-and-swap", restored_over_anything, (RUNS("invariant 1"),)),
    Control("floor at another time", reclocked_below, (RUNS("invariant 4"),)),
    Control("leases at another time", reclocked_leases, (RUNS("ends early"),)),
    Control(
        "purge: contents", lambda: _forgets("_wipe"), (in_repair("purged beside another", "was purged"),)
    ),
    Control("purge: objects", lambda: _forgets("_objects"), (RUNS("was purged"),)),
    Control("purge: backups", lambda: _forgets("_backups"), (RUNS("was purged", seed=6),)),
    Control("purge: state", lambda: _forgets("_forget"), (RUNS("still knows it"),)),
    Control(
        "purge: archive",
        lambda: _forgets("_archive"),
        (in_repair("purged after it was archived", "was purged"),),
    ),
    Control("purge: list for restores", unnoted, (in_repair("copied too late", "purged jobs came back"),)),
    Control(
        "purge: contents moved meanwhile",
        moved_contents,
        (in_repair("moved while it is purged", "was purged"),),
    ),
    Control(
        "refused contents wiped conditionally",
        wiped_whatever_is_there,
        (in_repair("purged beside a refused one", "one was purged"),),
    ),
)
