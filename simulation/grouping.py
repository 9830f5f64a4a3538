"""Groups: no more of one run than may, and nobody overtakes the job that its group waits for."""

from __future__ import annotations

from collections import Counter
from random import Random

from osqueue.core.groups import HOLD, is_ordered
from osqueue.core.state import FAILING, PROCESSING, State

from . import fairness
from .ledger import RecordedReduction, Violation
from .places import JobPlace


def some_group(dice: Random, count: int) -> str:
    """One of so many groups, or none."""
    at = dice.randrange(count + 2)
    return f"g{at}" if at < count else ""


def check(before: State | None, state: State, batch: RecordedReduction, found: dict[bytes, JobPlace]) -> None:
    """A commit was made; ``found`` are the places of all jobs after it."""
    if before is None:
        return
    fairness.check(before, state, batch, found)
    ran, running = (
        Counter([lease.job.group for lease in each.leases.values() if lease.job.group])
        for each in (before, state)
    )
    for group, count in running.items():
        bounds = [each.settings.group_running_of(group) for each in (before, state)]
        most = max(bounds) if all(bounds) else 0
        if most and count > max(most, ran[group]):  # whoever lowers a limit stops nothing
            raise Violation(f"{count} jobs of group {group!r} run, and {most} may")
    if state.settings.group_on_failure != HOLD:
        return
    touched = {each.key for each in batch.reduction.events}
    failing = {
        place.job.group
        for key, place in found.items()
        if place.state == FAILING and place.job.group and key not in touched
    }
    for each in batch.reduction.events:
        if each.target == PROCESSING and each.key in state.leases:
            group = state.leases[each.key].job.group
            if group in failing and is_ordered(state.settings, group):
                raise Violation(f"a job of group {group!r} started, although the group waits for another")
