"""Groups: jobs of one key, one after the other, or so many at once.

A group is a text that its producer gives, as SQS has ``MessageGroupId``. All jobs of one are in one shard, and in the
mixed lane of their priority. A group is *closed* while as many of its jobs run as may, and while something holds it:

    a job of it that failed and is tried again, or was put off    where the queue says that its group waits for it
    a dead letter of it                                           where the queue says so
    an operator                                                   until it is resumed

What runs is counted from the leases. A hold is a row, which goes with what it waits for. So there is nothing that
could drift, and a group of which no job runs and none failed costs nothing, however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from .. import limits
from .labels import group_digest
from .state import FAILED, Hold, JobRecord, LeaseRecord, QueueSettings

HOLD = "hold"  # a group waits for its job that failed
STOP = "stop"  # and for a dead letter of it


class Groups:
    """Which groups start nothing now."""

    def __init__(
        self, settings: QueueSettings, leases: Mapping[bytes, LeaseRecord], holds: Mapping[str, Hold]
    ) -> None:
        self._most = settings.group_running or limits.RUNNING_MAX
        self._running = Counter([lease.job.group for lease in leases.values() if lease.job.group])
        full = (group for group, count in self._running.items() if count >= self._most)
        self.closed = _held(holds).union(map(group_digest, full)) if holds else set(map(group_digest, full))
        self.are_shut = len(holds) >= limits.GROUP_HOLDS_MAX  # so many are held that none may start anything

    def opens(self, group: bytes) -> bool:
        """May a job of the group of which this is the digest start?"""
        return group not in self.closed and not self.are_shut

    def charge(self, job: JobRecord) -> None:
        """A job has started."""
        if job.group:
            self._running[job.group] += 1
            if self._running[job.group] >= self._most:
                self.closed.add(group_digest(job.group))


def home_of(group: str, shards: int) -> int:
    """In which of so many shards all jobs of a group are."""
    return int.from_bytes(group_digest(group), "big") % max(1, shards)


class _Remembered:
    """The digests of the groups that were held last: most commits leave them as they are."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[str, Hold], set[bytes]] = ({}, set())

    def of(self, holds: Mapping[str, Hold]) -> set[bytes]:
        """Their digests."""
        known, digests = self._last
        if known is not holds:
            digests = set(map(group_digest, holds))
            self._last = (holds, digests)
        return digests


_held = _Remembered().of


# ── Holds ────────────────────────────────────────────────────────────────────
def is_ordered(settings: QueueSettings) -> bool:
    """Do jobs of one group run one after the other?"""
    return settings.group_running == 1


def waiting_for(holds: dict[str, Hold], settings: QueueSettings, job: JobRecord, why: str) -> dict[str, Hold]:
    """The holds when a job's group begins to wait for it, where the queue says so."""
    if not job.group or not is_ordered(settings):
        return holds
    waits = settings.group_on_dead == STOP if why == FAILED else settings.group_on_failure == HOLD
    row = holds.get(job.group)
    return {**holds, job.group: Hold(job.key, why, row is not None and row.paused)} if waits else holds


def not_for(holds: dict[str, Hold], job: JobRecord) -> dict[str, Hold]:
    """The holds when no group waits for this job any more: the same ones, if none did."""
    row = holds.get(job.group) if job.group and holds else None
    if row is None or row.key != job.key:
        return holds
    rest = {group: each for group, each in holds.items() if group != job.group}
    return {**rest, job.group: Hold(paused=True)} if row.paused else rest


def paused(row: Hold | None, wished: bool) -> Hold | None:
    """The row of a group that an operator pauses, or lets go on, also where it waits for a dead letter."""
    if wished:
        return replace(row or Hold(), paused=True)
    return replace(row, paused=False) if row is not None and row.why not in ("", FAILED) else None


def of_a_new_life(holds: dict[str, Hold]) -> dict[str, Hold]:
    """The holds of a restored head. A job that a group waited for may be over by now, so none waits for one."""
    return {group: Hold(paused=True) for group, row in holds.items() if row.paused}
