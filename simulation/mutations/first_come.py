"""Which of the jobs that may start comes first, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import islice

from osqueue.core.backlog import BacklogDraft
from osqueue.core.claim_search import ClaimSearch
from osqueue.core.mixed import MixedDraft, Wanted

from .control import Control, in_runs, patched


def _any_priority(search: ClaimSearch) -> list[tuple[int, BacklogDraft]]:
    return [
        (priority, lane)
        for (priority, kind), lane in search._draft.lanes.items()
        if lane and search._may_start(priority, kind)
    ]


def _last_group(lane: MixedDraft, wanted: Wanted, begin: int) -> bool:
    """Of the group whose first job comes last."""
    firsts: dict[tuple[str, str], int] = {}
    for at, job in enumerate(islice(lane.ready, begin, None), begin):
        if wanted.takes(job):
            firsts.setdefault((job.kind, job.group), at)
    if not firsts:
        return False
    at = max(firsts.values())
    job = lane.ready[at]
    del lane.ready[at]
    lane.ready.appendleft(job)
    lane._changed = True
    return True


def any_priority() -> AbstractContextManager[None]:
    """The oldest job comes first, of whatever priority."""
    return patched((ClaimSearch, "_most_urgent", _any_priority))


def last_group() -> AbstractContextManager[None]:
    """A claim passes over groups that are open."""
    return patched((MixedDraft, "_in_window", _last_group))


CONTROLS: tuple[Control, ...] = (
    Control(
        "the most urgent comes first", any_priority, (in_runs("groups", "of priority .* started while"),)
    ),
    Control("who is passed over may not start", last_group, (in_runs("groups", "before an older one of"),)),
)
