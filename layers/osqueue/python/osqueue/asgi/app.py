"""The API as an ASGI application.

One request: who calls (``tokens``), its body up to the size the API takes, the answer of ``AsyncApi``, a line in the
log. A caller who hangs up is not worked for any more: what a claim was granted is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Protocol

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..contract.error_codes import Malformed, RequestTimeout, TooLarge, fault_of
from ..contract.functions import BODY_BYTES_MAX
from ..contract.operations import BY_NAME
from ..errors import OsqueueError
from ..server.app import ApiRequest, ApiResponse, failure
from ..server.async_app import AsyncApi
from ..server.reading import Pairs, pairs_of
from ..stores.relay import PATH
from .admission import Admission
from .dashboard import Dashboard
from .log import log_hung_up, log_request
from .metrics import ServerMetrics
from .neighbours import Neighbours
from .origin import header
from .overview import Answers
from .readiness import Readiness
from .transfers import TransferEndpoint

BODY_SECONDS = 60.0  # in which the body of a request has to come
WATCH_SECONDS = 0.2  # after which a request is one whose caller may hang up
Answer = Callable[[ApiRequest], Awaitable[ApiResponse]]


class ServedApi(Answers, Protocol):
    """An API that is served: ``AsyncApi``, or one elsewhere (``ApiProxy``)."""

    def end_waits(self) -> None: ...

    async def close(self) -> None: ...


class ApiEndpoint:
    """What answers requests of the API: ``answer`` does, or else the API itself."""

    def __init__(
        self,
        api: ServedApi,
        admission: Admission,
        answer: Answer | None = None,
        readiness: Readiness | None = None,
    ) -> None:
        self.api = api
        self.readiness = readiness
        self.admission = admission
        self.answer = answer or api.answer
        # An API elsewhere has its own.
        self.metrics = ServerMetrics(api) if isinstance(api, AsyncApi) else None
        self.transfers = TransferEndpoint(api.store, api.machine) if isinstance(api, AsyncApi) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        with nullcontext() if self.metrics is None else self.metrics.open_request():
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self.api.machine.monotonic()
        caller = self.admission.anybody
        path = scope["raw_path"].decode("latin-1")
        if self.transfers is not None and path.startswith(PATH):
            told = await self.transfers.answer(path, scope, receive, send)
            # Whoever has the path may do what it says, so no log has it.
            log_request({**scope, "path": PATH}, caller, told, self.api.machine.monotonic() - began)
            return
        try:
            caller = self.admission.caller(scope)  # before the body is read
            body = await _body_of(scope, receive)
            request = ApiRequest(scope["method"], path, _query_of(scope), body, permit=caller.permit)
            response = await _while_there(self.answer, request, receive)
        except OsqueueError as error:
            response = failure(fault_of(error))
        except HungUp:
            log_hung_up(scope, caller, self.api.machine.monotonic() - began)
            return
        if self.readiness is not None:
            self.readiness.note(path, response)
        await _send(send, response)
        seconds = self.api.machine.monotonic() - began
        log_request(scope, caller, response, seconds)
        if self.metrics is not None:
            self.metrics.request(response, seconds)

    async def tell_metrics(self, request: Request) -> Response:
        """Answer Prometheus, who may look at all queues."""
        assert self.metrics is not None
        try:
            self.admission.caller(request.scope).permit(BY_NAME["list_queues"], "")
        except OsqueueError as error:
            refused = failure(fault_of(error))
            return Response(refused.body, refused.status, refused.headers)
        return Response(await self.metrics.text(), media_type=CONTENT_TYPE_LATEST)


class HungUp(Exception):
    """The caller is not there any more."""


async def _while_there(answer: Answer, request: ApiRequest, receive: Receive) -> ApiResponse:
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
        return await answer(request)
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
    """The body. Raises TooLarge before it is read to its end, RequestTimeout, HungUp."""
    length = header(scope, b"content-length")
    if length and (not length.isdigit() or int(length) > BODY_BYTES_MAX):
        raise _too_large() if length.isdigit() else Malformed("content-length is no number.")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _received(receive)
    except TimeoutError:
        raise RequestTimeout(
            f"the body of the request was not here after {BODY_SECONDS:g} s. Nothing was done."
        ) from None


async def _received(receive: Receive) -> bytes:
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
    if response.status == 408:
        headers.append((b"connection", b"close"))  # its body may still come
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


class ServerApp:
    """The application, and what its process does beside it."""

    def __init__(
        self,
        api: ServedApi,
        admission: Admission,
        dashboard: Dashboard | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        self.api = api
        self.admission = admission
        self.dashboard = dashboard
        self.neighbours = neighbours
        self.readiness = Readiness(api.store, api.machine) if isinstance(api, AsyncApi) else None
        answer = None if neighbours is None else neighbours.answer
        endpoint = ApiEndpoint(api, admission, answer, self.readiness)
        routes = [Route("/readyz", self._ready)]
        if endpoint.metrics is not None:
            routes.append(Route("/metrics", endpoint.tell_metrics))
        if dashboard is not None:
            routes += dashboard.routes()
        self.asgi = Starlette(routes=routes, lifespan=self._lifespan)
        self.asgi.router.redirect_slashes = False
        self.asgi.router.default = endpoint  # for a Mount a path ends where its line does

    def drain(self) -> None:
        """The process is to end: it is not ready any more, and nobody waits."""
        if self.readiness is not None:
            self.readiness.draining = True
        if self.dashboard is not None:
            self.dashboard.overview.close()
        self.api.end_waits()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        if self.neighbours is not None:
            await self.neighbours.start()
        yield
        if self.neighbours is not None:
            await self.neighbours.close()
        await self.api.close()

    async def _ready(self, request: Request) -> Response:
        content: dict[str, str] = {"status": "ok"}
        status = 200
        if self.readiness is not None:
            detailed = self.admission.may_read_errors(request.scope)
            status, content = await self.readiness.look(detailed)
        return Response(msgspec.json.encode(content), status, media_type="application/json")
