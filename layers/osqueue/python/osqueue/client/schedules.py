"""Schedules, over an API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ..contract.admin_schemas import NewSchedule, ScheduleChange, Schedules
from ..contract.functions import PAYLOAD_BYTES_MAX
from ..contract.schemas import Accepted
from ..errors import NotFound
from ..model.job import Enqueued
from ..model.job_options import columns_of, options_of
from ..model.schedule import Schedule, schedule_name, schedule_row
from .call import ApiClient, RemoteFlow
from .content import encoded, fields


class RemoteSchedules(ApiClient):
    """The flows of those who keep schedules."""

    def schedule(
        self,
        name: str,
        cron: str | None = None,
        payload: Any = None,
        tz: str = "UTC",
        every: float | timedelta | None = None,
        missed: str = "once",
        overlap: str = "allow",
        options: Mapping[str, Any] | None = None,
    ) -> RemoteFlow[Schedule]:
        """Add or change a schedule. The same words again change nothing."""
        row = schedule_row(name, cron, tz, every, missed, overlap, self.codec.name, options or {})
        content = fields(self.codec, encoded(self.codec, payload, "payload", PAYLOAD_BYTES_MAX), "payload")
        body = NewSchedule(
            cron=row.cron or None,
            tz=row.zone,
            every=row.every_ms / 1000 or None,
            missed=missed,
            overlap=overlap,
            codec=self.codec.name if "data" in content else None,
            **content,
            **options_of(columns_of(options or {})),
        )
        found: Schedule = yield from self.ask("put_schedule", schedule=row.name, body=body)
        return found

    def schedules(self) -> RemoteFlow[list[Schedule]]:
        """All of them, by name."""
        found: Schedules = yield from self.ask("list_schedules")
        return found.schedules

    def schedule_of(self, name: str) -> RemoteFlow[Schedule]:
        """One of them. Raises NotFound."""
        found: Schedule = yield from self.ask("get_schedule", schedule=schedule_name(name))
        return found

    def unschedule(self, name: str) -> RemoteFlow[bool]:
        """Remove one; was it there?"""
        try:
            yield from self.ask("delete_schedule", schedule=schedule_name(name))
        except NotFound:
            return False
        return True

    def pause_schedule(self, name: str, paused: bool) -> RemoteFlow[Schedule]:
        """Let one rest, or go on. Raises NotFound."""
        body = ScheduleChange(paused=paused)
        found: Schedule = yield from self.ask("change_schedule", schedule=schedule_name(name), body=body)
        return found

    def run_schedule(self, name: str) -> RemoteFlow[Enqueued]:
        """Make a job of it now. Raises NotFound, Throttled."""
        done: Accepted = yield from self.ask("run_schedule", schedule=schedule_name(name))
        return Enqueued(done.status, done.job_id, done.state)
