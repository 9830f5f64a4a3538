"""A consumer as a resource of a stack: what CloudFormation asks is done to the queue, and CloudFormation is told."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pytest

from osqueue import Queue, Rejected, Unavailable
from osqueue.aws_lambda.stack_event import put, serve
from osqueue.model.consumer import Consumer
from osqueue.server.app import Api
from osqueue.stores.memory import MemoryStore
from tests.support.aws_server import aws_stand_in
from tests.support.functions_at_work import Context, environment, load

ADDRESS = (
    "https://cloudformation-custom-resource-response-euwest1.s3.eu-west-1.amazonaws.com/a?X-Amz-Signature=1"
)
TARGET = "arn:aws:lambda:eu-west-1:123456789012:function:mailer"


class Stack:
    """CloudFormation, as far as one resource goes."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.api = Api(self.store)
        self.told: list[dict[str, Any]] = []
        self.status = 200  # that it answers with

    @property
    def queue(self) -> Queue[Any]:
        return Queue(self.store, "emails")

    def asks(self, kind: str, settings: Any = None, *, queue: str = "emails", **more: Any) -> dict[str, Any]:
        """What it is told of a request."""
        properties = {
            "ServiceToken": "arn:aws:lambda:eu-west-1:123456789012:function:osqueue-prod-queues",
            "Queue": queue,
            "Consumer": "mailer",
            "Settings": settings if isinstance(settings, str) else json.dumps(settings or {"target": TARGET}),
        }
        event = {
            "RequestType": kind,
            "ResponseURL": ADDRESS,
            "StackId": "arn:aws:cloudformation:stack/mail/1",
            "RequestId": "7",
            "ResourceType": "Custom::OsqueueConsumer",
            "LogicalResourceId": "Mailer",
            "ResourceProperties": properties,
            **more,
        }
        ended = serve(event, self.api.answer, 20, self._send)
        assert self.told[-1]["Status"] == ended
        return self.told[-1]

    def _send(self, place: SplitResult, body: bytes) -> int:
        assert place.geturl() == ADDRESS
        self.told.append(json.loads(body))
        return self.status

    def attached(self) -> Any:
        return self.queue.stats()["settings"]["consumers"]


def test_a_resource_that_is_made_attaches_its_consumer_and_one_that_goes_takes_it_along() -> None:
    stack = Stack()
    told = stack.asks("Create", {"target": TARGET, "batch": 5, "window": 1.5})
    assert told == {
        "Status": "SUCCESS",
        "Reason": "",
        "PhysicalResourceId": "emails/mailer",
        "StackId": "arn:aws:cloudformation:stack/mail/1",
        "RequestId": "7",
        "LogicalResourceId": "Mailer",
    }
    assert stack.attached()["mailer"]["target"] == TARGET
    assert (stack.attached()["mailer"]["batch"], stack.attached()["mailer"]["window"]) == (5, 1.5)
    stack.asks("Update", {"target": TARGET, "batch": 6})
    assert (stack.attached()["mailer"]["batch"], stack.attached()["mailer"]["window"]) == (6, 0)
    assert stack.asks("Delete")["Status"] == "SUCCESS"
    assert stack.attached() == {}


def test_what_the_queue_refuses_fails_the_deployment_in_the_queue_s_words() -> None:
    stack = Stack()
    stack.queue.configure(shards=4)
    told = stack.asks("Create", {"target": TARGET, "max_concurrency": 2})
    assert told["Status"] == "FAILED"
    assert "max_concurrency: 2 over 4 shards would leave some of them none" in told["Reason"]
    assert told["PhysicalResourceId"] == "emails/mailer"
    assert stack.attached() == {}


@pytest.mark.parametrize("settings", ["none", "[]", "{}", '{"target": 7}'])
def test_properties_that_cannot_be_read_fail_the_deployment_and_hold_no_removal_up(settings: str) -> None:
    stack = Stack()
    told = stack.asks("Create", settings)
    assert told["Status"] == "FAILED"
    assert told["Reason"].startswith("the resource's properties: ")
    assert stack.asks("Delete", settings)["Status"] == "SUCCESS"


def test_a_resource_that_goes_leaves_a_consumer_alone_that_somebody_else_has_attached_since() -> None:
    stack = Stack()
    stack.asks("Create")
    stack.queue.configure(consumers={"mailer": Consumer(target="another")})
    assert stack.asks("Delete")["Status"] == "SUCCESS"
    assert stack.attached()["mailer"]["target"] == "another"


@pytest.mark.parametrize("queue", ["emails", "no/queue"])
def test_a_resource_that_goes_makes_no_queue(queue: str) -> None:
    stack = Stack()
    assert stack.asks("Delete", queue=queue, PhysicalResourceId=f"{queue}/mailer")["Status"] == "SUCCESS"
    assert stack.queue.stats()["commits"] == 0


def test_an_answer_goes_to_aws_and_nowhere_else() -> None:
    stack = Stack()
    for address in (
        *("http://s3.amazonaws.com/a", "https://example.com/a", "https://amazonaws.com.example.com/"),
        *("file:///etc/passwd", "https://evilamazonaws.com/"),
    ):
        with pytest.raises(Rejected, match="ResponseURL"):
            stack.asks("Create", ResponseURL=address)
    with pytest.raises(Rejected, match="none of CloudFormation's"):
        stack.asks("Look")
    assert stack.queue.stats()["commits"] == 0


def test_the_function_that_configures_queues_knows_such_events_and_no_other_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment("memory://").items():
        monkeypatch.setenv(name, value)
    event = {
        "RequestType": "Create",
        "ResponseURL": "http://127.0.0.1/",
        "StackId": "mail",
        "RequestId": "7",
        "LogicalResourceId": "Mailer",
        "ResourceProperties": {},
    }
    with pytest.raises(Rejected, match="an answer goes to AWS"):
        load("queues")(event, Context())
    assert load("jobs")(event, Context())["status"] == 400


def test_an_answer_that_nobody_takes_is_an_error_so_that_lambda_repeats_the_event() -> None:
    with aws_stand_in() as aws:
        place = urlsplit(f"{aws.url}/a%7Cb?X-Amz-Signature=1")
        assert put(place, b"{}", http.client.HTTPConnection) == 202
        (request,) = aws.received
        assert (request.path, request.body) == ("/a%7Cb?X-Amz-Signature=1", b"{}")
        assert request.headers["content-type"] == ""
    with pytest.raises(Unavailable, match="gave no answer"):
        put(place, b"{}", http.client.HTTPConnection)
    stack = Stack()
    stack.status = 403
    with pytest.raises(Unavailable, match="403"):
        stack.asks("Create")
