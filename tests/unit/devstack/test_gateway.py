"""Requests become the events of API Gateway's payload format 2.0, and what functions answer becomes HTTP."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from osqueue.contract.operations import BY_NAME
from osqueue.devstack.gateway import StackRequest, StackResponse, answer_of, event_of

HOST = "127.0.0.1:8787"

# The sample of API Gateway's documentation (payload format 2.0), for a request to one of our routes, without what
# belongs to authorizers and stages.
DOCUMENTED = {
    "version": "2.0",
    "routeKey": "POST /v1/queues/{queue}/jobs",
    "rawPath": "/v1/queues/emails/jobs",
    "rawQueryString": "parameter1=value1&parameter1=value2&parameter2=value",
    "cookies": ["cookie1=1", "cookie2=2"],
    "headers": {
        "header1": "value1",
        "header2": "value1,value2",
        "content-type": "application/json",
        "content-length": "18",
        "host": HOST,
        "user-agent": "agent",
        "x-amzn-trace-id": "Root=1-…",
        "x-forwarded-for": "192.168.0.1",
        "x-forwarded-port": "8787",
        "x-forwarded-proto": "http",
    },
    "queryStringParameters": {"parameter1": "value1,value2", "parameter2": "value"},
    "requestContext": {
        "accountId": "000000000000",
        "apiId": "local",
        "domainName": HOST,
        "domainPrefix": "local",
        "http": {
            "method": "POST",
            "path": "/v1/queues/emails/jobs",
            "protocol": "HTTP/1.1",
            "sourceIp": "192.168.0.1",
            "userAgent": "agent",
        },
        "requestId": "…",
        "routeKey": "POST /v1/queues/{queue}/jobs",
        "stage": "$default",
        "time": "…",
        "timeEpoch": 0,
    },
    "body": '{"payload": "hej"}',
    "pathParameters": {"queue": "emails"},
    "isBase64Encoded": False,
}


def event(
    target: str = "/v1/queues/emails/jobs", body: bytes = b"", *headers: tuple[str, str]
) -> dict[str, Any]:
    request = StackRequest("POST", target, headers, body, "192.168.0.1")
    return event_of(request, BY_NAME["enqueue"], {"queue": "emails"}, HOST)


def test_an_event_is_what_the_documentation_shows() -> None:
    found = event(
        f"/v1/queues/emails/jobs?{DOCUMENTED['rawQueryString']}",
        b'{"payload": "hej"}',
        ("Header1", "value1"),
        ("Header2", "value1"),
        ("Header2", "value2"),
        ("Host", HOST),
        ("User-Agent", "agent"),
        ("Cookie", "cookie1=1; cookie2=2"),
        ("Connection", "keep-alive"),
        ("Content-Type", "application/json"),
    )
    context = found["requestContext"]
    assert re.fullmatch(r"[0-9a-f-]{36}", context["requestId"])
    assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000", context["time"])
    assert context["timeEpoch"] > 1_700_000_000_000
    assert re.fullmatch(r"Root=1-[0-9a-f]{8}-[0-9a-f]{24}", found["headers"]["x-amzn-trace-id"])
    context |= {"requestId": "…", "time": "…", "timeEpoch": 0}
    found["headers"]["x-amzn-trace-id"] = "Root=1-…"
    assert found == DOCUMENTED


def test_what_a_request_does_not_have_is_absent_from_its_event() -> None:
    found = event()
    assert {"body", "cookies", "queryStringParameters"}.isdisjoint(found)
    assert (found["rawQueryString"], found["isBase64Encoded"]) == ("", False)


def test_a_path_is_decoded_and_a_query_is_decoded_only_where_it_is_taken_apart() -> None:
    found = event("/v1/queues/emails/jobs/a%20%C3%A4?q=a%26b&empty=")
    assert found["rawPath"] == found["requestContext"]["http"]["path"] == "/v1/queues/emails/jobs/a ä"
    assert found["rawQueryString"] == "q=a%26b&empty="
    assert found["queryStringParameters"] == {"q": "a&b", "empty": ""}
    assert event("/v1/queues/emails/jobs/a%3Fb")["rawPath"] == "/v1/queues/emails/jobs/a"


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        (b"{}", "application/json", True),
        (b"{}", "application/json; charset=utf-8", True),
        (b"{}", "application/problem+json", True),
        (b"hej", "text/plain", True),
        (b"hej", "application/octet-stream", False),
        (b"hej", "", False),
        (b"\xff\xfe", "application/json", False),
    ],
)
def test_bodies_that_are_no_text_travel_as_base64(body: bytes, content_type: str, text: bool) -> None:
    found = event("/v1/queues/emails/jobs", body, ("Content-Type", content_type))
    assert found["isBase64Encoded"] is not text
    assert (found["body"].encode() if text else base64.b64decode(found["body"])) == body


JSON = ("content-type", "application/json")
PLAIN = ("content-type", "text/plain;charset=utf-8")


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (
            {"statusCode": 201, "body": "{}", "headers": {"Content-Type": "application/json"}},
            StackResponse(201, (JSON,), b"{}"),
        ),
        ({"statusCode": 200}, StackResponse(200, (PLAIN,))),
        ({"statusCode": "404", "body": "ä"}, StackResponse(404, (PLAIN,), "ä".encode())),
        ({"statusCode": 200, "body": "AAE=", "isBase64Encoded": True}, StackResponse(200, (PLAIN,), b"\0\1")),
        (
            {"statusCode": 200, "cookies": ["a=1", "b=2"], "headers": {"X-N": 5, "Content-Length": 99}},
            StackResponse(200, (("x-n", "5"), PLAIN, ("set-cookie", "a=1"), ("set-cookie", "b=2"))),
        ),
        ({"jobs": []}, StackResponse(200, (("Content-Type", "application/json"),), b'{"jobs": []}')),
        ("hej", StackResponse(200, (("Content-Type", "application/json"),), b"hej")),
    ],
)
def test_an_answer_becomes_http(value: object, answer: StackResponse) -> None:
    assert answer_of(json.dumps(value).encode()) == answer


@pytest.mark.parametrize(
    "value",
    [
        {"statusCode": "soon"},
        {"statusCode": None},
        {"statusCode": 42},
        {"statusCode": 200, "body": {"not": "text"}},
        {"statusCode": 200, "body": "no base64", "isBase64Encoded": True},
        {"statusCode": 200, "headers": ["x"]},
        {"statusCode": 200, "headers": {"X": "a\r\nSet-Cookie: b"}},
    ],
)
def test_an_answer_that_is_not_of_the_form_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        answer_of(json.dumps(value).encode())
