"""What CloudFormation asks of the function that configures queues: a consumer, attached as a resource of a stack.

The construct library's ``add_consumer`` declares such a resource, and names this function as its provider. So a
deployment fails where the queue refuses, with the words of the refusal, and a stack that goes takes its consumer along.
CloudFormation invokes without waiting for an answer: it is sent to an address that the event brings.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
from msgspec import Struct

from ..errors import Rejected, Unavailable
from ..server.app import ApiRequest, ApiResponse

ADDRESS = "ResponseURL"
HOSTS = (".amazonaws.com", ".amazonaws.com.cn")  # an answer goes nowhere else
SECONDS = 5.0  # for which the other side may be silent
MARGIN_SECONDS = 1.0  # for everything else about an answer
REASON_CHARS_MAX = 1_000  # CloudFormation takes an answer of 4 KB
ERRORS = 400
FAULTS = 500
TOO_MANY = 429

Ask = Callable[[ApiRequest], ApiResponse]
Send = Callable[[SplitResult, bytes], int]  # an answer to its address; the status of the other side
Connect = Callable[..., http.client.HTTPConnection]


class ConsumerResource(Struct, frozen=True, rename="pascal"):
    """The properties of the resource. CloudFormation makes text of every number, so settings come as JSON."""

    queue: str
    consumer: str
    settings: str


class StackEvent(Struct, frozen=True, rename="pascal"):
    """What CloudFormation sends."""

    request_type: Literal["Create", "Update", "Delete"]
    stack_id: str
    request_id: str
    logical_resource_id: str
    resource_properties: dict[str, Any]
    response_url: str = msgspec.field(name=ADDRESS)
    physical_resource_id: str = "none"


class _Target(Struct):
    target: str


def serve(event: Any, ask: Ask, left_s: float, send: Send | None = None) -> str:
    """Attach or detach a consumer and tell CloudFormation; answers what it is told: SUCCESS or FAILED.

    Raises Rejected for an event that cannot be answered, and Unavailable where nobody takes the answer: Lambda repeats
    the event then.
    """
    try:
        told = msgspec.convert(event, StackEvent)
    except msgspec.ValidationError as error:
        raise Rejected(f"event: it is none of CloudFormation's ({error})", field="event") from None
    place = _checked(told.response_url)
    name, deletes = told.physical_resource_id, told.request_type == "Delete"
    try:
        wished = msgspec.convert(told.resource_properties, ConsumerResource)
        # Another queue or name is another resource: CloudFormation deletes the old one afterwards.
        name = f"{wished.queue}/{wished.consumer}"
        left_s -= SECONDS + MARGIN_SECONDS  # which the answer needs
        problem = _detach(wished, ask, left_s / 2) if deletes else _attach(wished, ask, left_s)
    except msgspec.DecodeError as error:
        # What cannot be read was never attached, so there is nothing to take away.
        problem = "" if deletes else f"the resource's properties: {error}"
    status = "FAILED" if problem else "SUCCESS"
    answer = {
        "Status": status,
        "Reason": problem[:REASON_CHARS_MAX],
        "PhysicalResourceId": name,
        "StackId": told.stack_id,
        "RequestId": told.request_id,
        "LogicalResourceId": told.logical_resource_id,
    }
    taken = (send or put)(place, msgspec.json.encode(answer))
    if taken >= ERRORS:
        raise Unavailable(f"CloudFormation does not take the answer ({taken})")
    return status


def _attach(wished: ConsumerResource, ask: Ask, left_s: float) -> str:
    _target_of(wished)
    return _problem(ask(_request(wished, "PATCH", left_s, msgspec.Raw(wished.settings.encode()))))


def _detach(wished: ConsumerResource, ask: Ask, left_s: float) -> str:
    """Take it away, unless somebody has attached another function under the same name since.

    Each of two requests is given ``left_s`` seconds.
    """
    found = ask(_request(wished, "GET", left_s))
    if ERRORS <= found.status < FAULTS and found.status != TOO_MANY:
        return ""  # no such queue can be: nothing was attached to it
    if found.status >= ERRORS:
        return _problem(found)
    attached = msgspec.json.decode(found.body)["settings"]["consumers"].get(wished.consumer)
    if attached is None or attached["target"] != _target_of(wished):
        return ""
    return _problem(ask(_request(wished, "PATCH", left_s)))


def _target_of(wished: ConsumerResource) -> str:
    """What is invoked. Raises DecodeError where the settings do not say."""
    return msgspec.json.decode(wished.settings, type=_Target).target


def _request(
    wished: ConsumerResource, method: str, left_s: float, settings: msgspec.Raw | None = None
) -> ApiRequest:
    path = f"/v1/queues/{quote(wished.queue, safe='')}"
    body = msgspec.json.encode({"consumers": {wished.consumer: settings}}) if method == "PATCH" else b""
    return ApiRequest(method, path, (), body, left_s)


def _problem(answer: ApiResponse) -> str:
    """Why a request failed; "" if it did not."""
    if answer.status < ERRORS:
        return ""
    told: str = msgspec.json.decode(answer.body)["error"]["message"]
    return told


def _checked(address: str) -> SplitResult:
    place = urlsplit(address)
    if place.scheme != "https" or not (place.hostname or "").endswith(HOSTS):
        raise Rejected(f"event: {ADDRESS}: an answer goes to AWS, over https", field=ADDRESS)
    return place


def put(place: SplitResult, body: bytes, connect: Connect = http.client.HTTPSConnection) -> int:
    """Send an answer; the status of the other side. Raises Unavailable."""
    host = place.hostname or ""
    connection = connect(host, place.port, timeout=SECONDS)
    try:
        # The address is signed for a request that names no type of content.
        connection.request("PUT", f"{place.path}?{place.query}", body, {"content-type": ""})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{host} gave no answer ({type(error).__name__})") from None
    finally:
        connection.close()
