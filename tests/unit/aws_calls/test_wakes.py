"""Wakes: what is sent to whom, at once and over which connections, and what becomes of those that fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from osqueue import Queue, Rejected
from osqueue.aws_calls import waker_of_environment
from osqueue.aws_calls.caller import AwsCaller
from osqueue.aws_calls.wakes import AT_ONCE_MAX, LambdaWaker, wake_of
from osqueue.core.consumers import Wake
from osqueue.limits import HTTP_IDLE_MS_MAX
from tests.support.aws_server import AwsStandIn, aws_stand_in

ARN = "arn:aws:lambda:eu-west-1:123456789012:function:mailer:live"
NOON_MS = 1_800_000_000_000


@pytest.fixture
def lambdas(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsStandIn]:
    for name in ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-that-nobody-sees")
    with aws_stand_in() as stand_in:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", stand_in.url)
        yield stand_in


def wake(number: int = 0, target: str = ARN) -> Wake:
    return Wake(2, "mailer", target, 64 + number, 0, NOON_MS)


def test_a_wake_is_one_signed_asynchronous_invocation_without_a_trace(lambdas: AwsStandIn) -> None:
    waker = LambdaWaker()
    waker.wake("emails", [wake()])
    (request,) = lambdas.received
    assert request.path == (
        "/2015-03-31/functions/arn%3Aaws%3Alambda%3Aeu-west-1%3A123456789012%3Afunction%3Amailer%3Alive/invocations"
    )
    assert request.headers["x-amz-invocation-type"] == "Event"
    assert "AKIDEXAMPLE/" in request.headers["authorization"]
    assert "/eu-west-1/lambda/aws4_request" in request.headers["authorization"]
    assert not [name for name in request.headers if "trace" in name]
    assert request.event == {
        "osqueue": {
            "queue": "emails",
            "consumer": "mailer",
            "shard": 2,
            "ticket": 64,
            "fired_at": "2027-01-15T08:00:00Z",
        }
    }
    assert wake_of(request.event).ticket == 64
    assert (waker.sent, waker.failed, waker.last_error) == (1, 0, None)


def test_four_go_at_once_and_all_have_gone_when_it_returns(lambdas: AwsStandIn) -> None:
    lambdas.gate = threading.Barrier(AT_ONCE_MAX)  # none is answered before so many are there
    LambdaWaker().wake("emails", [wake(number) for number in range(2 * AT_ONCE_MAX)])
    assert {each.event["osqueue"]["ticket"] for each in lambdas.received} == set(
        range(64, 64 + 2 * AT_ONCE_MAX)
    )


def test_a_connection_is_kept_and_another_opened_where_it_was_closed_or_rested_too_long(
    lambdas: AwsStandIn, machine: Any
) -> None:
    waker = LambdaWaker(machine)
    for _ in range(3):
        waker.wake("emails", [wake()])
    assert len({each.connection for each in lambdas.received}) == 1
    machine.advance(HTTP_IDLE_MS_MAX / 1000)
    lambdas.close_after = True
    waker.wake("emails", [wake()])
    waker.wake("emails", [wake()])
    assert len({each.connection for each in lambdas.received}) == 3
    lambdas.close_after = False
    waker.wake("emails", [wake()])
    machine.pid = 2  # a fork's child
    waker.wake("emails", [wake()])
    assert len({each.connection for each in lambdas.received}) == 5
    assert (waker.sent, waker.failed) == (7, 0)


def test_failures_are_counted_and_told_once_until_one_succeeds(
    lambdas: AwsStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "osqueue.consumers")
    lambdas.answers = [
        (429, b'{"Type":"User","message":"Rate Exceeded."}'),
        (403, b'{"__type":"AccessDeniedException","Message":"no"}'),
        (202, b""),
    ]
    waker = LambdaWaker()
    for _ in range(3):
        waker.wake("emails", [wake()])
    assert (waker.sent, waker.failed) == (1, 2)
    assert "403" in str(waker.last_error)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "secret" not in caplog.text


def test_nobody_who_listens_is_a_failure_and_no_error(
    monkeypatch: pytest.MonkeyPatch, lambdas: AwsStandIn
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:9")
    waker = LambdaWaker()
    waker.wake("emails", [wake(number) for number in range(3)])
    assert (waker.sent, waker.failed) == (0, 3)


def test_an_endpoint_that_somebody_names_needs_no_credentials(
    monkeypatch: pytest.MonkeyPatch, lambdas: AwsStandIn
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    LambdaWaker().wake("emails", [wake(target="osqueue-dev-mailer")])
    assert "authorization" not in lambdas.received[0].headers


def test_the_target_tells_the_region_and_each_service_has_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_LAMBDA", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert AwsCaller("lambda", "eu-west-1")._url.netloc == "lambda.eu-west-1.amazonaws.com"
    assert AwsCaller("events", "cn-north-1")._url.netloc == "events.cn-north-1.amazonaws.com.cn"
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert LambdaWaker()._caller(ARN)._url.netloc == "lambda.eu-west-1.amazonaws.com"
    with pytest.raises(Rejected, match="AWS_REGION"):
        LambdaWaker()._caller("mailer")


@pytest.mark.parametrize(
    "event", [None, [], {"Records": []}, {"osqueue": {"queue": "emails"}}, {"osqueue": 1}]
)
def test_an_event_that_is_no_wake_says_what_would_be_one(event: Any) -> None:
    with pytest.raises(Rejected, match="is no wake of a queue"):
        wake_of(event)


def test_a_process_wakes_where_its_environment_says_so(
    own_waker: None, monkeypatch: pytest.MonkeyPatch, lambdas: AwsStandIn
) -> None:
    assert waker_of_environment() is None
    monkeypatch.setenv("OSQUEUE_WAKES", "sqs")
    with pytest.raises(Rejected, match="OSQUEUE_WAKES"):
        Queue.connect("memory://", "emails")
    monkeypatch.setenv("OSQUEUE_WAKES", "lambda")
    q: Queue[int] = Queue.connect("memory://", "emails")
    q.configure(consumers={"mailer": {"target": ARN}})
    q.enqueue(1)
    assert [each.event["osqueue"]["consumer"] for each in lambdas.received] == ["mailer"]
    assert waker_of_environment() is waker_of_environment()
