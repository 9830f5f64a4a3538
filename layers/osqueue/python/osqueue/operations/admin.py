"""The flows of operators. Imported at first use: a program that only enqueues and works does not pay for them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ..commit.effects import QueueFlow
from .explain import ExplainFlows
from .purge import PurgeFlows
from .schedules import ScheduleFlows

if TYPE_CHECKING:  # loaded where they are used
    from ..model.reports import ReapReport
    from ..objects.archive import JobPager


class AdminFlows(PurgeFlows, ExplainFlows, ScheduleFlows):
    """Listing, cancel, settings, schedules, dead letters, stories, purge, upkeep, the archive."""

    def reap(self) -> QueueFlow[ReapReport]:
        """One pass of upkeep over all shards."""
        from ..maintenance.reaper import Reaper

        count = (yield from self._settings()).shards
        return (yield from Reaper(self.queue, self.machine, self.moment, self.stage).run(count))

    def history(self, since: datetime | float | None, until: datetime | float | None) -> JobPager:
        """Goes through the archive, page by page."""
        from ..objects.archive import JobPager

        return JobPager(self.queue, since, until)
