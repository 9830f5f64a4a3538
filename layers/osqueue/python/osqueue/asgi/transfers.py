"""Large contents on their way through a server of one's own: presigned requests, which the relay carries out."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..clock import Machine
from ..contract.functions import CONTENT_BYTES_MAX
from ..errors import OsqueueError
from ..server.app import ApiResponse
from ..stores.base import Store
from ..stores.relay import Relay, RelayAnswer, RelayRefusal, RelayTicket

TYPE = "application/octet-stream"
AT_ONCE_MAX = 4  # of which each holds a content: others wait


class TransferEndpoint:
    """Answers whoever has a signed path. Its signature is all that it asks for: no token, no certificate."""

    def __init__(self, store: Store, machine: Machine) -> None:
        self._store = store
        self._relay = Relay(machine)
        self._room = asyncio.Semaphore(AT_ONCE_MAX)

    async def answer(self, path: str, scope: Scope, receive: Receive, send: Send) -> ApiResponse:
        """One request; gives what a log may have of the answer."""
        request = Request(scope, receive)
        try:
            ticket = await asyncio.to_thread(self._relay.open, self._store, request.method, path)
            async with self._room:
                body = await _body_of(request, ticket) if ticket.method == "PUT" else b""
                answer = await asyncio.to_thread(self._relay.carry_out, self._store, ticket, body)
        except RelayRefusal as refusal:
            answer = refusal.answer
        except OsqueueError:
            answer = RelayAnswer(503, b"the store did not answer. Repeat the request.\n")
        except ClientDisconnect:
            answer = RelayAnswer(400)
        await Response(answer.body, answer.status, media_type=TYPE)(scope, receive, send)
        return ApiResponse(answer.status, notes={"operation": "transfer"})


async def _body_of(request: Request, ticket: RelayTicket) -> bytes:
    """No more than one byte too many is kept. Raises ClientDisconnect."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > min(ticket.length, CONTENT_BYTES_MAX):
            break
    return bytes(body)
