"""Passing over: what a claim passes over may not start. So an open group waits for what is before its job, no longer.

No commit starts a job while one that might start waits

    with a more urgent priority
    before it in the mixed lane of its priority, unless groups share alike (see ``fairness``)

With ``ageing`` turns go by another order (see there).
"""

from __future__ import annotations

from osqueue.core.state import MIXED, State
from osqueue.limits import PRIORITY_MAX

from .ledger import Violation
from .open_jobs import Choice
from .places import SegmentCache


def check(library: SegmentCache, before: State, choice: Choice) -> None:
    """Calm claims were committed."""
    if before.settings.ageing_ms:
        return
    urgent = min([job.priority for job in choice.passed.values()], default=PRIORITY_MAX)
    if late := [job for job in choice.started if job.priority > urgent]:
        raise Violation(f"a job of priority {late[0].priority} started while one of {urgent} might")
    for lane in () if before.settings.fair else before.lanes:
        if lane.kind == MIXED:
            _check_lane([job.key for job in library.past().backlog(lane.backlog)], choice)


def _check_lane(waited: list[bytes], choice: Choice) -> None:
    """``waited``: all that were in a mixed lane, in order."""
    at = next((at for at, key in enumerate(waited) if choice.passed_in_mixed(key)), len(waited))
    behind = set(waited[at:])
    for job in choice.started:
        if job.key in behind:
            older = choice.passed[waited[at]]
            raise Violation(
                f"invariant 5: a job of group {job.group!r} started before an older one of {older.group!r}, which might"
            )
