"""Events of a queue object: how they reach EventBridge, and sinks that misbehave."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

import boto3
import msgspec
import pytest
from botocore.stub import Stubber

from osqueue import Queue, Rejected
from osqueue.core import state as stored
from osqueue.events import (
    ENTRIES_PER_REQUEST_MAX,
    REQUEST_BYTES_MAX,
    CallbackSink,
    Delivery,
    Event,
    EventBridgeSink,
    EventOutlet,
    Undelivered,
    batches,
    entry_bytes,
)
from osqueue.model.event import public_event
from tests.support.aws_server import aws_stand_in

KEY = bytes.fromhex("0190a1b2c3d47e5f8a9b0c1d2e3f4a5b")
JOB = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
NOON_MS = 1_800_000_000_000
REGION = "eu-west-1"


def transition(origin: str, target: str, cause: str, **more: Any) -> stored.Transition:
    """What the core tells of a transition."""
    fields = {"key": KEY, "at_ms": NOON_MS, "attempt": 1, "run": 2, "worker": "ada", **more}
    return stored.Transition(origin=origin, target=target, cause=cause, **fields)


def event(number: int = 0, **more: Any) -> Event:
    made = public_event("emails", transition("processing", "completed", "complete", run=number))
    assert made is not None
    return msgspec.structs.replace(made, **more)


def test_the_events_of_a_real_queue_become_public_in_order() -> None:
    told: list[Event] = []
    outlet = EventOutlet([CallbackSink(told.append)])
    q: Queue[Any] = Queue.connect("memory://", "emails")
    q._observe(lambda events: outlet.tell("emails", events))
    done = q.enqueue({"secret": "xyzzy"}).job_id
    q.claim(worker="ada")[0].complete({"secret": "xyzzy"})
    q.enqueue({"secret": "xyzzy"}, kind="welcome", max_attempts=1)
    q.claim(worker="ada")[0].fail("xyzzy")
    names = ["queued", "processing", "completed", "queued", "processing", "failed"]
    assert [each.name for each in told] == names
    assert {each.job_id for each in told[:3]} == {done}
    assert [each.worker for each in told[:3]] == [None, "ada", "ada"]
    assert all(each.at.tzinfo is UTC for each in told)
    assert b"xyzzy" not in msgspec.json.encode(told)


def test_an_event_has_no_field_that_a_payload_could_hide_in() -> None:
    assert set(Event.__struct_fields__) == {
        *("queue", "job_id", "id", "name", "from_state", "to_state", "at", "cause", "attempt", "run"),
        *("worker", "count", "kind", "headers"),  # of headers the names alone
        "cursor",  # numbers of the log
    }


def test_the_cores_events_have_the_fields_that_are_read() -> None:
    assert {"key", "at_ms", "origin", "target", "cause", "attempt", "run", "worker"} <= set(
        stored.Transition.__struct_fields__
    )


# ── Callbacks ────────────────────────────────────────────────────────────────
def test_a_callback_gets_each_event_and_one_that_raises_keeps_none_from_the_others() -> None:
    told: list[Event] = []

    def function(each: Event) -> None:
        if each.run == 1:
            raise ValueError("not this one")
        told.append(each)

    with pytest.raises(Undelivered, match="ValueError: not this one") as caught:
        CallbackSink(function).send([event(number) for number in range(4)])
    assert [each.run for each in told] == [0, 2, 3]
    assert caught.value.failed == 1


# ── EventBridge ──────────────────────────────────────────────────────────────
@pytest.fixture
def bus(aws_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an EventBridge whose bus ``jobs`` keeps what it gets in a log group."""
    # Here, because moto takes long to import, and each process of a run collects all tests.
    from moto import mock_aws
    from moto.events.utils import EventTemplateParser

    # What a target without a transformation gets is the message itself; moto wants a package to find that out.
    monkeypatch.setattr(EventTemplateParser, "parse", staticmethod(lambda event, **_: dict(event)))
    with mock_aws():
        client = boto3.client("events", region_name=REGION)
        client.create_event_bus(Name="jobs")
        logs = boto3.client("logs", region_name=REGION)
        logs.create_log_group(logGroupName="/aws/events/jobs")
        client.put_rule(Name="all", EventBusName="jobs", EventPattern=json.dumps({"source": ["osqueue"]}))
        arn = f"arn:aws:logs:{REGION}:123456789012:log-group:/aws/events/jobs"
        client.put_targets(Rule="all", EventBusName="jobs", Targets=[{"Id": "log", "Arn": arn}])
        yield client


def arrived() -> list[dict[str, Any]]:
    logs = boto3.client("logs", region_name=REGION)
    found = logs.filter_log_events(logGroupName="/aws/events/jobs")["events"]
    return [json.loads(each["message"]) for each in found]


def test_events_arrive_on_the_bus_with_their_fields(bus: Any) -> None:
    EventBridgeSink("jobs", client=bus).send([event(7, id="order-7", kind="resize")])
    (message,) = arrived()
    assert (message["source"], message["detail-type"]) == ("osqueue", "job.completed")
    assert message["time"] == "2027-01-15T08:00:00Z"
    assert message["detail"] == {
        "queue": "emails",
        "job_id": JOB,
        "id": "order-7",
        "name": "completed",
        "from_state": "processing",
        "to_state": "completed",
        "at": "2027-01-15T08:00:00Z",
        "cause": "complete",
        "attempt": 1,
        "run": 7,
        "worker": "ada",
        "count": 1,
        "kind": "resize",
        "headers": [],
    }


def test_more_events_than_one_request_takes_arrive_all(bus: Any) -> None:
    EventBridgeSink("jobs", client=bus).send([event(number) for number in range(25)])
    assert sorted(each["detail"]["run"] for each in arrived()) == list(range(25))


def test_a_sink_without_a_client_signs_its_requests_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with aws_stand_in() as stand_in:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EVENTS", stand_in.url)
        refused = {"FailedEntryCount": 1, "Entries": [{"EventId": "1"}, {"ErrorCode": "InternalFailure"}]}
        taken = {"FailedEntryCount": 0, "Entries": [{"EventId": "2"}]}
        stand_in.answers = [(200, json.dumps(each).encode()) for each in (refused, taken)]
        EventBridgeSink("jobs").send([event(1), event(2)])
        stand_in.answers = [(400, b'{"__type":"com.amazon#AccessDeniedException","Message":"xyzzy"}')]
        with pytest.raises(Undelivered, match="400 AccessDeniedException") as caught:
            EventBridgeSink("jobs").send([event(3)])
    assert "xyzzy" not in str(caught.value)
    first, again, *_ = stand_in.received
    assert first.headers["x-amz-target"] == "AWSEvents.PutEvents"
    assert f"/{REGION}/events/aws4_request" in first.headers["authorization"]
    entry = first.event["Entries"][1]
    assert (entry["EventBusName"], entry["Time"], json.loads(entry["Detail"])["run"]) == (
        "jobs",
        NOON_MS / 1000,
        2,
    )
    assert [json.loads(each["Detail"])["run"] for each in again.event["Entries"]] == [2]


class Bus:
    """A client that answers as it is told and keeps what it is asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[list[int]] = []

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        self.asked.append([json.loads(entry["Detail"])["run"] for entry in Entries])
        refused = self.answers.pop(0) if self.answers else set()
        if isinstance(refused, Exception):
            raise refused
        results = [
            {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}
            if run in refused
            else {"EventId": "1"}
            for run in self.asked[-1]
        ]
        return {"FailedEntryCount": len(refused & set(self.asked[-1])), "Entries": results}


def send(bus: Bus, count: int) -> int:
    """Send some events; how many failed."""
    try:
        EventBridgeSink("jobs", client=bus).send([event(number) for number in range(count)])
    except Undelivered as error:
        return error.failed
    return 0


def test_refused_entries_alone_are_sent_once_more() -> None:
    bus = Bus({1, 3})
    assert send(bus, 5) == 0
    assert bus.asked == [[0, 1, 2, 3, 4], [1, 3]]


def test_entries_refused_twice_are_counted_and_the_next_batch_goes_on() -> None:
    bus = Bus({1, 3}, {3})
    assert send(bus, 12) == 1
    assert bus.asked == [list(range(10)), [1, 3], [10, 11]]


def test_a_request_without_an_answer_is_repeated_once() -> None:
    bus = Bus(TimeoutError("slow"))
    assert send(bus, 2) == 0
    assert bus.asked == [[0, 1], [0, 1]]


def test_a_bus_that_answers_the_second_time_is_asked_for_the_rest() -> None:
    bus = Bus(TimeoutError("slow"), {3})
    assert send(bus, 12) == 1
    assert bus.asked == [list(range(10)), list(range(10)), [10, 11]]


def test_a_bus_that_does_not_answer_at_all_is_not_asked_for_the_rest() -> None:
    bus = Bus(set(), TimeoutError("slow"), TimeoutError("slow"))
    assert send(bus, 45) == 35
    assert len(bus.asked) == 3


def test_the_reason_of_a_failure_is_told() -> None:
    with pytest.raises(Undelivered, match=r"^1 of 1 events did not reach jobs: ThrottlingException$"):
        EventBridgeSink("jobs", client=Bus({0}, {0})).send([event(0)])


def test_what_botocore_checks_of_a_request_holds(aws_environment: None) -> None:
    client = boto3.client("events", region_name=REGION)
    with Stubber(client) as stub:
        partly = {"FailedEntryCount": 1, "Entries": [{"EventId": "1"}, {"ErrorCode": "InternalFailure"}]}
        stub.add_response("put_events", partly)
        stub.add_client_error("put_events", "AccessDeniedException", "not allowed")
        with pytest.raises(Undelivered, match="AccessDenied") as caught:
            EventBridgeSink("jobs", client=client).send([event(0), event(1)])
        stub.assert_no_pending_responses()
    assert caught.value.failed == 1


def entry(size: int) -> dict[str, Any]:
    """An entry of that many bytes, as AWS counts them."""
    made = {"Source": "ö", "DetailType": "job.queued", "Detail": "", "EventBusName": "jobs", "Time": 0}
    return made | {"Detail": "x" * (size - entry_bytes(made))}


def test_an_entrys_size_is_what_aws_counts() -> None:
    made = {"Source": "ö", "DetailType": "ab", "Detail": '"é"', "EventBusName": "long name", "Time": 0}
    assert entry_bytes(made) == 14 + 2 + 2 + 4


def test_a_batch_is_full_at_ten_entries() -> None:
    most = ENTRIES_PER_REQUEST_MAX
    assert [len(each) for each in batches([entry(100)] * most)] == [10]
    assert [len(each) for each in batches([entry(100)] * (most + 1))] == [10, 1]
    assert list(batches([])) == []


def test_a_batch_stays_below_256_kb() -> None:
    half = REQUEST_BYTES_MAX // 2
    rest = REQUEST_BYTES_MAX - half
    assert [len(each) for each in batches([entry(half), entry(rest)])] == [2]
    assert [len(each) for each in batches([entry(half), entry(rest + 1)])] == [1, 1]
    assert [len(each) for each in batches([entry(half), entry(rest + 1), entry(100)])] == [1, 2]
    assert REQUEST_BYTES_MAX < 256 * 1024


def test_an_event_that_fits_no_request_fails_alone() -> None:
    bus = Bus()
    huge = event(1, worker="x" * REQUEST_BYTES_MAX)
    with pytest.raises(Undelivered, match="larger than 256 KB") as caught:
        EventBridgeSink("jobs", client=bus).send([event(0), huge, event(2)])
    assert caught.value.failed == 1
    assert bus.asked == [[0, 2]]


@pytest.mark.parametrize(
    ("field", "options"),
    [("bus", {"bus": ""}), ("bus", {"bus": None}), ("source", {"bus": "b", "source": "aws.osqueue"})],
)
def test_a_bus_or_source_that_cannot_be_is_refused(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as caught:
        EventBridgeSink(**options)
    assert caught.value.field == field


# ── Sinks that misbehave ─────────────────────────────────────────────────────
class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Told:
    """A sink that does what it is told and counts."""

    def __init__(self, name: str, *errors: Exception) -> None:
        self.name = name
        self.errors = list(errors)
        self.got = 0

    def send(self, events: Sequence[Event]) -> None:
        self.got += len(events)
        if self.errors:
            raise self.errors.pop(0)


def test_a_sink_that_fails_is_counted_and_keeps_nothing_from_the_others() -> None:
    bad, good = Told("bad", ValueError("broken")), Told("good")
    outlet = EventOutlet([bad, good])
    outlet.send([event(), event()])
    assert outlet.deliveries == {"bad": Delivery(0, 2, "ValueError: broken"), "good": Delivery(2, 0, None)}
    outlet.send([event()])
    assert outlet.deliveries["bad"] == Delivery(1, 2, "ValueError: broken")
    assert (bad.got, good.got) == (3, 3)


def test_a_sink_that_fails_in_part_is_counted_in_part() -> None:
    outlet = EventOutlet([Told("part", Undelivered("one was too many", 1))])
    outlet.send([event(), event(), event()])
    assert outlet.deliveries["part"] == Delivery(2, 1, "one was too many")


@pytest.mark.parametrize(("claimed", "counted"), [(-5, 0), (99, 2)])
def test_a_sink_that_miscounts_cannot_spoil_the_sums(claimed: int, counted: int) -> None:
    outlet = EventOutlet([Told("liar", Undelivered("so many", claimed))])
    outlet.send([event(), event()])
    assert outlet.deliveries["liar"] == Delivery(2 - counted, counted, "so many")


@pytest.mark.parametrize("error", [Unprintable(), RecursionError(), MemoryError(), StopIteration(1)])
def test_whatever_a_sink_raises_the_commit_goes_on(error: Exception) -> None:
    outlet = EventOutlet([Told("bad", error), Told("good")])
    outlet.send([event()])
    assert outlet.deliveries["bad"].failed == 1
    assert type(error).__name__ in str(outlet.deliveries["bad"].last_error)
    assert outlet.deliveries["good"].delivered == 1


def test_a_long_error_is_cut() -> None:
    outlet = EventOutlet([Told("bad", ValueError("x" * 10_000))])
    outlet.send([event()])
    assert len(str(outlet.deliveries["bad"].last_error)) == 2_000


def test_a_sink_cannot_change_what_the_next_one_gets() -> None:
    class Greedy:
        name = "greedy"

        def send(self, events: Sequence[Event]) -> None:
            events.clear()  # type: ignore[attr-defined]

    told: list[Event] = []
    outlet = EventOutlet([Greedy(), CallbackSink(told.append)])
    outlet.send([event(1)])
    assert [each.run for each in told] == [1]


def test_a_sink_may_send_events_itself() -> None:
    told: list[int] = []

    def function(each: Event) -> None:
        told.append(each.run)
        if each.run == 0:
            outlet.send([event(1)])

    outlet = EventOutlet([CallbackSink(function)])
    outlet.send([event(0)])
    assert (told, outlet.deliveries["callback"].delivered) == ([0, 1], 2)


def test_a_failing_sink_is_logged_once_and_its_recovery_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "osqueue.events")
    outlet = EventOutlet([Told("bad", ValueError("xyzzy"), ValueError("xyzzy"))])
    for _ in range(4):
        outlet.send([event()])
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "xyzzy" not in caplog.text


def test_nothing_is_sent_when_there_is_nothing() -> None:
    sink = Told("sink", ValueError("broken"))
    outlet = EventOutlet([sink])
    outlet.send([])
    outlet.tell("emails", [transition("failed", "failed", "expired")])
    assert (outlet.deliveries["sink"], len(sink.errors)) == (Delivery(), 1)


def test_threads_that_send_together_are_all_counted() -> None:
    outlet = EventOutlet([CallbackSink(lambda each: None)])
    threads = [
        threading.Thread(target=lambda: [outlet.send([event()]) for _ in range(200)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outlet.deliveries["callback"] == Delivery(1_600)


def test_two_sinks_of_one_name_are_refused() -> None:
    with pytest.raises(Rejected, match="two have one name"):
        EventOutlet([CallbackSink(print), CallbackSink(print)])
    EventOutlet([CallbackSink(print), CallbackSink(print, "other")])
