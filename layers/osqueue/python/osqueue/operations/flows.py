"""The flows of an embedded queue in one object."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from .claims import ClaimFlows
from .enqueue import EnqueueFlows
from .waiting import POLL_SECONDS

if TYPE_CHECKING:  # loaded where somebody listens
    from .events import EventReader


class EmbeddedFlows(EnqueueFlows, ClaimFlows):
    """The flows of those who bring jobs, work on them and ask about them. Those of operators: ``steering``."""

    def event_reader(
        self, since: str | datetime | float | None = None, poll: float = POLL_SECONDS
    ) -> EventReader:
        """Reads events from a cursor, from a time, or from now on. Raises Rejected."""
        from .events import EventReader

        return EventReader(self, since, poll)
