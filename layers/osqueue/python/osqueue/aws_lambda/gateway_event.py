"""Requests of an API Gateway HTTP API, payload format 2.0."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

from ..contract.error_codes import Malformed, fault_of
from ..contract.functions import DEADLINE_MARGIN_S, GATEWAY_TIMEOUT_S
from ..server.app import ApiRequest, ApiResponse, failure
from ..server.reading import pairs_of
from ..server.request import Permit

# A longer body is sent as base64, which grows less than text whose quotes are escaped.
TEXT_BYTES_MAX = 1024 * 1024


def is_request(event: Any) -> bool:
    """Whether an event is the gateway's. What merely looks like one is a direct invocation that makes no sense."""
    context = event.get("requestContext") if isinstance(event, dict) else None
    request = context.get("http") if isinstance(context, dict) else None
    return isinstance(request, dict) and isinstance(request.get("method"), str)


def request_id(event: dict[str, Any]) -> str | None:
    """The gateway's name for the request."""
    found = event["requestContext"].get("requestId")
    return found if isinstance(found, str) else None


def request_of(
    event: dict[str, Any], deadline_s: float, now_ms: int, permit: Permit | None = None
) -> ApiRequest | ApiResponse:
    """The request an event stands for, or the answer to one that cannot be read."""
    try:
        body = _body_of(event)
    except ValueError:  # half a surrogate pair, or no base64
        return failure(fault_of(Malformed("the body is not UTF-8.")))
    try:
        query = pairs_of(event.get("rawQueryString") or "")
    except Malformed as error:
        return failure(fault_of(error))
    method = event["requestContext"]["http"]["method"]
    left = min(deadline_s, seconds_left(event, now_ms) - DEADLINE_MARGIN_S)
    return ApiRequest(method, _path_of(event), query, body, left, permit)


def answer_of(response: ApiResponse) -> dict[str, Any]:
    """What the invocation answers."""
    large = len(response.body) > TEXT_BYTES_MAX
    return {
        "statusCode": response.status,
        "headers": response.headers,
        "body": (base64.b64encode(response.body) if large else response.body).decode(),
        "isBase64Encoded": large,
    }


def _body_of(event: dict[str, Any]) -> bytes:
    text = event.get("body") or ""
    return base64.b64decode(text, validate=True) if event.get("isBase64Encoded") else text.encode()


def _path_of(event: dict[str, Any]) -> str:
    """The path as it was sent. The gateway has decoded ``rawPath``; the parameters tell what stood in it."""
    _, _, template = event.get("routeKey", "").partition(
        " "
    )  # a method and a path, as the table of operations has it
    parameters = event.get("pathParameters") or {}
    if not template or "+}" in template:  # of an API that is not ours, which takes any path
        path: str = event.get("rawPath", "/")
        return path
    return str(template).format(
        **{name: quote(value, safe="~", errors="replace") for name, value in parameters.items()}
    )


def seconds_left(event: dict[str, Any], now_ms: int) -> float:
    """How long the gateway still waits. A cold start is part of that, and not of the function's own time."""
    since = event["requestContext"].get("timeEpoch")
    age = (now_ms - since) / 1000 if isinstance(since, int) else 0.0
    return GATEWAY_TIMEOUT_S - age if 0 <= age < GATEWAY_TIMEOUT_S else GATEWAY_TIMEOUT_S
