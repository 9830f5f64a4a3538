"""The flows of an embedded queue in one object."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ..commit.effects import QueueFlow
from .claims import ClaimFlows
from .enqueue import EnqueueFlows
from .waiting import POLL_SECONDS

if TYPE_CHECKING:  # loaded where they are used
    from ..model.worker import WorkerEntry
    from .events import EventReader


class EmbeddedFlows(EnqueueFlows, ClaimFlows):
    """The flows of those who bring jobs, work on them and ask about them. Those of operators: ``steering``."""

    def event_reader(
        self, since: str | datetime | float | None = None, poll: float = POLL_SECONDS
    ) -> EventReader:
        """Reads events from a cursor, from a time, or from now on. Raises Rejected."""
        from .events import EventReader

        return EventReader(self, since, poll)

    def put_worker(self, name: str, entry: WorkerEntry) -> QueueFlow[bool]:
        """Say that a worker is there, under an id that it drew; False: there is no such queue yet."""
        from .workers import put_worker

        return put_worker(self, name, entry)

    def delete_worker(self, name: str) -> QueueFlow[None]:
        """Say that a worker ends."""
        from .workers import delete_worker

        return delete_worker(self, name)
