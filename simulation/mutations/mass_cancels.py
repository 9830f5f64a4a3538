"""Many jobs cancelled at once, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from osqueue.core import drop_rules, dropping, mixed, reduce
from osqueue.core.draft import Draft
from osqueue.core.drop_rules import Drops
from osqueue.core.ops import Outcome
from osqueue.core.queue_ops import CancelJobs
from osqueue.core.state import QUEUED, JobRecord, Span

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


CONTROLS: tuple[Control, ...] = (
    Control("what a rule covers is not given out", given_out, (in_runs(PROFILE, STARTED),)),
    Control("nor out of the middle", given_out_of_the_middle, (in_runs(PROFILE, STARTED),)),
    Control("what comes later is not covered", of_any_age, (in_runs(PROFILE, YOUNG),)),
    Control("the reaper looks through segments", nobody_looks, (in_runs(PROFILE, "rules are left over"),)),
    Control("those that run are asked", nobody_is_asked, (in_runs(PROFILE, "was not asked"),)),
)
