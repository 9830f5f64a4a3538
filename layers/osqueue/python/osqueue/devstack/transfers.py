"""Large contents on their way past the functions of the stack: presigned requests, which the relay carries out.

In AWS they go to S3. The functions sign paths of this server where the store of the stack signs none.
"""

from __future__ import annotations

from ..clock import MACHINE
from ..errors import OsqueueError
from ..stores.address import open_store
from ..stores.relay import Relay, RelayRefusal
from .gateway import StackRequest, StackResponse, message

TYPE = (("Content-Type", "application/octet-stream"),)


class TransferApi:
    """Answers whoever has a signed path."""

    def __init__(self, store: str) -> None:
        self._store = open_store(store)
        self._relay = Relay(MACHINE)

    def answer(self, request: StackRequest) -> StackResponse:
        """Carry out what its path allows."""
        try:
            ticket = self._relay.open(self._store, request.method, request.path)
            answer = self._relay.carry_out(self._store, ticket, request.body)
        except RelayRefusal as refusal:
            answer = refusal.answer
        except OsqueueError:
            return message(503, "Service Unavailable")
        return StackResponse(answer.status, TYPE, answer.body)
