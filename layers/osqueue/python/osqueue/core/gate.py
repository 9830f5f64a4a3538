"""The gate: how many jobs a claim may start now, of the queue and of each kind.

What runs is counted from the leases and never kept beside them, so it cannot drift: a lease that ends, whatever ended
it, frees its place in the same commit. All limits are asked in the one step that grants the lease. A queue without any
has no gate.

Over several shards each has its share of a limit, the limit divided by their number. Nobody has to ask another shard,
and together they never start more than the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from .ops import Code
from .state import LeaseRecord, QueueSettings

ENDLESS = 1 << 62  # more jobs than ever run


def share_of(limit: int, settings: QueueSettings) -> int:
    """How many of so many jobs may run in this shard; the first ones have one more where it does not come out even."""
    return limit // settings.shards + (settings.shard < limit % settings.shards)


class Gate:
    """What one shard may still start."""

    def __init__(self, settings: QueueSettings, leases: Mapping[bytes, LeaseRecord]) -> None:
        most = settings.max_running
        self.room = share_of(most, settings) - len(leases) if most else ENDLESS  # over all kinds
        self._paused = {row.kind for row in settings.kinds if row.paused}
        self._room = {
            row.kind: share_of(row.max_running, settings) for row in settings.kinds if row.max_running
        }
        if self._room:
            self._take(Counter([lease.job.kind for lease in leases.values()]))

    def _take(self, counts: Mapping[str, int]) -> None:
        for kind, count in counts.items():
            if kind in self._room:
                self._room[kind] -= count

    def room_for(self, kind: str) -> int:
        """How many jobs of a kind may start."""
        return 0 if kind in self._paused else min(self.room, self._room.get(kind, ENDLESS))

    def charge(self, kind: str, count: int) -> None:
        """So many of a kind have started."""
        self.room -= count
        self._take({kind: count})

    def why_closed(self, kinds: Iterable[str]) -> Code | None:
        """Why none of these kinds may start, if that is so for one of them."""
        closed = {kind for kind in kinds if self.room_for(kind) <= 0}
        if not closed:
            return None
        return Code.PAUSED if closed <= self._paused else Code.RUNNING_LIMIT


def gate_of(settings: QueueSettings, leases: Mapping[bytes, LeaseRecord]) -> Gate | None:
    """The gate of a shard; None where nothing is limited."""
    limited = settings.max_running or any(row.max_running or row.paused for row in settings.kinds)
    return Gate(settings, leases) if limited else None
