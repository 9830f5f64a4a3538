"""Direct invocations: ``{"method", "path", "query"?, "body"?}`` in, ``{"status", "body"?}`` out."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from ..contract.schemas import Fault
from ..limits import ITEMS_PER_REQUEST_MAX
from ..model.keys import job_id, keys_of_request
from ..server.app import ApiRequest, ApiResponse, failure

DIGITS_MAX = 20  # of whole numbers that are read

TRACED_S_MAX = 6 * 3_600  # for so long Lambda keeps an event that it has not delivered

_FORM = '{"method": "POST", "path": "/v1/queues/emails/jobs", "query": {"wait": "5"}, "body": {...}}'


def with_job_ids(event: Any, request_id: str, trace: str, now_ms: int) -> Any:
    """The event of an enqueue whose jobs all have their keys: those that its caller drew none for, of the invocation.

    An asynchronous invocation is delivered again when the function failed, and now and then when it did not, with the
    same id and in the same trace. The trace tells when it began: keys begin with a time. Without one, which only
    another runtime than Lambda's has, the server draws the keys.
    """
    body = event.get("body") if isinstance(event, dict) else None
    began = re.search("Root=1-([0-9a-f]{8})-", trace)
    if not isinstance(body, dict) or began is None:
        return event
    at_ms = int(began[1], 16) * 1000
    if abs(now_ms - at_ms) > TRACED_S_MAX * 1000:  # of a caller that has been at it for long
        return event
    jobs = body.get("jobs", [body])
    if not isinstance(jobs, list) or len(jobs) > ITEMS_PER_REQUEST_MAX:
        return event  # to be refused
    keyed = [
        {"job_id": job_id(key), **job} if isinstance(job, dict) else job
        for key, job in zip(keys_of_request(request_id, at_ms, len(jobs)), jobs, strict=True)
    ]
    return {**event, "body": {**body, "jobs": keyed} if "jobs" in body else keyed[0]}


def request_of(event: Any, deadline_s: float) -> ApiRequest | ApiResponse:
    """The request an event stands for, or the answer to one that stands for none."""
    if not isinstance(event, dict):
        return _malformed("the event is no object.")
    unknown = sorted(str(name) for name in event.keys() - {"method", "path", "query", "body"})
    if unknown:
        return _malformed(f"the event has an unknown field, {unknown[0][:80]!r}.")
    method, path, query = event.get("method"), event.get("path"), event.get("query")
    if not isinstance(method, str) or not isinstance(path, str):
        return _malformed("the event names no method and path.")
    pairs: list[tuple[str, str]] = []
    for name, value in query.items() if isinstance(query, dict) else ():
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in values):
            return _malformed(f"query: {name[:80]!r} is neither a string nor a list of strings.")
        pairs += [(name, each) for each in values]
    if query is not None and not isinstance(query, dict):
        return _malformed("query: it is no object.")
    try:
        body = _encoded(event["body"]) if "body" in event else b""
        path.encode(), str(pairs).encode()
    except (ValueError, RecursionError):  # half a surrogate pair, a number that is none, too deep
        return _malformed("the event holds what JSON cannot, or is nested too deeply.")
    return ApiRequest(method, path, tuple(pairs), body, deadline_s)


def _encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _malformed(what: str) -> ApiResponse:
    return failure(Fault(code="malformed", message=f"{what} Send {_FORM}."))


def answer_of(response: ApiResponse) -> dict[str, Any]:
    """What the invocation answers."""
    if not response.body:
        return {"status": response.status}
    return {
        "status": response.status,
        "body": json.loads(response.body, parse_float=_number, parse_int=_whole),
    }


class _Verbatim(Decimal):
    """A number as it is written: the runtime's encoder puts the text of a decimal into the answer."""

    text = ""

    def __str__(self) -> str:
        return self.text


def _verbatim(text: str) -> _Verbatim:
    number = _Verbatim()
    number.text = text
    return number


def _number(text: str) -> float | Decimal:
    """What would be written in another way, or longer, or is too large for a float, stays as it is."""
    number = float(text)
    return number if repr(number) == text else _verbatim(text)


def _whole(text: str) -> int | Decimal:
    """Python neither reads nor writes thousands of digits."""
    return int(text) if len(text) <= DIGITS_MAX else _verbatim(text)
