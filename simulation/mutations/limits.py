"""Run-time limits and start deadlines, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from osqueue.core import backlog, reduce, timers
from osqueue.core.draft import Draft
from osqueue.core.state import JobRecord, LeaseRecord

from .control import Control, in_runs, patched


def _extended(latest_ms: int, lease_ms: int, until_ms: int) -> int:
    return latest_ms + lease_ms


def _never_late(job: JobRecord, now_ms: int) -> bool:
    return False


def extended_past_the_limit() -> AbstractContextManager[None]:
    """A heartbeat extends a lease whatever its job's limit is."""
    return patched((reduce, "lease_end", _extended))


def claimed_too_late() -> AbstractContextManager[None]:
    """Claims look at no start deadline."""
    return patched((reduce, "is_late", _never_late), (backlog, "is_late", _never_late))


def late_behind_the_first() -> AbstractContextManager[None]:
    """A claim looks at the start deadline of the first job alone."""
    return patched((backlog, "is_late", _never_late))


_stall = timers._stall


def _left_alone(draft: Draft, lease: LeaseRecord) -> None:
    if not 0 < lease.until_ms <= lease.expires_ms:
        _stall(draft, lease)


def never_ended() -> AbstractContextManager[None]:
    """Nobody ends an attempt that is over its limit."""
    return patched((timers, "_stall", _left_alone))


CONTROLS: tuple[Control, ...] = (
    Control("heartbeats stop at the limit", extended_past_the_limit, (in_runs("limits", "goes on past"),)),
    Control("an attempt ends at its limit", never_ended, (in_runs("limits", "is over its run-time limit"),)),
    Control("late jobs are not claimed", claimed_too_late, (in_runs("limits", "after its deadline"),)),
    Control("each claimed job is in time", late_behind_the_first, (in_runs("limits", "after its deadline"),)),
)
