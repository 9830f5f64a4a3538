"""How much of its limits a queue uses, and which groups run or are held: flows that read heads and write nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from .. import limits
from ..clock import Machine
from ..commit.effects import QueueFlow
from ..core.pauses import without_ended
from ..core.rates import Whose, burst_of
from ..core.settings import KindSettings, QueueSettings
from ..core.state import JobRecord, State
from ..core.usage import GROUP_STATES, RUNNING, GroupUse, LimitUse, group_use, limit_use
from ..model import validation
from ..model.fields import moment
from ..model.keys import job_id
from ..model.reports import ConsumerUse, FlowUsage, LimitUsage, QueueGroup, RateUse, ShardUsage
from ..objects.layout import read_state
from .explain import group_held
from .lending import limiter_state, limiter_use, slots_lent

GROUPS_MAX = limits.ITEMS_PER_REQUEST_MAX


class UsageFlows:
    """The flows of those who ask how full a queue's limits are."""

    def __init__(self, queue: str, machine: Machine) -> None:
        self.queue = queue
        self.machine = machine

    def flow(self, shards: int) -> QueueFlow[FlowUsage]:
        """All limits of the queue, and what is used of them."""
        states, now_ms = yield from self._heads_now(shards)
        settings = states[0].settings if states else QueueSettings()
        uses = [limit_use(state, state.settings, max(now_ms, state.now_ms)) for state in states]
        rows: dict[Whose, QueueSettings | KindSettings] = {row.kind: row for row in settings.kinds}
        kinds = sorted({whose for use in uses for whose in use if whose is not None})
        groups = [each for state in states for each in group_use(state, max(now_ms, state.now_ms))]
        whole = _told([use[None] for use in uses], settings, now_ms)
        limiter = None
        if settings.limiter:
            head = yield from limiter_state(settings.limiter)
            limiter = limiter_use(settings.limiter, head, states, now_ms)
        return FlowUsage(
            self.queue,
            whole.running,
            whole.max_running,
            whole.rate,
            whole.paused,
            whole.paused_until,
            {
                kind: _told([use[kind] for use in uses if kind in use], rows.get(kind), now_ms)
                for kind in kinds
            },
            {name: sum(each.state == name for each in groups) for name in GROUP_STATES},
            [_share(use[None], state, now_ms) for use, state in zip(uses, states, strict=True)]
            if len(uses) > 1
            else [],
            limiter,
            _consumers(states),
        )

    def groups(self, shards: int, limit: int) -> QueueFlow[list[QueueGroup]]:
        """Groups that run, or that something holds: those that are held first, then by name."""
        most = validation.whole_number(limit, "limit", 1, GROUPS_MAX)
        states, now_ms = yield from self._heads_now(shards)
        found = [
            (each.state == RUNNING, each.group, each, state)
            for state in states
            for each in group_use(state, max(now_ms, state.now_ms))
        ]
        found.sort(key=lambda each: each[:2])
        return [_view(self.queue, state, each, now_ms) for _, _, each, state in found[:most]]

    def _heads_now(self, shards: int) -> QueueFlow[tuple[Sequence[State], int]]:
        """The heads of all shards, with the settings that hold now."""
        now_ms = self.machine.now_ms()
        states: list[State] = []
        for shard in range(shards):
            state = yield from read_state(self.queue, shard)
            if state is not None:
                settings = without_ended(state.settings, max(now_ms, state.now_ms))
                states.append(replace(state, settings=settings))
        return states, now_ms


def _consumers(states: Sequence[State]) -> dict[str, ConsumerUse]:
    if not any(state.settings.consumers for state in states):
        return {}
    from .consumer_use import consumer_uses  # where a queue has some

    return consumer_uses(states)


def _told(uses: Sequence[LimitUse], row: QueueSettings | KindSettings | None, now_ms: int) -> LimitUsage:
    """What the limits of one, the queue or a kind, are used for in all shards together."""
    running = sum(use.running for use in uses)
    if row is None:
        return LimitUsage(running)
    starts, period_ms = row.rate or (0, 0)
    rated = [use for use in uses if use.left is not None]
    rate = None
    if starts and rated:
        rate = RateUse(
            starts,
            period_ms / 1000,
            burst_of((starts, period_ms), row.burst or 0),
            sum(use.left or 0 for use in rated),
            _after(min(use.wait_ms for use in rated), now_ms),
        )
    until = moment(row.paused_until_ms) if row.paused_until_ms else None
    return LimitUsage(running, row.max_running or None, rate, bool(row.paused), until)


def _share(use: LimitUse, state: State, now_ms: int) -> ShardUsage:
    """What one shard has of the limits of the queue, and uses."""
    after = _after(use.wait_ms, now_ms)
    return ShardUsage(use.running, use.may_run, use.left, after, slots_lent(state, now_ms))


def _after(wait_ms: int, now_ms: int) -> datetime | None:
    return moment(now_ms + wait_ms) if wait_ms else None


def _view(queue: str, state: State, use: GroupUse, now_ms: int) -> QueueGroup:
    job = JobRecord(b"", b"", 0, group=use.group)
    return QueueGroup(
        use.group,
        use.state,
        use.running,
        use.waiting,
        group_held(queue, state, job, now_ms),
        moment(use.since_ms) if use.since_ms else None,
        moment(use.opens_ms) if use.opens_ms else None,
        job_id(use.waits_for) if use.waits_for else None,
    )
