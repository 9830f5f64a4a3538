"""Whether this process should get requests: its store takes part, and it is not about to end."""

from __future__ import annotations

import msgspec

from ..clock import Machine
from ..contract.schemas import Failure
from ..errors import Unavailable
from ..objects.layout import REGISTER
from ..server.app import ApiResponse
from ..stores.base import Failed, List
from ..stores.counting import CountingStore

LOOK_SECONDS = 5.0  # for which a reply of the store, or its refusal of a call, is believed


class Readiness:
    """Looks at the store when somebody asks, and not more often than every few seconds."""

    def __init__(self, store: CountingStore, machine: Machine) -> None:
        self.store = store
        self.machine = machine
        self.draining = False
        self._looked = float("-inf")
        self._trouble = ""
        self._refused = float("-inf")
        self._refusal = ""

    def note(self, response: ApiResponse) -> None:
        """Remember for a while that the store refused what a call needs: it may allow a listing all the same."""
        if response.code != Unavailable.code:
            return
        fault = msgspec.json.decode(response.body, type=Failure).error
        if fault.retry_after is None:  # a permanent one
            self._refused, self._refusal = self.machine.monotonic(), fault.message

    async def look(self) -> tuple[int, dict[str, str]]:
        """Return the status and the content of the response."""
        if self.draining:
            return 503, {"status": "draining"}
        now = self.machine.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            reply = await self.store.perform_async(List(REGISTER, limit=1))
            self._trouble = reply.error.message if isinstance(reply, Failed) else ""
        trouble = self._trouble or (self._refusal if now - self._refused < LOOK_SECONDS else "")
        if trouble:
            return 503, {"status": "unavailable", "reason": trouble}
        return 200, {"status": "ok"}
