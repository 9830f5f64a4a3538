"""How the consumers of a queue are at work: which tickets are out, since when, and how often they were fired."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.consumers import most_of
from ..core.state import JobRecord, State
from ..model.explain import when
from ..model.fields import moment
from ..model.reports import ConsumerUse


def consumer_uses(states: Sequence[State]) -> dict[str, ConsumerUse]:
    """By name, over all shards."""
    names = sorted({row.name for state in states for row in state.settings.consumers})
    return {name: _use(name, states) for name in names}


def _use(name: str, states: Sequence[State]) -> ConsumerUse:
    attached = [(state, row) for state in states for row in state.settings.consumers if row.name == name]
    tickets = [each for state, _ in attached for each in state.tickets.get(name, ())]
    fired = [each for each in tickets if not each.holder]
    return ConsumerUse(
        target=attached[0][1].target,
        held=len(tickets) - len(fired),
        fired=len(fired),
        most=sum(most_of(row, state.settings) for state, row in attached),
        since=moment(min(each.fired_ms for each in fired)) if fired else None,
        tries=max((each.tries + 1 for each in fired), default=0),
    )


def consumers_told(state: State, job: JobRecord, now_ms: int) -> tuple[str, ...]:
    """Of each consumer that is to take a job: its name and how it stands."""
    return tuple(
        _told(row.name, _use(row.name, [state]), now_ms)
        for row in state.settings.consumers
        if row.kinds is None or job.kind in row.kinds
    )


def _told(name: str, use: ConsumerUse, now_ms: int) -> str:
    words = []
    if use.held:
        words.append(f"{use.held} of {use.most} at work")
    if use.fired:
        assert use.since is not None
        often = "once" if use.tries == 1 else f"{use.tries} times"
        words.append(f"{use.fired} invoked {often} and not come yet, {when(use.since, moment(now_ms))}")
    return f"consumer {name} ({', '.join(words) or 'not invoked yet'})"
