"""What a shard's limits are used for at a moment: read from its head, by the same rules as claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from .group_rates import group_allowance
from .groups import Groups
from .labels import group_digest
from .rates import Allowance, Whose, share_of
from .settings import QueueSettings
from .state import FAILED, State

RUNNING, FULL, HELD, STOPPED, PAUSED = "running", "full", "held", "stopped", "paused"
RATE_LIMITED = "rate_limited"  # as many have started as may for now
GROUP_STATES = (RUNNING, FULL, HELD, STOPPED, PAUSED, RATE_LIMITED)


class LimitUse(Struct, frozen=True):
    """What one shard uses of the limits of the queue, or of a kind."""

    running: int
    may_run: int | None  # its share; None: there is no limit
    left: int | None  # starts that its rate allows now; None: there is no rate
    wait_ms: int  # until its rate allows the next; 0: it does now


class GroupUse(Struct, frozen=True):
    """A group that runs, or that something holds."""

    group: str
    state: str
    running: int
    since_ms: (
        int  # the oldest start of those that run; when the job failed that it waits for; 0: nobody knows
    )
    waits_for: bytes  # the key of the job, or dead letter, that holds it
    opens_ms: int  # when that job is tried again, or its rate lets the next start; 0: nobody knows
    waiting: int  # jobs of it that wait in the head; there may be more behind


def limit_use(state: State, settings: QueueSettings, now_ms: int) -> dict[Whose, LimitUse]:
    """By kind, of those that run or have limits of their own; the whole queue's under None."""
    rates = Allowance(settings, state.starts, now_ms)
    running: dict[Whose, int] = dict(Counter([lease.job.kind for lease in state.leases.values()]))
    running[None] = len(state.leases)
    most: dict[Whose, int] = {row.kind: row.max_running for row in settings.kinds if row.max_running}
    if settings.max_running:
        most[None] = settings.max_running
    limited = {row.kind for row in settings.kinds if row.max_running or row.rate or row.paused}
    return {
        whose: LimitUse(
            running.get(whose, 0),
            share_of(most[whose], settings) if whose in most else None,
            max(0, rates.left[whose]) if whose in rates.left else None,
            rates.wait_ms(whose),
        )
        for whose in {*running, *limited}
    }


def group_use(state: State, now_ms: int) -> Iterator[GroupUse]:
    """The groups of a shard that run, or that something holds, by their names.

    Of those whose rate alone holds them, the ones that run or wait in the head: rows of rates know no names.
    """
    running: dict[str, list[int]] = {}
    for lease in state.leases.values():
        if lease.job.group:
            running.setdefault(lease.job.group, []).append(lease.started_ms)
    groups = Groups(state.settings, state.leases, {})
    waiting = Counter(
        job.group
        for lane in state.lanes
        for jobs in (lane.backlog.ready, lane.backlog.tail)
        for job in jobs
        if job.group and job.key not in state.tombstones
    )
    holders = {job.key: job for job in state.delayed.jobs}
    rates = group_allowance(state.settings, state.starts, now_ms)
    waits = (
        {} if rates is None else {name: rates.wait_ms(group_digest(name)) for name in {*running, *waiting}}
    )
    for group in sorted({*running, *state.holds, *filter(waits.get, waits)}):
        hold = state.holds.get(group)
        starts = running.get(group, [])
        holder = None if hold is None else holders.get(hold.key)
        if hold is None:
            name = RATE_LIMITED if waits.get(group) else RUNNING
            name = name if groups.opens(group_digest(group)) else FULL
        else:
            name = PAUSED if hold.paused else STOPPED if hold.why == FAILED else HELD
        failed_ms = holder.history[-1].ended_ms if holder is not None and holder.history else 0
        yield GroupUse(
            group,
            name,
            len(starts),
            min(starts, default=failed_ms),
            b"" if hold is None else hold.key,
            now_ms + waits[group] if name == RATE_LIMITED else 0 if holder is None else holder.due_ms,
            waiting[group],
        )
