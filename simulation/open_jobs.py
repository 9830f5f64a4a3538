"""What a claim might have started besides, of a commit of which that can be said."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from osqueue.core.gate import gate_of
from osqueue.core.groups import Groups
from osqueue.core.job_ops import ClaimJobs, EnqueueJobs
from osqueue.core.labels import group_digest
from osqueue.core.state import PROCESSING, QUEUED, JobRecord, State, is_late

from .ledger import RecordedReduction
from .places import JobPlace


class Choice(Struct, frozen=True):
    """What calm claims started, and what they passed over although it might have started."""

    started: list[JobRecord]  # in order
    passed: dict[bytes, JobRecord]  # by their keys; or older ones of their kind in a lane of their own might
    own_lanes: set[tuple[int, str]]  # by priority and kind: of these none is taken out of a mixed lane

    def passed_in_mixed(self, key: bytes) -> bool:
        """Might this very job have started, if it is in a mixed lane?"""
        job = self.passed.get(key)
        return job is not None and (job.priority, job.kind) not in self.own_lanes


def choice_of(
    before: State, state: State, batch: RecordedReduction, found: Mapping[bytes, JobPlace]
) -> Choice | None:
    """Of a commit that started something, while jobs of any kind were claimed and enqueued, and nothing else happened.

    Then what is open after it was open in it all the time. ``found``: where jobs are after it.
    """
    ops = [op for each in batch.requests for op in each.ops]
    plain = all(
        op.kinds is None if isinstance(op, ClaimJobs) else isinstance(op, EnqueueJobs) and not _makes_room(op)
        for op in ops
    )
    held, holds = ({lease.token for lease in each.leases.values()} for each in (before, state))
    if (
        not plain
        or held >= holds
        or not held <= holds
        or state.drops.rules
        or state.settings != before.settings
    ):
        return None
    moved = {each.key for each in batch.reduction.events}
    gate = gate_of(state.settings, state.leases, state.starts, state.now_ms)
    groups = Groups(state.settings, state.leases, state.holds, state.starts, state.now_ms)
    passed = {
        key: place.job
        for key, place in found.items()
        if place.state == QUEUED
        and key not in moved
        and (not place.job.group or groups.opens(group_digest(place.job.group)))
        and (gate is None or gate.room_for(place.job.kind) > 0)
        and not is_late(place.job, state.now_ms)
    }
    started = [state.leases[each.key].job for each in batch.reduction.events if each.target == PROCESSING]
    own = {(lane.priority, lane.kind) for each in (before, state) for lane in each.lanes}
    return Choice(started, passed, own)


def _makes_room(op: EnqueueJobs) -> bool:
    """Does it cancel jobs, for which groups may have waited?"""
    return any(new.restarts is not None for new in op.jobs)
