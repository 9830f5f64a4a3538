"""Groups: no more of one run than may, nobody overtakes a job that has begun, and none starts while its group waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

from osqueue.core.groups import HOLD, STOP, is_ordered
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.settings import QueueSettings
from osqueue.core.state import (
    FAILED,
    FAILING,
    NO_HOLD,
    PROCESSING,
    QUEUED,
    SCHEDULED,
    JobRecord,
    State,
    Transition,
)

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

    def restored(
        self, base: State, state: State, was: Mapping[bytes, JobPlace], found: Mapping[bytes, JobPlace]
    ) -> None:
        """Check the holds of a restored head, and go on from it.

        ``was`` and ``found`` are the places of all jobs in its backup and in the head. A group waits for the job that
        it waited for if that job is where it was, or for one that has died or failed with the restore.
        """
        self._begun, self._awaited, self._epoch = {}, {}, state.epoch
        wanted: dict[str, set[bytes]] = {}
        for group, row in base.holds.items():
            if row.key in found and row.key in was and found[row.key].state == was[row.key].state:
                wanted[group] = {row.key}
        fresh: dict[str, set[bytes]] = {}
        stalled: dict[Line, set[bytes]] = {}
        for key, place in found.items():
            job, before = place.job, was.get(key)
            if before is None or not job.group or not is_ordered(state.settings, job.group):
                continue
            if place.state == QUEUED and before.state == PROCESSING:
                stalled.setdefault((job.group, job.priority, job.kind), set()).add(key)
            died = place.state == FAILED and (before.state != FAILED or before.job.history != job.history)
            failed = place.state == FAILING and before.state == PROCESSING
            if (died and state.settings.group_on_dead == STOP) or (
                failed and state.settings.group_on_failure == HOLD
            ):
                fresh.setdefault(job.group, set()).add(key)
        for group, keys in (wanted | fresh).items():
            row = state.holds.get(group, NO_HOLD)
            if row.key not in keys:
                raise Violation(f"group {group!r} does not wait for its job any more after a restore")
            self._awaited[group] = row.key
        self._begun = {line: keys for line, keys in stalled.items() if len(keys) == 1}

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
