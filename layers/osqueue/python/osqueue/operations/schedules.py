"""Schedules: who adds, changes, pauses and removes them. Their rows are in the queue's first shard."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from .. import limits
from ..commit.effects import QueueFlow, Submit
from ..core import scheduling
from ..core.ops import Code
from ..core.queue_ops import ChangeSchedule
from ..core.state import QUEUED, ScheduleRow
from ..errors import Conflict, NotFound, Rejected, Throttled
from ..model.job import Enqueued
from ..model.keys import KeySource, job_id
from ..model.schedule import Schedule, schedule_name, schedule_row, schedule_view, views_of
from ..objects.layout import read_state
from .results import ResultFlows

SHARD = 0
STALE_TRIES = 3  # times a payload is written again when the collector overtook it


class ScheduleFlows(ResultFlows):
    """The flows of those who keep schedules."""

    def schedule(
        self,
        name: str,
        cron: str | None = None,
        payload: Any = None,
        tz: str = "UTC",
        every: float | timedelta | None = None,
        missed: str = scheduling.ONCE,
        overlap: str = scheduling.ALLOW,
        options: Mapping[str, Any] | None = None,
    ) -> QueueFlow[Schedule]:
        """Add or change a schedule. The same words again change nothing, and write nothing."""
        row = schedule_row(name, cron, tz, every, missed, overlap, self.codec.name, options or {})
        return (yield from self.put_schedule(row, self.codec.encode(payload, "payload")))

    def put_schedule(self, row: ScheduleRow, payload: bytes) -> QueueFlow[Schedule]:
        """The same of a row that has been checked, and a payload that is encoded."""
        if len(payload) > limits.PAYLOAD_BYTES_MAX:
            raise Rejected(
                f"payload: {len(payload):,} bytes; the most is {limits.PAYLOAD_BYTES_MAX:,}.", field="payload"
            )
        there = yield from self._row(row.name)
        if there is not None and scheduling.is_same(
            there, replace(row, payload=scheduling.content_at(0, payload))
        ):
            return schedule_view(there)
        yield from self.known_queue()
        for _ in range(STALE_TRIES):
            stage = yield from self.stage(SHARD)
            wished = replace(row, payload=(yield from stage.shared(payload)))
            answer = yield Submit(SHARD, (ChangeSchedule(row.name, wished),))
            code = answer.outcomes[0].code
            if code == Code.CROWDED:
                raise Throttled(
                    f"schedule {row.name}: all schedules of a queue have {limits.SCHEDULES_BYTES_MAX // limits.KB} KB"
                    " together, about a hundred of them, and these are used. Remove one, or use another queue."
                )
            if code != Code.STALE:
                return schedule_view((yield from self._there(row.name)))
        raise Throttled("the call was overtaken by the collector again and again. Repeat it later.")

    def schedules(self) -> QueueFlow[list[Schedule]]:
        """All of them, by name."""
        state = yield from read_state(self.queue, SHARD)
        return [] if state is None else views_of(state.schedules)

    def schedule_of(self, name: str) -> QueueFlow[Schedule]:
        """One of them. Raises NotFound."""
        return schedule_view((yield from self._there(schedule_name(name))))

    def unschedule(self, name: str) -> QueueFlow[bool]:
        """Remove one; was it there?"""
        if (yield from self._row(schedule_name(name))) is None:
            return False
        answer = yield Submit(SHARD, (ChangeSchedule(name, removed=True),))
        return bool(answer.outcomes[0].code == Code.OK)

    def pause_schedule(self, name: str, paused: bool) -> QueueFlow[Schedule]:
        """Let one rest, or go on. Raises NotFound."""
        if (yield from self._there(schedule_name(name))).paused != paused:
            yield Submit(SHARD, (ChangeSchedule(name, paused=paused),))
        return schedule_view((yield from self._there(name)))

    def run_schedule(self, name: str) -> QueueFlow[Enqueued]:
        """Make a job of it now, whatever the time and whatever of it lives. Raises NotFound."""
        yield from self._there(schedule_name(name))
        (key,) = KeySource(self.machine).draw(SHARD)
        answer = yield Submit(SHARD, (ChangeSchedule(name, run=key),))
        match answer.outcomes[0].code:
            case Code.NOT_FOUND:
                raise _missing(name)
            case Code.DUPLICATE:
                raise Conflict(f"schedule {name}: its job has the key of another one. Repeat the call.")
        return Enqueued("queued", job_id(key), QUEUED)

    def _row(self, name: str) -> QueueFlow[ScheduleRow | None]:
        state = yield from read_state(self.queue, SHARD)
        row = None if state is None else scheduling.find(state.schedules, name)
        return row if row is not None and scheduling.exists(row) else None

    def _there(self, name: str) -> QueueFlow[ScheduleRow]:
        row = yield from self._row(name)
        if row is None:
            raise _missing(name)
        return row


def _missing(name: str) -> NotFound:
    return NotFound(
        f"schedule {name}: there is none of this name. 'osqueue cron ls ADDRESS QUEUE' lists those there are."
    )
