"""The flows of operators. Imported at first use: a program that only enqueues and works does not pay for them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ..commit.effects import QueueFlow
from .batches import BatchFlows
from .explain import ExplainFlows
from .purge import PurgeFlows
from .schedules import ScheduleFlows

if TYPE_CHECKING:  # loaded where they are used
    from ..model.reports import FlowUsage, QueueGroup, ReapReport
    from ..model.worker import WorkerStatus
    from ..objects.archive import JobPager


class AdminFlows(PurgeFlows, ExplainFlows, ScheduleFlows, BatchFlows):
    """Listing, cancel, settings, schedules, dead letters, stories, purge, upkeep, the archive."""

    def reap(self) -> QueueFlow[ReapReport]:
        """One pass of upkeep over all shards."""
        from ..maintenance.reaper import Reaper

        count = (yield from self._settings()).shards
        return (yield from Reaper(self.queue, self.machine, self.moment, self.stage).run(count))

    def flow(self) -> QueueFlow[FlowUsage]:
        """All limits of the queue, and what is used of them."""
        from .usage import UsageFlows

        return (yield from UsageFlows(self.queue, self.machine).flow((yield from self._settings()).shards))

    def groups(self, limit: int = 100) -> QueueFlow[list[QueueGroup]]:
        """Groups that run, or that something holds: those that are held first, then by name."""
        from .usage import UsageFlows

        usage = UsageFlows(self.queue, self.machine)
        return (yield from usage.groups((yield from self._settings()).shards, limit))

    def workers(self) -> QueueFlow[list[WorkerStatus]]:
        """All workers that are registered or hold leases: those that are lost first, then by name."""
        from .workers import workers

        return (yield from workers(self.queue, (yield from self._settings()).shards, self.moment))

    def history(self, since: datetime | float | None, until: datetime | float | None) -> JobPager:
        """Goes through the archive, page by page."""
        from ..objects.archive import JobPager

        return JobPager(self.queue, since, until)
