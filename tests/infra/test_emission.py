"""Alarms look at what functions print: names, namespace and dimensions, told by functions that ran."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from osqueue import Queue
from osqueue.clock import MACHINE
from osqueue.contract.functions import FUNCTIONS
from osqueue.errors import Unavailable
from osqueue.stores.base import Failed, Put, StoreReply, StoreRequest
from osqueue.stores.wrapped import WrappedStore
from osqueue.testing.consumers import InvocationContext, LocalWaker
from tests.support.rivals import Rivalled

Emitted = tuple[str, str, tuple[tuple[str, str], ...]]  # namespace, metric, dimensions

_stores = itertools.count(1)

pytestmark = pytest.mark.usefixtures("runtime_log")


class Broken(WrappedStore):
    """A bucket that refuses everything, as one whose policy was changed by hand."""

    def perform(self, request: StoreRequest) -> StoreReply:
        return Failed(Unavailable("403 AccessDenied", permanent=True))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


class NoBus:
    """A client of EventBridge that nothing answers."""

    def put_events(self, **asked: Any) -> Any:
        raise ConnectionError("no route")


class Context:
    """What Lambda gives a handler beside the event."""

    aws_request_id = "a-request"
    function_name = "osqueue-dev-test"
    function_version = "$LATEST"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:osqueue-dev-test"
    memory_limit_in_mb = 512

    def get_remaining_time_in_millis(self) -> int:
        return 28_000


@pytest.fixture
def environment(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of the template, with a store in this process's memory in the bucket's place."""
    found = dev.resources("functions", "AWS::Lambda::Function").values()
    variables = {name: value for each in found for name, value in each["Environment"]["Variables"].items()}
    set_variables(variables, monkeypatch)


def set_variables(template: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a template has in words, and what stands for AWS here."""
    variables = {name: value for name, value in template.items() if isinstance(value, str)}
    variables["OSQUEUE_STORE"] = f"memory://emission-{next(_stores)}"
    variables["AWS_ENDPOINT_URL_LAMBDA"] = (
        "http://127.0.0.1:9"  # where nobody is: a consumer that never comes
    )
    variables["AWS_REGION"] = "eu-west-1"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def emitted(printed: str) -> Iterator[Emitted]:
    """Every metric that CloudWatch would make of what a function printed."""
    for line in printed.splitlines():
        if not line.startswith("{"):
            continue
        document = json.loads(line)
        for directive in document.get("_aws", {}).get("CloudWatchMetrics", ()):
            for names, metric in itertools.product(directive["Dimensions"], directive["Metrics"]):
                dimensions = tuple(sorted((name, document[name]) for name in names))
                yield directive["Namespace"], metric["Name"], dimensions


def watched(made: Any) -> set[Emitted]:
    """Every metric that an alarm looks at, those that AWS counts by itself left out."""
    found: set[Emitted] = set()
    for alarm in made.resources("operations", "AWS::CloudWatch::Alarm").values():
        single = [alarm] if "MetricName" in alarm else []
        for each in [
            *single,
            *(one["MetricStat"]["Metric"] for one in alarm.get("Metrics", ()) if "MetricStat" in one),
        ]:
            dimensions = tuple(
                sorted((one["Name"], one["Value"]) for one in each["Dimensions"] if "Value" in one)
            )
            if not each["Namespace"].startswith("AWS/"):
                found.add((each["Namespace"], each["MetricName"], dimensions))
    return found


def test_what_alarms_look_at_is_what_functions_print(
    dev: Any, environment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from osqueue.aws_lambda import Function

    enqueue, reaper = Function("enqueue", MACHINE), Function("reaper", MACHINE)
    new = {"method": "POST", "path": "/v1/queues/emails/jobs", "body": {"payload": 1}}
    assert enqueue(new, Context())["status"] == 200
    # Somebody else's commit comes in between, so that the next one loses its race.
    rival = Function("enqueue", MACHINE)
    assert rival(new, Context())["status"] == 200
    assert enqueue(new, Context())["status"] == 200
    # A consumer is attached, which is to come.
    attach = {
        "method": "PATCH",
        "path": "/v1/queues/emails",
        "body": {"consumers": {"mailer": {"target": "m"}}},
    }
    assert Function("queues", MACHINE)(attach, Context())["status"] == 200
    reaper({"source": "osqueue.schedule", "scheduled_at": "2030-01-01T00:00:00Z"}, Context())
    # And the bucket refuses everything.
    rival.meter.inner = Broken(rival.meter.inner)
    assert rival(new, Context())["status"] == 503
    # And no event reaches the bus.
    (sink,) = enqueue.api.sinks
    sink.inner._client = NoBus()
    assert enqueue(new, Context())["status"] == 200
    found = set(emitted(capsys.readouterr().out))
    assert watched(dev) - found == set()
    assert len(watched(dev)) == 9


def test_what_a_consumer_prints_is_what_alarms_and_the_dashboard_look_at(
    dev: Any,
    in_one_stack: Any,
    own_waker: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the variables that its own stack gives it, which knows the deployment by its name alone."""
    from aws_cdk import Duration
    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_lambda as lambda_

    from osqueue.aws import consumer
    from osqueue_cdk import Osqueue

    def fill(stack: Any, assets: Any) -> None:
        function = lambda_.Function(
            stack,
            "Mailer",
            runtime=lambda_.Runtime.PYTHON_3_14,
            architecture=lambda_.Architecture.ARM_64,
            timeout=Duration.minutes(5),
            handler="index.handler",
            code=lambda_.Code.from_inline("def handler(event, context): ..."),
            role=iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")),
        )
        Osqueue.from_name(stack, "Jobs", "dev").queue("emails").add_consumer("mailer", function)

    (made,) = in_one_stack(fill).resources("AWS::Lambda::Function").values()
    set_variables(made["Environment"]["Variables"], monkeypatch)
    waker = LocalWaker()
    producer: Queue[Any] = Queue.connect(os.environ["OSQUEUE_STORE"], "emails", waker=waker)
    producer.configure(consumers={"mailer": {"target": "m", "max_concurrency": 2}})
    producer.enqueue_many([{"payload": each, "max_attempts": 1} for each in ("good", "bad")])
    producer._waker, producer._writers[0].wakes = (
        None,
        False,
    )  # what comes next is left to the consumer to wake for

    def work(job: Any) -> None:
        if job.payload == "bad":
            store.rival = lambda: producer.enqueue_many([{"payload": "good"}] * 30)
            raise ValueError("no")

    handler = consumer(batch=2)(work)
    queue: Any = handler.queue("emails")
    queue.store.inner = store = Rivalled(queue.store.inner)
    (sink,) = queue._sinks
    sink.inner._client = NoBus()
    handler({"osqueue": msgspec.to_builtins(waker.wakes.popleft())}, InvocationContext(MACHINE))
    found = set(emitted(capsys.readouterr().out))
    whole, mine = (("service", "osqueue-dev"),), (("queue", "emails"), ("service", "osqueue-dev"))
    told = {(name, dimensions) for namespace, name, dimensions in found if namespace == "osqueue"}
    assert told >= {
        *((name, whole) for name in ("Commits", "CommitMs", "Conflicts", "EventsLost")),
        *((name, mine) for name in ("Completed", "Failed", "WaitMs", "Wakes", "WakesFailed")),
    }
    assert len({name for _, name, _ in watched(dev) & found}) == 3
    shown = json.dumps(dev.resources("operations", "AWS::CloudWatch::Dashboard"))
    for name in ("Completed", "Failed"):
        assert re.search(rf"MetricName=\W+{name}\W+service=\W+osqueue-dev", shown)


@pytest.mark.filterwarnings("error")  # of Powertools, where there is nothing to tell
def test_an_answer_that_the_function_is_to_blame_for_counts_as_a_fault_and_no_other_does(
    environment: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from osqueue.aws_lambda import Function

    enqueue = Function("enqueue", MACHINE)
    new = {"method": "POST", "path": "/v1/queues/emails/jobs", "body": {"payload": 1}}
    assert enqueue(new, Context())["status"] == 200
    assert enqueue({**new, "body": {"payload": 1, "priority": 99}}, Context())["status"] == 422
    assert enqueue({**new, "path": "/v1/nothing"}, Context())["status"] == 404
    assert "Faults" not in capsys.readouterr().out
    enqueue = Function("enqueue", MACHINE)
    enqueue.meter.inner = Broken(enqueue.meter.inner)
    assert enqueue(new, Context())["status"] == 503
    monkeypatch.setattr(enqueue.api, "queue", None)  # a defect of ours
    assert enqueue(new, Context())["status"] == 500
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "Faults" in line]
    assert [each["Faults"] for each in printed] == [[1.0], [1.0]]


def test_a_pass_with_trouble_counts_as_none(environment: None, capsys: pytest.CaptureFixture[str]) -> None:
    from osqueue.aws_lambda import Function

    enqueue, reaper = Function("enqueue", MACHINE), Function("reaper", MACHINE)
    enqueue({"method": "POST", "path": "/v1/queues/emails/jobs", "body": {"payload": 1}}, Context())
    from osqueue.objects.layout import root_of

    reaper.meter.perform(Put(f"{root_of('emails', 0)}head", b"no head"))
    reaper({"source": "osqueue.schedule", "scheduled_at": "2030-01-01T00:00:00Z"}, Context())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    passes = [each["ReaperPasses"] for each in lines if "ReaperPasses" in each]
    assert passes == [[0.0]]


def test_every_function_of_the_table_has_its_folder() -> None:
    from infra.app import HANDLERS

    assert sorted(each.name for each in FUNCTIONS) == sorted(
        path.parent.name for path in HANDLERS.glob("*/handler.py")
    )
