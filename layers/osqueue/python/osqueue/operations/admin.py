"""The flows of operators. Loaded when first asked for: who only enqueues and works does not pay for them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ..commit.effects import QueueFlow
from .explain import Telling
from .purge import Purging

if TYPE_CHECKING:  # loaded where they are used
    from ..maintenance.reaper import Report
    from ..objects.archive import FinishedJobs


class Steering(Purging, Telling):
    """Listing, cancel, settings, dead letters, stories, purge, upkeep, the archive."""

    def reap(self) -> QueueFlow[Report]:
        """One pass of upkeep over all shards."""
        from ..maintenance.reaper import Reaper

        count = (yield from self._settings()).shards
        return (yield from Reaper(self.queue, self.machine, self.moment, self.stage).run(count))

    def history(self, since: datetime | float | None, until: datetime | float | None) -> FinishedJobs:
        """Goes through the archive, page by page."""
        from ..objects.archive import FinishedJobs

        return FinishedJobs(self.queue, since, until)
