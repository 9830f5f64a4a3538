"""The flows of a queue over an API in one object."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ..operations.waiting import POLL_SECONDS
from .claims import RemoteClaims
from .enqueue import RemoteEnqueue
from .results import RemoteResults
from .workers import RemoteWorkers

if TYPE_CHECKING:  # loaded where somebody listens
    from .events import RemoteEventReader


class RemoteFlows(RemoteEnqueue, RemoteClaims, RemoteResults, RemoteWorkers):
    """The flows of those who bring jobs, work on them and ask about them. Those of operators: ``steering``."""

    def event_reader(
        self, since: str | datetime | float | None = None, poll: float = POLL_SECONDS
    ) -> RemoteEventReader:
        """Reads events from a cursor, from a time, or from now on. Raises Rejected.

        The API waits for them: ``poll`` says nothing here.
        """
        from .events import RemoteEventReader

        return RemoteEventReader(self, since, poll)
