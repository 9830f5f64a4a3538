"""The window: how long operations of one Queue object wait for those of its other callers, to share a commit.

Only the daily work of producers and workers waits. An operation of an operator ends the window of all that waits.
A caller that is alone does not wait: see ``MEETING_WINDOWS``. No lease ends because of a window: see ``LEASE_SHARE``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from ..core.job_ops import (
    AbortJobs,
    ClaimJobs,
    CompleteJobs,
    EnqueueJobs,
    ExtendLeases,
    FailJobs,
    LeaseRef,
    ReleaseJobs,
)
from ..core.ops import Op
from .writer import ShardWriter

LEASE_SHARE = 0.25  # of what is left of a lease: a window takes no more
CALL_SHARE = 0.5  # of what is left of a call's time
MEETING_WINDOWS = 10  # that operations wait after two calls met

_NOTHING: tuple[LeaseRef, ...] = ()
# The daily work, and the leases that an operation needs.
_LEASES: dict[type, Callable[[Any], Sequence[Any]]] = {
    EnqueueJobs: lambda op: _NOTHING,
    ClaimJobs: lambda op: _NOTHING,
    CompleteJobs: attrgetter("items"),
    FailJobs: attrgetter("items"),
    ExtendLeases: attrgetter("held"),
    ReleaseJobs: attrgetter("held"),
    AbortJobs: attrgetter("held"),
}


class Window:
    """The window of one writer."""

    def __init__(self, seconds: float, writer: ShardWriter) -> None:
        self.seconds = seconds
        self._writer = writer
        self._met_at = -math.inf  # when two calls were under way at once, on the monotonic clock

    def start_by(self, ops: Sequence[Op], deadline: float, meets: bool) -> float:
        """Return when the commit of these operations has to begin, on the monotonic clock.

        ``deadline`` is that of the call. ``meets`` is whether another call is under way.
        """
        now = self._writer.machine.monotonic()
        if meets:
            self._met_at = now
        alone = now - self._met_at > MEETING_WINDOWS * self.seconds
        if alone or not ops or not all(type(op) in _LEASES for op in ops):
            return now
        return now + max(
            0.0, min(self.seconds, CALL_SHARE * (deadline - now), LEASE_SHARE * self._lease_s(ops))
        )

    def _lease_s(self, ops: Sequence[Op]) -> float:
        """Return the shortest time that is left of a lease of these operations, in seconds.

        It is 0 if the head that this writer knows does not hold a lease: another process granted it.
        """
        head, earliest_ms = self._writer.head, self._writer.earliest_ms()
        shortest = math.inf
        for op in ops:
            if type(op) is ClaimJobs:
                shortest = min(shortest, op.lease_ms / 1000)
            for held in _LEASES[type(op)](op):
                lease = None if head is None else head.state.leases.get(held.key)
                if lease is None or lease.token != held.token or earliest_ms is None:
                    return 0.0
                ends_ms = min(lease.expires_ms, lease.until_ms or lease.expires_ms)
                shortest = min(shortest, (ends_ms - self._writer.latest_ms(earliest_ms)) / 1000)
        return shortest
