"""The HTTP API, as API Gateway serves it: requests become events of payload format 2.0, and answers come back.

What the gateway does and its documentation does not say: ``rawPath`` is percent-decoded, and ends at a decoded ``?``.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from ..clock import MACHINE
from ..contract.functions import GATEWAY_TIMEOUT_S
from ..contract.operations import ROUTES
from ..contract.route import Route, pattern
from .invocation import EVENT_BYTES_MAX, Invocation, new_id
from .pool import NoInstance, Pool

REQUEST_BYTES_MAX = 10 * 1024 * 1024  # what the gateway takes; the function behind it takes less
ACCOUNT = "000000000000"
API = "local"

Headers = tuple[tuple[str, str], ...]


class StackRequest(Struct, frozen=True):
    """A request of HTTP."""

    method: str
    target: str  # path and query as they were sent
    headers: Headers = ()
    body: bytes = b""
    source: str = "127.0.0.1"  # the caller's address
    protocol: str = "HTTP/1.1"

    @property
    def path(self) -> str:
        """The path as it was sent."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """The query as it was sent."""
        return self.target.partition("?")[2]

    def header(self, name: str) -> str:
        """One header; empty when it was not sent."""
        return next((value for key, value in self.headers if key.lower() == name), "")


class StackResponse(Struct, frozen=True):
    """An answer of HTTP."""

    status: int
    headers: Headers = ()
    body: bytes = b""


def message(status: int, text: str) -> StackResponse:
    """An answer of the gateway's own."""
    return StackResponse(
        status, (("Content-Type", "application/json"),), json.dumps({"message": text}).encode()
    )


class Gateway:
    """Answers requests by way of the functions' pools."""

    def __init__(self, pools: Mapping[str, Pool], host: str, timeout_s: float = GATEWAY_TIMEOUT_S) -> None:
        self._pools = pools
        self._host = host
        self._timeout_s = timeout_s
        self._routes = [(route, pattern(route)) for route in ROUTES]

    def answer(self, request: StackRequest) -> StackResponse:
        """The answer to a request: the function's, or the gateway's own where there is none."""
        found = self._route(request)
        if found is None:
            return message(404, "Not Found")
        route, parameters = found
        event = event_of(request, route, parameters, self._host)
        encoded = json.dumps(event, ensure_ascii=False).encode()
        if len(encoded) > EVENT_BYTES_MAX:
            return message(413, "Request Entity Too Large")
        invocation = Invocation(encoded)
        until = MACHINE.monotonic() + self._timeout_s
        pool = self._pools[route.function]
        try:
            pool.invoke(invocation, min(pool.patience_s, self._timeout_s))
            outcome = invocation.wait(max(until - MACHINE.monotonic(), 0))
        except (NoInstance, TimeoutError):  # a function that goes on after that has nobody to answer
            return message(503, "Service Unavailable")
        if outcome.failed:
            return message(500, "Internal Server Error")
        try:
            answer = answer_of(outcome.payload)
        except (ValueError, TypeError, AttributeError):  # it is not of the form
            return message(500, "Internal Server Error")
        request_id = ("Apigw-Requestid", event["requestContext"]["requestId"])
        return StackResponse(answer.status, (*answer.headers, request_id), answer.body)

    def _route(self, request: StackRequest) -> tuple[Route, dict[str, str]] | None:
        for route, form in self._routes:
            if route.method == request.method and (found := form.fullmatch(request.path)):
                return route, {name: unquote(value) for name, value in found.groupdict().items()}
        return None


# ── Requests ─────────────────────────────────────────────────────────────────
_TEXT = re.compile(r"text/.*|application/(.*\+)?(json|xml|javascript)", re.IGNORECASE)
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect"}


def event_of(request: StackRequest, route: Route, parameters: Mapping[str, str], host: str) -> dict[str, Any]:
    """The event that a function gets for a request."""
    headers = _joined((name.lower(), value) for name, value in request.headers)
    cookies = headers.pop("cookie", "")
    headers = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}
    headers.setdefault("host", host)
    headers["content-length"] = str(len(request.body))
    headers["x-amzn-trace-id"] = f"Root=1-{MACHINE.now_ms() // 1000:08x}-{MACHINE.bits(96):024x}"
    headers["x-forwarded-for"] = request.source
    headers["x-forwarded-port"] = host.rpartition(":")[2]
    headers["x-forwarded-proto"] = "http"
    path = unquote(request.path, errors="replace").partition("?")[0]
    now_ms = MACHINE.now_ms()
    route_key = f"{route.method} {route.path}"
    text = _as_text(request.body, headers.get("content-type", ""))
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": path,
        "rawQueryString": request.query,
        "cookies": [each.strip() for each in cookies.split(";") if each.strip()],
        "headers": headers,
        "queryStringParameters": _joined(parse_qsl(request.query, keep_blank_values=True)),
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": API,
            "domainName": host,
            "domainPrefix": API,
            "http": {
                "method": request.method,
                "path": path,
                "protocol": request.protocol,
                "sourceIp": request.source,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": new_id(),
            "routeKey": route_key,
            "stage": "$default",
            "time": datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": now_ms,
        },
        "pathParameters": dict(parameters),
        "body": base64.b64encode(request.body).decode() if text is None else text,
        "isBase64Encoded": text is None,
    }
    optional = ("cookies", "queryStringParameters", "pathParameters", "body")
    return {name: value for name, value in event.items() if value or name not in optional}


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Each name once; several values with commas between them."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _as_text(body: bytes, content_type: str) -> str | None:
    """The body as text, or None: it travels as base64."""
    if body and not _TEXT.fullmatch(content_type.partition(";")[0].strip()):
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


# ── Answers ──────────────────────────────────────────────────────────────────
_LENGTHS = {"content-length", "connection", "transfer-encoding"}  # the server's own


def answer_of(payload: bytes) -> StackResponse:
    """The answer of HTTP that a function's answer means; raises ValueError and its like when it means none."""
    value = json.loads(payload)
    if not (isinstance(value, dict) and "statusCode" in value):
        body = value if isinstance(value, str) else json.dumps(value)
        return StackResponse(200, (("Content-Type", "application/json"),), body.encode())
    status = int(value["statusCode"])
    if not 200 <= status <= 599:
        raise ValueError(f"no status of HTTP: {status}")
    text = value.get("body") or ""
    if value.get("isBase64Encoded"):
        try:
            body_bytes = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError("the body is not base64") from error
    else:
        body_bytes = text.encode()
    headers = {str(name).lower(): _value(one) for name, one in (value.get("headers") or {}).items()}
    headers.setdefault("content-type", "text/plain;charset=utf-8")
    pairs = [pair for pair in headers.items() if pair[0] not in _LENGTHS]
    pairs += [("set-cookie", _value(cookie)) for cookie in value.get("cookies") or ()]
    return StackResponse(status, tuple(pairs), body_bytes)


def _value(value: object) -> str:
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    if "\r" in text or "\n" in text:
        raise ValueError("a header has a line break in it")
    return text
