"""How full a head is: each part of it has a budget, so that the head stays small however many jobs there are.

Most parts move to objects beside the head before they are full: theirs may well be used up. A few cannot: when these
are full, calls are turned away until there is room.
"""

from __future__ import annotations

from msgspec import Struct

from .. import limits
from .batches import batch_weight
from .mixed import labels_bytes
from .scheduling import schedule_weight
from .state import State


class Budget(Struct, frozen=True):
    """One part of a head."""

    name: str
    used: int  # bytes, or rows where it counts rows
    most: int
    refuses: bool = False  # when it is full calls are turned away

    @property
    def share(self) -> float:
        """How much of it is used: 1 is all."""
        return self.used / self.most


def budgets(state: State) -> tuple[Budget, ...]:
    """All parts of a head."""
    backlogs = [lane.backlog for lane in state.lanes]
    open_batches = [row for row in state.batches.values() if not row.ended_ms]
    return (
        Budget("ready", sum(each.ready_bytes for each in backlogs), limits.READY_BYTES_MAX),
        Budget("tail", sum(each.tail_bytes for each in backlogs), limits.TAIL_BYTES_MAX),
        Budget("delayed", state.delayed.jobs_bytes, limits.DELAYED_BYTES_MAX),
        Budget("dead", state.dead.ready_bytes + state.dead.tail_bytes, limits.DEAD_BYTES_MAX),
        Budget("finished", state.finished_bytes, limits.FINISHED_BYTES_MAX),
        Budget("events", state.log.rows_bytes, limits.EVENTS_BYTES_MAX),
        Budget("tombstones", len(state.tombstones), limits.TOMBSTONES_MAX),
        Budget("leases", state.leases_bytes, limits.LEASES_BYTES_MAX, True),
        Budget("sessions", state.sessions_bytes, limits.SESSIONS_BYTES_MAX, True),
        Budget("schedules", sum(map(schedule_weight, state.schedules)), limits.SCHEDULES_BYTES_MAX, True),
        Budget("group_debts", len(state.starts.groups), limits.GROUP_DEBTS_MAX, True),
        Budget("group_settings", len(state.settings.overrides), limits.GROUP_SETTINGS_MAX, True),
        Budget("batches", sum(map(batch_weight, open_batches)), limits.BATCHES_BYTES_MAX, True),
        Budget("labels", max(map(labels_bytes, backlogs), default=0), limits.LABELS_BYTES_MAX),
        Budget("result_ttls", len(state.result_ttls), limits.RESULT_TTLS_MAX, True),
    )
