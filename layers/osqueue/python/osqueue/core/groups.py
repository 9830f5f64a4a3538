"""Groups: jobs of one key, one after the other, or so many at once.

A group is a text that its producer gives, as SQS has ``MessageGroupId``. All jobs of one are in one shard, and in the
mixed lane of their priority. A group is *closed* while as many of its jobs run as may, and while something holds it:

    a job of it that failed and is tried again, or was put off    where the queue says that its group waits for it
    a dead letter of it                                           where the queue says so
    an operator                                                   until it is resumed
    its rate                                                      until its next start is allowed (``group_rates``)

What runs is counted from the leases. A hold is a row, which goes with what it waits for. So there is nothing that
could drift, and a group of which no job runs and none failed costs nothing, however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from .. import limits
from .gate import Closed
from .group_rates import group_allowance
from .labels import group_digest
from .ops import Code
from .queue_ops import AS_THE_QUEUE, GroupChange
from .settings import GroupSettings, QueueSettings
from .state import FAILED, NO_HOLD, NO_STARTS, Hold, JobRecord, LeaseRecord, Starts, State

HOLD = "hold"  # a group waits for its job that failed
STOP = "stop"  # and for a dead letter of it


class Groups:
    """Which groups start nothing now."""

    def __init__(
        self,
        settings: QueueSettings,
        leases: Mapping[bytes, LeaseRecord],
        holds: Mapping[str, Hold],
        starts: Starts = NO_STARTS,
        now_ms: int = 0,
    ) -> None:
        self._settings = settings
        self._running = Counter([lease.job.group for lease in leases.values() if lease.job.group])
        full = set(map(group_digest, self._full()))
        self._barred = _held(holds) | full if holds else full  # whatever time it is
        self.rates = group_allowance(settings, starts, now_ms)
        self.closed = self._barred if self.rates is None else self._barred | self.rates.spent()
        self.are_shut = len(holds) >= limits.GROUP_HOLDS_MAX  # so many are held that none may start anything

    def _full(self) -> Iterable[str]:
        """Those of which as many run as may."""
        if self._settings.overrides:
            return filter(self._is_full, self._running)
        most = self._settings.group_running or limits.RUNNING_MAX
        return [group for group, count in self._running.items() if count >= most]

    def _is_full(self, group: str) -> bool:
        return self._running[group] >= (self._settings.group_running_of(group) or limits.RUNNING_MAX)

    def opens(self, group: bytes) -> bool:
        """May a job of the group of which this is the digest start?"""
        return (
            group not in self.closed and not self.are_shut and (self.rates is None or self.rates.opens(group))
        )

    def charge(self, job: JobRecord) -> None:
        """A job has started."""
        if job.group:
            group = group_digest(job.group)
            self._running[job.group] += 1
            if self._is_full(job.group):
                self._barred.add(group)
                self.closed.add(group)
            if self.rates is not None and not self.rates.take(group, job.units):
                self.closed.add(group)

    def why_closed(self, waiting: Collection[bytes], all_known: bool) -> Closed:
        """Why none of these starts anything, by their digests, and for how long none will, where time ends that."""
        code, rates, waits = Code.GROUPS_CLOSED, self.rates, [0]
        if rates is not None and not self.are_shut:
            closed = [group for group in waiting if not self.opens(group)]
            if any(group not in self._barred and rates.lacks_row(group) for group in closed):
                code = Code.GROUP_LIMIT
            waits = [0 if group in self._barred else rates.wait_ms(group) for group in closed]
        return Closed(code, min(waits, default=0) if all_known and all(waits) else 0)

    def starts(self, before: Starts) -> Starts:
        """What is owed to the rates of groups, beside what is to others."""
        return before if self.rates is None else self.rates.starts(before)


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
def is_ordered(settings: QueueSettings, group: str) -> bool:
    """Do jobs of a group run one after the other?"""
    return settings.group_running_of(group) == 1


def _waits_for(settings: QueueSettings, group: str, why: str) -> bool:
    """Return whether the settings let a group wait for a job of it that is in the state ``why``."""
    if not group or not is_ordered(settings, group):
        return False
    return settings.group_on_dead == STOP if why == FAILED else settings.group_on_failure == HOLD


def waiting_for(holds: dict[str, Hold], settings: QueueSettings, job: JobRecord, why: str) -> dict[str, Hold]:
    """Return the holds when a job's group begins to wait for it, where the settings let it."""
    if not _waits_for(settings, job.group, why):
        return holds
    row = holds.get(job.group)
    return {**holds, job.group: Hold(job.key, why, row is not None and row.paused)}


def not_for(holds: dict[str, Hold], job: JobRecord) -> dict[str, Hold]:
    """Return the holds when no group waits for a job any more: the same dict if none did."""
    row = holds.get(job.group) if job.group and holds else None
    return holds if row is None or row.key != job.key else without_jobs(holds, {job.key})


def without_jobs(holds: Mapping[str, Hold], keys: Collection[bytes]) -> dict[str, Hold]:
    """Return the holds when no group waits for jobs with these keys. Pauses by operators stay."""
    return {
        group: Hold(paused=True) if row.key in keys else row
        for group, row in holds.items()
        if row.paused or row.key not in keys
    }


def of_new_settings(holds: Mapping[str, Hold], settings: QueueSettings) -> dict[str, Hold]:
    """Return the holds under changed settings: no group waits any more for what they do not let it wait for."""
    over = {row.key for group, row in holds.items() if row.key and not _waits_for(settings, group, row.why)}
    return without_jobs(holds, over)


def paused(row: Hold | None, wished: bool) -> Hold | None:
    """The row of a group that an operator pauses, or lets go on, also where it waits for a dead letter."""
    if wished:
        return replace(row or NO_HOLD, paused=True)
    return replace(row, paused=False) if row is not None and row.why not in ("", FAILED) else None


def are_stopped(state: State) -> bool:
    """Do all groups that start nothing wait for somebody who resumes them? Neither time nor a worker opens one."""
    by_somebody = [row.paused or row.why == FAILED for row in state.holds.values()]
    return (
        bool(by_somebody)
        and all(by_somebody)
        and not any(lease.job.group for lease in state.leases.values())
        and not (state.starts.groups or state.starts.groups_us)
    )


def overridden(rows: Mapping[str, GroupSettings], changes: Iterable[GroupChange]) -> dict[str, GroupSettings]:
    """What single groups have of their own after some changes; those that have nothing are left out."""
    found = dict(rows)
    for each in changes:
        row = found.get(each.group, GroupSettings())
        if each.running is not None:
            row = replace(row, running=None if each.running == AS_THE_QUEUE else each.running)
        if each.burst is not None:
            row = replace(row, burst=None if each.burst == AS_THE_QUEUE else each.burst)
        if each.rate is not None:
            row = replace(row, rate=each.rate if each.rate[0] else None)
        found[each.group] = row
    return {group: row for group, row in sorted(found.items()) if row != GroupSettings()}


def of_a_new_life(
    holds: Mapping[str, Hold], settings: QueueSettings, awaited: Collection[bytes], dead: Iterable[JobRecord]
) -> dict[str, Hold]:
    """Return the holds of a restored head.

    ``awaited``: the jobs that groups wait for and that still are where they were, by key. ``dead``: the jobs that have
    become dead letters since the backup, the latest last.
    """
    found = without_jobs(holds, {row.key for row in holds.values() if row.key} - set(awaited))
    for job in dead:
        if _waits_for(settings, job.group, FAILED):
            found[job.group] = Hold(job.key, FAILED, found.get(job.group, NO_HOLD).paused)
    return found
