"""Whether this process should get requests: its store takes part, and the process is not about to end.

A listing shows whether the store is reachable. It does not show whether the store allows what calls need, so the latest
outcome of each queue's calls counts as well: the process is not ready while the store refuses the calls of every queue
that was called lately. A queue that alone is refused, as by a policy for its prefix, takes no process out of service.
"""

from __future__ import annotations

import logging

import msgspec

from ..clock import Machine
from ..contract.schemas import Failure
from ..errors import Unavailable
from ..objects.layout import REGISTER
from ..server.app import ApiResponse
from ..stores.base import Failed, List
from ..stores.counting import CountingStore

LOOK_SECONDS = 5.0  # for which a reply of the store, or a refusal, is believed
SUCCESS_SECONDS = 60.0  # for which the success of a call is believed
QUEUES_MAX = 1_000  # whose outcomes are kept
QUEUE_PATH = "/v1/queues/"

log = logging.getLogger(__name__)


class Readiness:
    """Looks at the store when a supervisor asks, at most once in ``LOOK_SECONDS``."""

    def __init__(self, store: CountingStore, machine: Machine) -> None:
        self.store = store
        self.machine = machine
        self.draining = False
        self._looked = float("-inf")
        self._trouble = ""
        self._latest: dict[str, tuple[float, str]] = {}  # by queue: when, and the refusal; the oldest first
        self._logged = ""

    def note(self, path: str, response: ApiResponse) -> None:
        """Remember the outcome of a call: a success, or why the store refused what the call needs."""
        if not path.startswith(QUEUE_PATH):
            return
        queue = path.removeprefix(QUEUE_PATH).partition("/")[0]
        if response.status < 300:
            refusal = ""
        elif response.code == Unavailable.code:
            fault = msgspec.json.decode(response.body, type=Failure).error
            if fault.retry_after is not None:  # the error passes by itself
                return
            refusal = fault.message
        else:
            return
        self._latest.pop(queue, None)
        self._latest[queue] = (self.machine.monotonic(), refusal)
        if len(self._latest) > QUEUES_MAX:
            del self._latest[next(iter(self._latest))]

    async def look(self, detailed: bool = True) -> tuple[int, dict[str, str]]:
        """Return the status and the content of the response. ``detailed``: the caller may read the store's errors."""
        if self.draining:
            return 503, {"status": "draining"}
        now = self.machine.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            reply = await self.store.perform_async(List(REGISTER, limit=1))
            self._trouble = reply.error.message if isinstance(reply, Failed) else ""
        trouble = self._trouble or self._refusal(now)
        if trouble and trouble != self._logged:
            log.warning("not ready: %s", trouble)
        self._logged = trouble
        if trouble:
            reason = trouble if detailed else "the store fails requests; the log has its error"
            return 503, {"status": "unavailable", "reason": reason}
        return 200, {"status": "ok"}

    def _refusal(self, now: float) -> str:
        """Return the latest refusal if it is recent and each queue that was called lately is refused."""
        recent = ""
        for at, refusal in self._latest.values():
            if not refusal and now - at < SUCCESS_SECONDS:
                return ""
            if refusal and now - at < LOOK_SECONDS:
                recent = refusal
        return recent
