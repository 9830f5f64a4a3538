"""Whether this process should get requests: its store answers, and it is not about to end."""

from __future__ import annotations

from ..clock import Machine
from ..objects.layout import REGISTER
from ..stores.base import Failed, List
from ..stores.counting import CountingStore

LOOK_SECONDS = 5.0  # for which an answer of the store is believed


class Readiness:
    """Looks at the store when somebody asks, and not more often than every few seconds."""

    def __init__(self, store: CountingStore, machine: Machine) -> None:
        self.store = store
        self.machine = machine
        self.draining = False
        self._looked = float("-inf")
        self._trouble = ""

    async def look(self) -> tuple[int, dict[str, str]]:
        """The status to answer, and what to say."""
        if self.draining:
            return 503, {"status": "draining"}
        now = self.machine.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            reply = await self.store.perform_async(List(REGISTER, limit=1))
            self._trouble = reply.error.message if isinstance(reply, Failed) else ""
        if self._trouble:
            return 503, {"status": "unavailable", "reason": self._trouble}
        return 200, {"status": "ok"}
