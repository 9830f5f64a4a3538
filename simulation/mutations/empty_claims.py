"""Claims that find nothing, with one check removed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from osqueue.core import claim_search, mixed, reduce
from osqueue.core.draft import Draft
from osqueue.core.groups import Groups
from osqueue.core.job_ops import ClaimJobs
from osqueue.core.ops import Outcome

from .control import Control, dispatched, in_runs, patched


def _nobody(lanes: Any, kinds: Any, gate: Any) -> set[str]:
    return set()


def limits_untold() -> AbstractContextManager[None]:
    """Whoever may start no more for a limit is told that nothing waits."""
    return patched((claim_search, "kinds_waiting", _nobody))


def segments_unsearched() -> AbstractContextManager[None]:
    """No segment of a mixed lane is taken to hold what is wanted: nothing wakes it."""
    return patched((mixed, "may_hold", lambda labels, wanted: False))


def _all_that_run(groups: Groups) -> Iterable[str]:
    return tuple(groups._running)


def one_at_a_time() -> AbstractContextManager[None]:
    """A group is closed while one of its jobs runs, however many may."""
    return patched((Groups, "_full", _all_that_run), (Groups, "_is_full", lambda groups, group: True))


def written_for_nothing() -> AbstractContextManager[None]:
    """A claim that starts nothing is committed all the same."""
    real = reduce._APPLY[ClaimJobs]

    def claim(draft: Draft, op: ClaimJobs) -> Outcome:
        answer = real(draft, op)
        draft.changed |= not answer.leases
        return answer

    return dispatched(ClaimJobs, claim)


CONTROLS: tuple[Control, ...] = (
    Control(
        "who may start no more is told so", limits_untold, (in_runs("limits", "told that nothing waits"),)
    ),
    Control(
        "what waits deep is found",
        segments_unsearched,
        (in_runs("groups", "told that nothing waits|told that groups are closed"),),
    ),
    Control(
        "a group is open while more may run", one_at_a_time, (in_runs("fair", "groups are closed, and"),)
    ),
    Control(
        "a claim that starts nothing writes nothing",
        written_for_nothing,
        (in_runs("groups", "invariant 10: a claim that is told"),),
    ),
)
