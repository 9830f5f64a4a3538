"""Groups: no more of one run than may, nobody overtakes a job that has begun, and none starts while its group waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

from osqueue.core.groups import HOLD, STOP, is_ordered
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.settings import QueueSettings
from osqueue.core.state import FAILED, FAILING, PROCESSING, QUEUED, SCHEDULED, JobRecord, State, Transition

from .ledger import RecordedReduction, Violation
from .places import JobPlace

CHANGES = ("group_running", "group_on_failure", "group_on_dead", "groups", "fair")
Line = tuple[str, int, str]  # a group, a priority and a kind: its jobs come one after the other


def some_group(dice: Random, count: int) -> str:
    """One of so many groups, or none."""
    at = dice.randrange(count + 2)
    return f"g{at}" if at < count else ""


def check_limits(before: State, state: State, batch: RecordedReduction) -> None:
    """A commit was made: how many run of each group?

    Where limits were changed twice in it nobody can say from outside how many might.
    """
    ops = [op for each in batch.requests for op in each.ops if isinstance(op, ChangeSettings)]
    if sum(op.group_running is not None or bool(op.groups) for op in ops) > 1:
        return
    ran, running = (
        Counter([lease.job.group for lease in each.leases.values() if lease.job.group])
        for each in (before, state)
    )
    for group, count in running.items():
        bounds = [each.settings.group_running_of(group) for each in (before, state)]
        most = max(bounds) if all(bounds) else 0
        if most and count > max(most, ran[group]):  # whoever lowers a limit stops nothing
            raise Violation(f"{count} jobs of group {group!r} run, and {most} may")


class GroupOrder:
    """Which jobs of ordered groups have begun and are not over, and for which their groups wait, in one shard.

    A change of what groups wait for, or of how many run, comes before or behind the rest of its commit: from there on
    it is looked at anew.
    """

    def __init__(self) -> None:
        self._begun: dict[Line, set[bytes]] = {}
        self._awaited: dict[str, bytes] = {}  # by its group: the job that failed, was put off, or is dead
        self._epoch = 0

    def commit(
        self,
        before: State,
        state: State,
        batch: RecordedReduction,
        was: Mapping[bytes, JobPlace],
        found: Mapping[bytes, JobPlace],
    ) -> None:
        """A commit was made; ``was`` and ``found`` are the places of all jobs before and after it."""
        ops = [op for each in batch.requests for op in each.ops if isinstance(op, ChangeSettings)]
        if state.epoch != self._epoch or any(
            getattr(op, name) not in (None, ()) for op in ops for name in CHANGES
        ):
            self._begun, self._awaited, self._epoch = {}, {}, state.epoch
            return
        paused = {group for group, row in before.holds.items() if row.paused}
        for event in batch.reduction.events:
            place = found.get(event.key) or was.get(event.key)
            if place is None or not place.job.group:
                continue
            if event.target == PROCESSING and place.job.group in paused:
                raise Violation(f"a job of group {place.job.group!r} started, which is paused")
            if is_ordered(state.settings, place.job.group):
                self._move(event, place.job, state.settings)

    def _move(self, event: Transition, job: JobRecord, settings: QueueSettings) -> None:
        group, key, target = job.group, event.key, event.target
        begun = self._begun.setdefault((group, job.priority, job.kind), set())
        if target == PROCESSING:
            if self._awaited.get(group, key) != key:
                raise Violation(f"a job of group {group!r} started, although the group waits for another")
            if begun - {key}:
                raise Violation(f"a job of group {group!r} started before one was over that had begun")
            begun.add(key)
        if self._awaited.get(group) == key:
            del self._awaited[group]
        puts_off = event.origin == PROCESSING and target in (FAILING, SCHEDULED)
        dies = event.origin != FAILED and target == FAILED
        if (puts_off and settings.group_on_failure == HOLD) or (dies and settings.group_on_dead == STOP):
            self._awaited[group] = key
        elif target not in (PROCESSING, QUEUED):
            begun.discard(key)
