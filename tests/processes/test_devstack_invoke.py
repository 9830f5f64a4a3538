"""Direct invocations through a real Lambda client: boto3 against the local stack."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from osqueue.devstack import Stack
from osqueue.errors import Rejected
from tests.support.patience import PATIENCE
from tests.support.tiny_functions import Gate, Lines, tiny_stack


@pytest.fixture(scope="module")
def lines() -> Lines:
    return Lines()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, lines: Lines) -> Iterator[Stack]:
    with tiny_stack(tmp_path_factory.mktemp("stack"), lines) as stack:
        yield stack


def client_of(stack: Stack) -> Any:
    return boto3.client(
        "lambda",
        endpoint_url=stack.url,
        region_name="eu-west-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=PATIENCE),
    )


@pytest.fixture(scope="module")
def client(stack: Stack) -> Any:
    return client_of(stack)


def code_of(client: Any, **call: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as refusal:
        client.invoke(**call)
    answer = refusal.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize(
    "name",
    [
        "osqueue-dev-claim",
        "osqueue-dev-claim:$LATEST",
        "000000000000:osqueue-dev-claim",
        "arn:aws:lambda:eu-west-1:000000000000:function:osqueue-dev-claim",
    ],
)
def test_a_function_is_invoked_by_its_deployed_name(client: Any, name: str) -> None:
    found = client.invoke(FunctionName=name, Payload=json.dumps({"any": "thing"}))
    assert json.load(found["Payload"])["event"] == {"any": "thing"}
    assert (found["StatusCode"], found["ExecutedVersion"]) == (200, "$LATEST")
    assert "FunctionError" not in found


def test_the_request_id_and_the_client_context_reach_the_function(client: Any) -> None:
    context = base64.b64encode(json.dumps({"custom": {"a": "b"}}).encode()).decode()
    found = client.invoke(FunctionName="osqueue-dev-jobs", Payload='{"do": "context"}', ClientContext=context)
    told = json.load(found["Payload"])
    assert told["custom"] == {"a": "b"}
    assert told["request_id"] == found["ResponseMetadata"]["RequestId"]


def test_a_function_that_fails_says_so_beside_a_status_of_success(client: Any) -> None:
    found = client.invoke(FunctionName="osqueue-dev-jobs", Payload='{"do": "raise"}')
    assert (found["StatusCode"], found["FunctionError"]) == (200, "Unhandled")
    assert json.load(found["Payload"])["errorMessage"] == "as asked"


def test_an_event_is_taken_at_once_and_runs_without_an_answer(client: Any, lines: Lines) -> None:
    event = json.dumps({"do": "exit", "code": 0})
    found = client.invoke(FunctionName="osqueue-dev-complete", Payload=event, InvocationType="Event")
    assert (found["StatusCode"], found["Payload"].read()) == (202, b"")
    lines.wait("complete", "last words")


def test_a_dry_run_runs_nothing(client: Any, lines: Lines) -> None:
    found = client.invoke(
        FunctionName="osqueue-dev-heartbeat", Payload='{"do": "exit"}', InvocationType="DryRun"
    )
    assert found["StatusCode"] == 204
    assert lines.of("heartbeat") == []


def test_what_is_wrong_is_refused_as_lambda_does(client: Any) -> None:
    name = "osqueue-dev-claim"
    assert code_of(client, FunctionName="osqueue-prod-claim") == ("ResourceNotFoundException", 404)
    assert code_of(client, FunctionName=name, Payload="{") == ("InvalidRequestContentException", 400)
    large, largest = "1" * (6 * 1024 * 1024 + 1), "1" * (1024 * 1024 + 1)
    assert code_of(client, FunctionName=name, Payload=large) == ("RequestTooLargeException", 413)
    asynchronous = {"FunctionName": name, "InvocationType": "Event"}
    assert code_of(client, **asynchronous, Payload=largest) == ("RequestTooLargeException", 413)


def test_an_answer_past_the_limit_is_a_function_error(client: Any) -> None:
    event = json.dumps({"do": "large", "size": 6 * 1024 * 1024 + 100})
    found = client.invoke(FunctionName="osqueue-dev-jobs", Payload=event)
    assert found["FunctionError"] == "Unhandled"
    assert json.load(found["Payload"])["errorType"] == "Function.ResponseSizeTooLarge"


def test_a_function_whose_instances_are_all_busy_is_throttled(tmp_path: Path) -> None:
    seen, gate = Lines(), Gate(tmp_path)
    with tiny_stack(tmp_path, seen, processes=1, patience_s=0.02) as stack:
        client = client_of(stack)
        client.invoke(FunctionName="osqueue-dev-claim", Payload=json.dumps(gate.ask), InvocationType="Event")
        seen.wait("claim", "holding")
        assert code_of(client, FunctionName="osqueue-dev-claim") == ("TooManyRequestsException", 429)
        gate.open()
        seen.wait("claim", "released")


def test_a_function_that_is_none_is_rejected_with_those_that_there_are(stack: Stack) -> None:
    for ask in (lambda: stack.crash("claims"), lambda: stack.invoke("reap", {})):
        with pytest.raises(Rejected, match="enqueue, claim, complete") as caught:
            ask()
        assert caught.value.field == "function"


def test_a_listener_that_raises_stops_neither_the_log_nor_the_functions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Lines()

    def listener(who: str, line: str) -> None:
        heard(who, line)
        raise ValueError("of the listener's own")

    with tiny_stack(tmp_path, listener) as mine:
        for _ in range(2):
            outcome = mine.invoke("claim", {"do": "exit", "code": 1})
            assert b"Runtime.ExitError" in outcome.payload
        heard.wait("claim", "last words", count=2)
    assert heard.of("claim") == ["last words"] * 2
    assert "of the listener's own" in caplog.text
