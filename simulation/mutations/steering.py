"""Steering with one check removed: cancels, times to live, dead letters, settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue import limits
from osqueue.core import admin
from osqueue.core.draft import Draft
from osqueue.core.job_ops import CancelJob, SetResultTtl, SpanSwap
from osqueue.core.ops import Code, Outcome
from osqueue.core.queue_ops import ChangeSettings, MergeTables, RaiseGcFloor, RedriveJobs
from osqueue.core.state import CANCELLED, QUEUED, UPDATED, JobRecord, Span, State, TableRef
from osqueue.maintenance import compaction

from .control import Control, dispatched, in_runs, in_scene, patched


# ── Jobs in segments ─────────────────────────────────────────────────────────
def evidence_of_a_passed_place() -> AbstractContextManager[None]:
    """A job is still to come in its segment for as long as the segment is there."""
    real = admin.still_holds

    def holds(span: Span, op: CancelJob | SetResultTtl) -> bool:
        return real(replace(span, offset=0, skip=0), op)

    return patched((admin, "still_holds", holds))


def evidence_beside_any_vector() -> AbstractContextManager[None]:
    """A job is still to come in its segment, whatever deletion vector is there by now."""
    real = admin.still_holds

    def holds(span: Span, op: CancelJob | SetResultTtl) -> bool:
        return real(replace(span, vector=None), replace(op, vector=""))

    return patched((admin, "still_holds", holds))


def evidence_of_a_lost_segment() -> AbstractContextManager[None]:
    """A job that was seen in a segment is cancelled there, whether or not the head knows the segment."""

    def cancel_in_segment(draft: Draft, op: CancelJob, job: JobRecord) -> Code:
        if op.key in draft.tombstones or len(draft.tombstones) >= limits.TOMBSTONES_MAX:
            return Code.RETRY
        draft.tombstones.add(op.key)
        draft.finish(job, CANCELLED, origin=QUEUED, cause="cancel")
        return Code.CANCELLED

    return patched((admin, "_cancel_in_segment", cancel_in_segment))


def spans_by_name() -> AbstractContextManager[None]:
    """A span of delayed jobs is what the caller saw for as long as it has its name."""
    real = admin._run_now_in_segment

    def run_now(draft: Draft, job: JobRecord, swap: SpanSwap) -> Code:
        now = next((span for span in draft.delayed_spans if span.name == swap.span.name), swap.span)
        return real(draft, job, SpanSwap(now, swap.replacement))

    return patched((admin, "_run_now_in_segment", run_now))


def cancelled_ones_due() -> AbstractContextManager[None]:
    """A job that was seen waiting in a segment is claimable at once, cancelled or not."""
    real = admin._run_now_in_segment

    def run_now(draft: Draft, job: JobRecord, swap: SpanSwap) -> Code:
        gone, draft.tombstones = draft.tombstones, type(draft.tombstones)()
        try:
            return real(draft, job, swap)
        finally:
            draft.tombstones = gone

    return patched((admin, "_run_now_in_segment", run_now))


def cancelled_again() -> AbstractContextManager[None]:
    """A job may be cancelled in its segment once more."""
    real = admin._cancel_in_segment

    def cancel_in_segment(draft: Draft, op: CancelJob, job: JobRecord) -> Code:
        draft.tombstones.discard(op.key)
        return real(draft, op, job)

    return patched((admin, "_cancel_in_segment", cancel_in_segment))


def tombstones_without_end() -> AbstractContextManager[None]:
    """Any number of jobs is cancelled in segments."""
    return _unlimited("_cancel_in_segment", "TOMBSTONES_MAX")


def _unlimited(name: str, limit: str) -> AbstractContextManager[None]:
    real: Callable[..., Code] = getattr(admin, name)

    def change(*args: Any) -> Code:
        with patched((limits, limit, 1 << 30)):
            return real(*args)

    return patched((admin, name, change))


def echoes_count(name: str) -> AbstractContextManager[None]:
    """What the head tells the archive of a job that failed counts as the job's end."""
    real: Callable[..., Code] = getattr(admin, name)

    def change(*args: Any) -> Code:
        with patched((admin, "ARCHIVE_ONLY", -1)):
            return real(*args)

    return patched((admin, name, change))


def delayed_ones_cancelled_unseen() -> AbstractContextManager[None]:
    """Nobody notes of a cancelled job that it was delayed, and in which state."""
    real = admin._cancel_in_segment

    def cancel_in_segment(draft: Draft, op: CancelJob, job: JobRecord) -> Code:
        answer = real(draft, op, job)
        draft.delayed_tombstones.clear()
        return answer

    return patched((admin, "_cancel_in_segment", cancel_in_segment))


def notes_of_tombstones_kept() -> AbstractContextManager[None]:
    """What is noted of a cancelled job stays when its tombstone goes."""
    real = Draft.freeze

    def freeze(self: Draft, *args: Any) -> State:
        return replace(real(self, *args), delayed_tombstones=self.delayed_tombstones)

    return patched((Draft, "freeze", freeze))


# ── Times to live ────────────────────────────────────────────────────────────
def expired_ones_revived(*, shelved: bool) -> AbstractContextManager[None]:
    """A result that has expired may live again."""
    real = admin.set_result_ttl

    def amend(draft: Draft, op: SetResultTtl) -> Code:
        if (op.row is not None) != shelved:
            return real(draft, op)
        now, draft.now = draft.now, 0
        answer = real(draft, replace(op, ttl_ms=now + op.ttl_ms))
        draft.now = now
        return answer

    return patched((admin, "set_result_ttl", amend))


def lives_of_cancelled_jobs() -> AbstractContextManager[None]:
    """A job waits in its segment, even if it was cancelled there."""
    real = admin.set_result_ttl

    def amend(draft: Draft, op: SetResultTtl) -> Code:
        seen, draft.tombstones = draft.tombstones, set()
        answer = real(draft, op)
        draft.tombstones = seen
        return answer

    return patched((admin, "set_result_ttl", amend))


def lives_of_jobs_that_are_over() -> AbstractContextManager[None]:
    """A job waits or runs, wherever it is."""
    return patched((admin, "_is_live", lambda draft, key: True))


def lives_without_end() -> AbstractContextManager[None]:
    """Any number of jobs has another time to live."""
    return _unlimited("set_result_ttl", "RESULT_TTLS_MAX")


def rows_that_are_not_the_youngest() -> AbstractContextManager[None]:
    """A row comes back to the head, although a younger one is in another table."""
    real = admin._amend_table

    def amend_table(draft: Draft, op: SetResultTtl, *rest: Any) -> Code:
        return real(draft, replace(op, seen=1 << 60), *rest)

    return patched((admin, "_amend_table", amend_table))


def older_lives_forgotten() -> AbstractContextManager[None]:
    """A row that comes back to the head does not tell how long older ones of its job are remembered."""

    def change(row: Any, **changes: Any) -> Any:
        if changes.get("mark") == UPDATED:
            del changes["kept_ms"]
        return replace(row, **changes)

    return patched((admin, "replace", change))


# ── Upkeep ───────────────────────────────────────────────────────────────────
def redriven_whatever_comes_first() -> AbstractContextManager[None]:
    """A redrive looks at as many letters as were read, whether or not they are the same."""
    return dispatched(RedriveJobs, lambda draft, op: admin.redrive(draft, replace(op, first=b"")))


def redriven_in_the_same_run() -> AbstractContextManager[None]:
    """A job that is redriven has no run of its own until somebody claims it."""
    real = admin.redrive

    def change(job: Any, **changes: Any) -> Any:
        return replace(job, **{name: each for name, each in changes.items() if name != "run"})

    def redrive(draft: Draft, op: RedriveJobs) -> Outcome:
        with patched((admin, "replace", change)):
            return real(draft, op)

    return dispatched(RedriveJobs, redrive)


def died_out_in_silence() -> AbstractContextManager[None]:
    """A commit does not say that it lets jobs be forgotten none of which has an id."""

    def merge(
        taken: tuple[TableRef, ...], put: tuple[TableRef, ...], archived: int = 0, forgets: bool = False
    ) -> MergeTables:
        return MergeTables(taken, put, archived, forgets and any(each.named for each in taken))

    return patched((compaction, "MergeTables", merge))


def forgotten_in_silence() -> AbstractContextManager[None]:
    """A commit does not say that it lets jobs be forgotten."""
    return dispatched(MergeTables, lambda draft, op: admin.merge_tables(draft, replace(op, forgets=False)))


def shards_given_back() -> AbstractContextManager[None]:
    """The number of shards is what was wished last."""

    def configure(draft: Draft, op: ChangeSettings) -> Outcome:
        if op.shards is not None:
            draft.settings = replace(draft.settings, shards=1)
        return admin.configure(draft, op)

    return dispatched(ChangeSettings, configure)


def floor_set_back() -> AbstractContextManager[None]:
    """The collector's floor is what was wished last."""

    def raise_gc_floor(draft: Draft, op: RaiseGcFloor) -> Outcome:
        draft.gc_floor = 0
        return admin.raise_gc_floor(draft, op)

    return dispatched(RaiseGcFloor, raise_gc_floor)


CONTROLS: tuple[Control, ...] = (
    Control(
        "places that were passed",
        evidence_of_a_passed_place,
        (
            in_scene("cancelled once passed", "in two places|lie in no segment|of a job that is|accepted"),
            in_scene("prolonged once passed", "of jobs that are over"),
        ),
    ),
    Control(
        "vectors that are others by now",
        evidence_beside_any_vector,
        (
            in_scene("cancelled once settled", "lie in no segment"),
            in_scene("prolonged once settled", "of jobs that are over"),
        ),
    ),
    Control(
        "segments that are gone",
        evidence_of_a_lost_segment,
        (in_scene("cancelled once its segment is gone", "lie in no segment"),),
    ),
    Control(
        "spans that moved on",
        spans_by_name,
        (in_scene("due at once, twice", "do not balance"),),
    ),
    Control(
        "cancelled ones are not due",
        cancelled_ones_due,
        (in_scene("due at once, cancelled", "lie in no segment"),),
    ),
    Control("cancelled once", cancelled_again, (in_runs("calm", "do not balance|in two places"),)),
    Control("room for tombstones", tombstones_without_end, (in_runs("calm", "tombstones", seed=1),)),
    Control(
        "echoes of redriven jobs, cancelled",
        partial(echoes_count, "cancel"),
        (in_scene("cancelled once redriven", "invariant 5"),),
    ),
    Control(
        "echoes of redriven jobs, prolonged",
        partial(echoes_count, "set_result_ttl"),
        (in_scene("prolonged once redriven", "never so"),),
    ),
    Control(
        "expired in the head",
        partial(expired_ones_revived, shelved=False),
        (in_scene("prolonged too late, in the head", "had expired, and came back"),),
    ),
    Control(
        "expired in a table",
        partial(expired_ones_revived, shelved=True),
        (in_scene("prolonged too late, in a table", "had expired, and came back"),),
    ),
    Control(
        "lives of cancelled jobs",
        lives_of_cancelled_jobs,
        (in_scene("prolonged once cancelled", "of jobs that are over"),),
    ),
    Control(
        "lives of jobs that are over",
        lives_of_jobs_that_are_over,
        (in_scene("prolonged once passed", "of jobs that are over"),),
    ),
    Control("room for lives", lives_without_end, (in_scene("many lives", "times to live"),)),
    Control(
        "the youngest row",
        rows_that_are_not_the_youngest,
        (in_scene("shortened meanwhile", "had expired, and came back"),),
    ),
    Control(
        "lives of older rows",
        older_lives_forgotten,
        (in_scene("shortened", "had expired, and came back"),),
    ),
    Control(
        "forgetting is told", forgotten_in_silence, (in_scene("forgotten meanwhile", "accepted a second"),)
    ),
    Control(
        "forgetting unread is told",
        died_out_in_silence,
        (in_scene("repeated once forgotten", "accepted a second"),),
    ),
    Control(
        "delayed ones that are cancelled",
        delayed_ones_cancelled_unseen,
        (in_scene("cancelled as it fails", "the head says"),),
    ),
    Control(
        "notes go with their tombstones",
        notes_of_tombstones_kept,
        (in_scene("cancelled as it fails", "of which state"),),
    ),
    Control(
        "letters that were read",
        redriven_whatever_comes_first,
        (in_scene("redriven by two", "went past a dead letter"),),
    ),
    Control("runs of redriven jobs", redriven_in_the_same_run, (in_scene("cancelled at once", "of 2 ends"),)),
    Control("shards only grow", shards_given_back, (in_scene("shards by two", "shards went back"),)),
    Control("floor only rises", floor_set_back, (in_scene("collected by two", "gc_floor went back"),)),
)
