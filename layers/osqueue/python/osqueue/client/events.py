"""Events for everybody, over an API: the same as ``operations.events`` reads from a store."""

from __future__ import annotations

from datetime import datetime

from .. import limits
from ..contract.admin_schemas import EventPage
from ..contract.functions import WAIT_S_MAX
from ..model.event import Event, positions_of
from ..model.validation import milliseconds, moment_ms
from ..operations.events import EVENTS_PER_PAGE_MAX, POLL_MS_MAX, POLL_MS_MIN
from .call import ApiClient, RemoteFlow


class RemoteEventReader:
    """One listener of a queue."""

    def __init__(self, api: ApiClient, since: str | datetime | float | None, poll: float) -> None:
        milliseconds(poll, "poll", POLL_MS_MIN, POLL_MS_MAX)
        self._api = api
        self.cursor = ""
        self._since: str | float | None = None
        self._next: list[Event] = []  # that came when it began
        if isinstance(since, str):
            positions_of(since)  # raises
            self._since = self.cursor = since
        elif since is not None:
            self._since = moment_ms(since, "since", limits.AT_MS_MAX) / 1000

    def begin(self) -> RemoteFlow[None]:
        """From now on nothing is missed."""
        if not self.cursor:
            self._next = yield from self._ask(EVENTS_PER_PAGE_MAX, 0.0)

    def page(self, limit: int = EVENTS_PER_PAGE_MAX, wait: float = 0.0) -> RemoteFlow[list[Event]]:
        """The next events, or none when there were none for ``wait`` seconds."""
        yield from self.begin()
        machine = self._api.machine
        until = machine.monotonic() + wait
        while True:
            events, self._next = self._next, []
            left = until - machine.monotonic()
            if not events:
                events = yield from self._ask(limit, min(max(left, 0.0), WAIT_S_MAX))
            if events or left <= 0:
                return events

    def _ask(self, limit: int, wait: float) -> RemoteFlow[list[Event]]:
        query = (("since", self._since), ("limit", limit), ("wait", wait or None))
        seconds = self._api.timeout + wait
        page: EventPage = yield from self._api.ask("events", query=query, seconds=seconds)
        self._since = self.cursor = page.cursor
        return page.events
