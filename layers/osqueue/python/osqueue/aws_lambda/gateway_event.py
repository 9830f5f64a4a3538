"""Requests of an API Gateway HTTP API, payload format 2.0."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler import Response as HttpResponse

from ..clock import Machine
from ..contract.error_codes import Malformed, fault_of
from ..contract.functions import DEADLINE_MARGIN_S, GATEWAY_TIMEOUT_S
from ..contract.operations import BY_NAME, Route
from ..server.app import ApiRequest, ApiResponse, failure
from ..server.reading import pairs_of

Answering = Callable[[ApiRequest], ApiResponse]

TEXT_BYTES_MAX = (
    1024 * 1024
)  # a longer body goes out as base64, which grows less than text with its quotes escaped
_BY_KEY = {f"{route.method} {route.path}": route for route in BY_NAME.values()}


class GatewayAdapter:
    """Answers the gateway's events by the routes of one function."""

    def __init__(self, routes: Iterable[Route], machine: Machine) -> None:
        self._machine = machine
        self._app = APIGatewayHttpResolver()
        self._large = b""  # the body of this invocation's answer, when it is
        for route in routes:
            path = route.path.replace("{", "<").replace("}", ">")
            self._app.route(path, method=route.method)(self._reply)
        self._app.not_found(self._reply)

    def answer(
        self, event: dict[str, Any], context: Any, deadline_s: float, answering: Answering
    ) -> dict[str, Any]:
        """What the invocation answers."""
        self._large = b""
        deadline_s = min(deadline_s, seconds_left(event, self._machine.now_ms()) - DEADLINE_MARGIN_S)
        self._app.append_context(deadline_s=deadline_s, answering=answering)  # type: ignore[no-untyped-call]
        answer = self._app.resolve(event, context)
        if self._large:
            return {**answer, "body": base64.b64encode(self._large).decode(), "isBase64Encoded": True}
        return answer

    def request_id(self, event: dict[str, Any]) -> str | None:
        """The gateway's name for the request."""
        found = event["requestContext"].get("requestId")
        return found if isinstance(found, str) else None

    def _reply(self, *_: Any, **parameters: Any) -> HttpResponse[Any]:
        """Whatever the path: the API itself says what there is, and in which words."""
        app = self._app
        try:
            request = request_of(app.current_event.raw_event, app.context["deadline_s"])
            response = app.context["answering"](request)
        except Malformed as error:
            response = failure(fault_of(error))
        self._large = response.body if len(response.body) > TEXT_BYTES_MAX else b""
        body = "" if self._large else response.body.decode()
        headers = dict(response.headers)
        return HttpResponse(response.status, headers.pop("content-type", None), body, headers=headers)


def request_of(event: dict[str, Any], deadline_s: float) -> ApiRequest:
    """The request an event stands for. Raises Malformed."""
    method = event["requestContext"]["http"]["method"]
    try:
        body = _body_of(event)
    except ValueError:  # half a surrogate pair, or no base64
        raise Malformed("the body is not UTF-8.") from None
    query = pairs_of(event.get("rawQueryString") or "")
    return ApiRequest(method, _path_of(event), query, body, deadline_s)


def _body_of(event: dict[str, Any]) -> bytes:
    text = event.get("body") or ""
    return base64.b64decode(text, validate=True) if event.get("isBase64Encoded") else text.encode()


def _path_of(event: dict[str, Any]) -> str:
    """The path as it was sent. The gateway has decoded ``rawPath``; the parameters tell what stood in it."""
    route = _BY_KEY.get(event.get("routeKey", ""))
    parameters = event.get("pathParameters") or {}
    if route is None:
        path: str = event.get("rawPath", "/")
        return path
    return route.path.format(
        **{name: quote(value, safe="~", errors="replace") for name, value in parameters.items()}
    )


def seconds_left(event: dict[str, Any], now_ms: int) -> float:
    """How long the gateway still waits. A cold start is part of that, and not of the function's own time."""
    since = event["requestContext"].get("timeEpoch")
    age = (now_ms - since) / 1000 if isinstance(since, int) else 0.0
    return GATEWAY_TIMEOUT_S - age if 0 <= age < GATEWAY_TIMEOUT_S else GATEWAY_TIMEOUT_S
