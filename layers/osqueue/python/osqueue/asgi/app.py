"""The API as an ASGI application.

One request: who calls (``tokens``), its body up to the size the API takes, the answer of ``AsyncApi``, a line in the
log. A caller who hangs up is not worked for any more: what a claim was granted is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from ..contract.error_codes import Malformed, TooLarge, fault_of
from ..contract.functions import BODY_BYTES_MAX
from ..contract.operations import BY_NAME
from ..contract.roles import OPEN
from ..errors import OsqueueError
from ..server.app import ApiRequest, ApiResponse, failure
from ..server.async_app import AsyncApi
from ..server.reading import Pairs, pairs_of
from .log import AccessLog
from .metrics import ServerMetrics
from .origin import check_origin, header
from .readiness import Readiness
from .tokens import Identity, TokenFile

WATCH_SECONDS = 0.2  # after which a request is one whose caller may hang up
ANYBODY = Identity()
OPEN_PATHS = {BY_NAME[name].path for name in OPEN}


class ApiEndpoint:
    """What answers requests of the API."""

    def __init__(
        self, api: AsyncApi, tokens: TokenFile | None, log: AccessLog, local_only: bool = False
    ) -> None:
        self.api = api
        self.tokens = tokens
        self.log = log
        self.local_only = local_only  # is it for this machine alone?
        self.metrics = ServerMetrics(api)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        with self.metrics.open_request():
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self.api.machine.monotonic()
        caller = ANYBODY
        try:
            check_origin(scope, self.local_only)
            if scope["path"] not in OPEN_PATHS:
                caller = self.caller(scope)  # before the body is read
            body = await _body_of(scope, receive)
            path = scope["raw_path"].decode("latin-1")
            request = ApiRequest(scope["method"], path, _query_of(scope), body, permit=caller.permit)
            response = await _while_there(self.api, request, receive)
        except OsqueueError as error:
            response = failure(fault_of(error))
        except HungUp:
            self.log.hung_up(scope, caller, self.api.machine.monotonic() - began)
            return
        await _send(send, response)
        seconds = self.api.machine.monotonic() - began
        self.log.request(scope, caller, response, seconds)
        self.metrics.request(response, seconds)

    def caller(self, scope: Scope) -> Identity:
        """Who sent a request. Raises Unauthorized."""
        return ANYBODY if self.tokens is None else self.tokens.caller(header(scope, b"authorization"))

    async def tell_metrics(self, request: Request) -> Response:
        """Answer Prometheus, who may look at all queues."""
        try:
            check_origin(request.scope, self.local_only)
            self.caller(request.scope).permit(BY_NAME["list_queues"], "")
        except OsqueueError as error:
            refused = failure(fault_of(error))
            return Response(refused.body, refused.status, refused.headers)
        return Response(await self.metrics.text(), media_type=CONTENT_TYPE_LATEST)


class HungUp(Exception):
    """The caller is not there any more."""


async def _while_there(api: AsyncApi, request: ApiRequest, receive: Receive) -> ApiResponse:
    """The answer. Raises HungUp where the caller does not wait for it."""
    task = asyncio.current_task()
    assert task is not None
    watcher: asyncio.Task[None] | None = None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    def begin() -> None:
        nonlocal watcher
        watcher = asyncio.create_task(watch())

    timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, begin)  # most answers are there sooner
    try:
        return await api.answer(request)
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise HungUp from None
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()


def _query_of(scope: Scope) -> Pairs:
    text: bytes = scope["query_string"]
    return pairs_of(text.decode("latin-1")) if text else ()


async def _body_of(scope: Scope, receive: Receive) -> bytes:
    """The body. Raises TooLarge before it is read to its end, HungUp."""
    length = header(scope, b"content-length")
    if length and (not length.isdigit() or int(length) > BODY_BYTES_MAX):
        raise _too_large() if length.isdigit() else Malformed("content-length is no number.")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUp
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise _too_large()
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large() -> TooLarge:
    return TooLarge(f"the body has more than {BODY_BYTES_MAX:,} bytes, which is what the API takes.")


async def _send(send: Send, response: ApiResponse) -> None:
    headers = [(name.encode(), value.encode()) for name, value in response.headers.items()]
    headers.append((b"content-length", str(len(response.body)).encode()))
    if response.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


class ServerApp:
    """The application, and what its process does beside it."""

    def __init__(
        self, api: AsyncApi, tokens: TokenFile | None, log: AccessLog, local_only: bool = False
    ) -> None:
        self.api = api
        self.readiness = Readiness(api.store, api.machine)
        endpoint = ApiEndpoint(api, tokens, log, local_only)
        self.asgi = Starlette(
            routes=[
                Route("/readyz", self._ready),
                Route("/metrics", endpoint.tell_metrics),
                Mount("/", app=endpoint),
            ],
            lifespan=self._lifespan,
        )

    def drain(self) -> None:
        """The process is to end: it is not ready any more, and nobody waits."""
        self.readiness.draining = True
        self.api.end_waits()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await self.api.close()

    async def _ready(self, request: Request) -> Response:
        status, told = await self.readiness.look()
        return Response(msgspec.json.encode(told), status, media_type="application/json")
