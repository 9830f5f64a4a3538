"""Lambda's Invoke API, for direct invocations: what boto3's Lambda client calls."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from urllib.parse import unquote

from ..contract.functions import deployed_name
from .gateway import StackRequest, StackResponse
from .invocation import EVENT_BYTES_MAX, Invocation
from .pool import NoInstance, Pool

PREFIX = "/2015-03-31/functions/"
ASYNC_EVENT_BYTES_MAX = 1024 * 1024
_PATH = re.compile(PREFIX + r"([^/]+)/invocations")
_NAME = re.compile(
    r"(?:arn:[^:]+:lambda:[^:]*:[^:]*:function:|[0-9]{12}:(?:function:)?)?([\w-]+)(?::\$LATEST)?"
)


class InvokeApi:
    """Answers Invoke by way of the functions' pools."""

    def __init__(self, pools: Mapping[str, Pool], prefix: str) -> None:
        self._pools = {deployed_name(prefix, name): pool for name, pool in pools.items()}

    def answer(self, request: StackRequest) -> StackResponse:
        """The answer to a request."""
        path = _PATH.fullmatch(request.path)
        if path is None or request.method != "POST":
            return _error(404, "ResourceNotFoundException", "the local stack knows only Invoke")
        called = unquote(path[1])
        name = _NAME.fullmatch(called)
        pool = self._pools.get(name[1]) if name else None
        if pool is None:
            known = ", ".join(self._pools)
            return _error(
                404, "ResourceNotFoundException", f"Function not found: {called}. There are {known}."
            )
        kind = request.header("x-amz-invocation-type") or "RequestResponse"
        if kind == "DryRun":
            return StackResponse(204)
        if kind not in ("RequestResponse", "Event"):
            return _error(400, "InvalidParameterValueException", f"no invocation type: {kind}")
        limit = EVENT_BYTES_MAX if kind == "RequestResponse" else ASYNC_EVENT_BYTES_MAX
        if len(request.body) > limit:
            text = f"Request must be smaller than {limit} bytes for the InvokeFunction operation"
            return _error(413, "RequestTooLargeException", text)
        try:
            json.loads(request.body or b"{}")
            context = base64.b64decode(request.header("x-amz-client-context"), validate=True).decode()
        except (ValueError, RecursionError, binascii.Error) as error:
            text = f"Could not parse request body into json: {error}"
            return _error(400, "InvalidRequestContentException", text)
        invocation = Invocation(request.body or b"{}", " ".join(context.splitlines()))
        if kind == "Event":
            pool.submit(invocation)
            return StackResponse(202, (("x-amzn-RequestId", invocation.request_id),))
        return _run(pool, invocation)


def _run(pool: Pool, invocation: Invocation) -> StackResponse:
    try:
        pool.invoke(invocation)
    except NoInstance:
        return _error(
            429,
            "TooManyRequestsException",
            "Rate Exceeded.",
            Reason="ReservedFunctionConcurrentInvocationLimitExceeded",
        )
    outcome = invocation.wait()  # its timeout ends it
    headers = [
        ("Content-Type", "application/json"),
        ("x-amzn-RequestId", invocation.request_id),
        ("X-Amz-Executed-Version", "$LATEST"),
    ]
    if outcome.failed:
        headers.append(("X-Amz-Function-Error", "Unhandled"))
    return StackResponse(200, tuple(headers), outcome.payload)


def _error(status: int, kind: str, text: str, **more: str) -> StackResponse:
    body = json.dumps({"Type": "User", "message": text, "Message": text, **more}).encode()
    return StackResponse(status, (("Content-Type", "application/json"), ("x-amzn-ErrorType", kind)), body)
