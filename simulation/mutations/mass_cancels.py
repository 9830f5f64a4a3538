"""Many jobs cancelled at once, with one check removed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.core import batches, drop_rules, dropping, mixed, reduce
from osqueue.core.batches import Batches
from osqueue.core.draft import Draft
from osqueue.core.drop_rules import Drops, covering, matches
from osqueue.core.ops import Outcome
from osqueue.core.queue_ops import CancelJobs
from osqueue.core.state import QUEUED, DropRule, JobRecord, Span

from .control import Control, dispatched, in_runs, patched

PROFILE = "mass cancels"
STARTED = "a job started that was cancelled"
YOUNG = "although it came later"


def given_out() -> AbstractContextManager[None]:
    """Claims and promotions take what they meet, whatever covers it."""

    def drops(self: Drops, job: JobRecord, span: Span, origin: str = QUEUED) -> bool:
        return False

    return patched((Drops, "drops", drops))


def given_out_of_the_middle() -> AbstractContextManager[None]:
    """The search of a mixed lane does not ask the rules."""
    return patched((mixed, "covering", lambda rules, job, span: None))


def of_any_age() -> AbstractContextManager[None]:
    """A rule covers what comes after it."""
    return patched((drop_rules, "age_of", lambda span: 0))


def nobody_looks() -> AbstractContextManager[None]:
    """The reaper does not look through segments."""
    return patched((dropping, "go_on", lambda draft: False))


def nobody_is_asked() -> AbstractContextManager[None]:
    """Those that run are not asked to stop."""
    real = reduce._APPLY[CancelJobs]

    def cancel(draft: Draft, op: CancelJobs) -> Outcome:
        leases = draft.leases
        draft.leases = {}
        answer = real(draft, op)
        draft.leases = leases
        return answer

    return dispatched(CancelJobs, cancel)


# ── Ages ─────────────────────────────────────────────────────────────────────
def _whenever(rules: Iterable[DropRule], job: JobRecord, span: Span) -> DropRule | None:
    return covering([replace(rule, before_ms=0) for rule in rules], job, span)


def of_any_age_in_a_sweep() -> AbstractContextManager[None]:
    """The reaper does not ask when a job was enqueued."""
    return patched((dropping, "covering", _whenever))


def of_any_age_in_a_claim() -> AbstractContextManager[None]:
    """Claims and promotions do not."""

    def drops(self: Drops, job: JobRecord, span: Span, origin: str = QUEUED) -> bool:
        rule = _whenever(self.rules, job, span)
        if rule is not None:
            self.drop(rule, job, origin)
        return rule is not None

    return patched((Drops, "drops", drops))


# ── Batches ──────────────────────────────────────────────────────────────────
def nothing_lies_deep() -> AbstractContextManager[None]:
    """A batch whose jobs lie in segments needs no rule."""
    return patched((dropping, "left_deep", lambda batches, rule, head, most: 0))


def of_any_batch() -> AbstractContextManager[None]:
    """Claims give out what is of a batch that was cancelled."""

    def no_batch(rule: DropRule, job: JobRecord) -> bool:
        return not rule.batch and matches(rule, job)

    return patched((drop_rules, "matches", no_batch))


_of_a_new_life = batches.of_a_new_life


def lost_as_completed() -> AbstractContextManager[None]:
    """What was cancelled or lost since a backup counts as completed in its batch."""

    def new_life(rows: Batches, living: Any, completed: Any, failed: Any) -> Batches:
        made = _of_a_new_life(rows, living, completed, failed)
        return {key: replace(row, cancelled=rows[key].cancelled) for key, row in made.items()}

    return patched((batches, "of_a_new_life", new_life))


def completed_as_lost() -> AbstractContextManager[None]:
    """What completed since a backup counts as cancelled."""

    def new_life(rows: Batches, living: Any, completed: Any, failed: Any) -> Batches:
        return _of_a_new_life(rows, living, {}, failed)

    return patched((batches, "of_a_new_life", new_life))


def left_as_before() -> AbstractContextManager[None]:
    """A restored batch says what the backup said is left."""

    def new_life(rows: Batches, living: Any, completed: Any, failed: Any) -> Batches:
        made = _of_a_new_life(rows, living, completed, failed)
        return {key: replace(row, left=rows[key].left) for key, row in made.items()}

    return patched((batches, "of_a_new_life", new_life))


BATCHES, MENDED = "batch cancels", "cancels mended"
AGED = "was cancelled with others although"

CONTROLS: tuple[Control, ...] = (
    Control("what a rule covers is not given out", given_out, (in_runs(PROFILE, STARTED),)),
    Control("nor out of the middle", given_out_of_the_middle, (in_runs(PROFILE, STARTED, seed=2),)),
    Control("what comes later is not covered", of_any_age, (in_runs(PROFILE, YOUNG),)),
    Control("the reaper looks through segments", nobody_looks, (in_runs(PROFILE, "rules are left over"),)),
    Control("a sweep asks when a job was enqueued", of_any_age_in_a_sweep, (in_runs(PROFILE, AGED),)),
    Control("so does a claim", of_any_age_in_a_claim, (in_runs(PROFILE, AGED, seed=7),)),
    Control(
        "jobs of a batch may lie deep", nothing_lies_deep, (in_runs(BATCHES, STARTED, seed=14, seeds=1),)
    ),
    Control("no claim gives out what is of a cancelled batch", of_any_batch, (in_runs(BATCHES, STARTED),)),
    Control(
        "a job that is lost did not complete",
        lost_as_completed,
        (in_runs(MENDED, "a restored batch counts", seed=1),),
    ),
    Control(
        "one that completed was not lost", completed_as_lost, (in_runs(MENDED, "a restored batch counts"),)
    ),
    Control("what is left of a batch is counted anew", left_as_before, (in_runs(MENDED, "are left; it is"),)),
    Control("those that run are asked", nobody_is_asked, (in_runs(PROFILE, "was not asked"),)),
)
