"""What a consumer counts for its deployment: what its commits did, printed when an invocation ends."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from osqueue import Queue
from osqueue.aws import ConsumerFunction, consumer, sqs_shaped
from osqueue.clock import MACHINE
from osqueue.contract import metrics
from osqueue.core.encoding import decode_head
from osqueue.errors import Unavailable
from osqueue.objects.layout import root_of
from osqueue.stores.base import Failed, Found, Get, StoreReply, StoreRequest
from osqueue.stores.wrapped import WrappedStore
from osqueue.testing.consumers import InvocationContext, LocalWaker
from tests.support.patience import PATIENCE
from tests.support.rivals import Rivalled

SERVICE = "osqueue-prod"
MAILER = {"target": "arn:aws:lambda:eu-west-1:123456789012:function:mailer"}


class Unreachable(WrappedStore):
    """A bucket whose policy was changed while a handler ran."""

    def perform(self, request: StoreRequest) -> StoreReply:
        return Failed(Unavailable("403 AccessDenied", permanent=True))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        raise NotImplementedError


class NoBus:
    """A client of EventBridge that nothing answers."""

    def put_events(self, **asked: Any) -> Any:
        raise ConnectionError("no route")


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a store that consumers share, each with what a deployment gives it."""
    address = f"memory://{tmp_path}"
    monkeypatch.setenv("OSQUEUE_STORE", address)
    monkeypatch.setenv("OSQUEUE_SERVICE", SERVICE)
    return address


@pytest.fixture
def no_lambda(own_waker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers may wake others, and nobody is where Lambda should be."""
    monkeypatch.setenv("OSQUEUE_WAKES", "lambda")
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")


class Mail:
    """A queue with a consumer, from its producer's side, and what invocations printed."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str], **settings: Any) -> None:
        self.waker = LocalWaker()
        self.q: Queue[Any] = Queue.connect(address, "emails", waker=self.waker)
        self.q.configure(consumers={"mailer": {**MAILER, **settings}}, backoff_base=3_600)
        self._capsys = capsys

    def event(self) -> dict[str, Any]:
        """The wake that waits longest, as Lambda delivers it."""
        wake = self.waker.wakes.popleft()
        fields = {name: getattr(wake, name) for name in ("queue", "consumer", "shard", "ticket")}
        return {"osqueue": {**fields, "fired_at": wake.fired_at.isoformat()}}

    def deliver(self, handler: ConsumerFunction) -> list[dict[str, Any]]:
        """The lines of one invocation."""
        self._capsys.readouterr()
        handler(self.event(), InvocationContext(MACHINE))
        return self.lines()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]


def sums(lines: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """What CloudWatch would add up: by queue, of the deployment under ""; of waits their number."""
    found: dict[str, Counter[str]] = {}
    for line in lines:
        for directive in line["_aws"]["CloudWatchMetrics"]:
            (dimensions,) = directive["Dimensions"]
            place = found.setdefault(line["queue"] if "queue" in dimensions else "", Counter())
            for each in directive["Metrics"]:
                values = line[each["Name"]]
                place[each["Name"]] += len(values) if each["Unit"] == "Milliseconds" else int(sum(values))
    return found


def in_the_end(q: Queue[Any]) -> dict[str, int]:
    """The queue's own counters, by the names of metrics."""
    counters = q.stats()["counters"]
    return {"Completed": counters["completed"], "Failed": counters["failed"]}


def seq_of(q: Queue[Any]) -> int:
    """How many commits there were so far."""
    found = q.store.get(Get(f"{root_of(q.name, 0)}head"))
    assert isinstance(found, Found)
    return decode_head(found.body).seq


@pytest.mark.usefixtures("no_lambda")
def test_a_consumer_counts_what_its_commits_did_as_the_functions_do(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = Mail(address, capsys, batch=2, max_concurrency=3)
    mail.q.enqueue_many([{"payload": each, "max_attempts": 1} for each in ("good", "bad", "good")])
    silent: Queue[Any] = Queue(mail.q.store, "emails", waker=LocalWaker())
    silent._waker = None  # grants no tickets: the consumer's own commit does
    silent.enqueue_many([{"payload": "good"}] * 5)
    rivals: list[Any] = []

    def work(job: Any) -> None:
        store.rival = lambda: rivals.append(silent.enqueue("late", delay=3_600))
        if job.payload == "bad":
            raise ValueError("no")

    handler, lines = consumer(work), []
    metered: Any = handler.queue("emails").store
    metered.inner = store = Rivalled(metered.inner)
    before = seq_of(mail.q)
    while mail.waker.wakes:
        told = mail.deliver(handler)
        assert len(told) <= 1
        lines += told
    counted = sums(lines)
    assert counted.keys() == {"", "emails"}
    assert counted[""]["Commits"] == counted[""]["CommitMs"] == seq_of(mail.q) - before - len(rivals)
    assert counted[""]["Conflicts"] >= len(rivals) > 0
    mine = counted["emails"]
    assert {name: mine[name] for name in ("Completed", "Failed")} == in_the_end(mail.q)
    assert mine["WaitMs"] == 8
    assert (mine["Completed"], mine["Failed"]) == (7, 1)
    assert mine["Wakes"] == mine["WakesFailed"] > 0
    known = {each.name: each.unit for each in (*metrics.OF_DEPLOYMENT, *metrics.OF_QUEUES)}
    for line in lines:
        assert (line["service"], line["queue"], line["requestId"]) == (SERVICE, "emails", "test")
        for directive in line["_aws"]["CloudWatchMetrics"]:
            assert directive["Namespace"] == "osqueue"
            assert [known[each["Name"]] for each in directive["Metrics"]] == [
                each["Unit"] for each in directive["Metrics"]
            ]


def test_without_a_deployment_nothing_is_counted_and_nothing_printed(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for unset in (
        lambda: monkeypatch.setenv("OSQUEUE_SERVICE", ""),
        lambda: monkeypatch.delenv("OSQUEUE_SERVICE"),
    ):
        unset()
        mail = Mail(address, capsys)
        mail.q.enqueue(1)
        handler = consumer(lambda job: None)
        assert mail.deliver(handler) == []
        assert type(handler.queue("emails").store).__name__ == "CountingStore"


def test_an_invocation_that_does_nothing_prints_nothing(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = Mail(address, capsys)
    mail.q.enqueue(1)
    event = mail.event()
    other = consumer(lambda job: None)

    def work(job: Any) -> None:
        other(event, InvocationContext(MACHINE))  # the same wake, delivered twice

    consumer(work)(event, InvocationContext(MACHINE))
    (line,) = mail.lines()
    assert line["Completed"] == [1]
    mail.q.configure(consumers={"mailer": None})
    consumer(work)(event, InvocationContext(MACHINE))
    assert mail.lines() == []


def test_what_threads_of_an_invocation_commit_is_the_invocations(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Endings and claims are committed by a thread of their own, progress by those that call the handler."""
    mail = Mail(address, capsys, batch=8)
    mail.q.enqueue_many([{"payload": number} for number in range(8)])
    before = seq_of(mail.q)

    @consumer(threads=4)
    def handler(job: Any) -> None:
        job.heartbeat()

    counted = sums(mail.deliver(handler))
    assert counted[""]["Commits"] == seq_of(mail.q) - before
    assert counted[""]["Commits"] >= 3  # a claim, heartbeats, endings
    assert counted["emails"]["Completed"] == 8


@pytest.mark.parametrize("apart", [True, False], ids=["two processes", "one process"])
def test_of_two_invocations_at_once_each_counts_its_own(
    apart: bool, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = Mail(address, capsys, batch=5, max_concurrency=2)
    met = threading.Barrier(2)
    mail.q.enqueue_many([{"payload": number, "max_attempts": 1} for number in range(40)])
    before, first = seq_of(mail.q), threading.local()

    def work(job: Any) -> None:
        if not hasattr(first, "seen"):
            first.seen = True
            met.wait(PATIENCE)  # both are in the middle of it
        if job.payload % 4 == 0:
            raise ValueError("no")

    one = consumer(work)
    other = consumer(work) if apart else one
    events = [mail.event(), mail.event()]
    with ThreadPoolExecutor(2) as threads:
        done = [
            threads.submit(handler, event, InvocationContext(MACHINE))
            for handler, event in zip((one, other), events, strict=True)
        ]
        told = sum(each.result(PATIENCE)["completed"] for each in done)
    counted = sums(mail.lines())  # of whoever made a commit, which may have taken the other's along
    assert told == 30
    assert counted[""]["Commits"] == seq_of(mail.q) - before
    assert {name: counted["emails"][name] for name in ("Completed", "Failed")} == in_the_end(mail.q)
    assert (counted["emails"]["Completed"], counted["emails"]["WaitMs"]) == (30, 40)


@pytest.mark.usefixtures("no_lambda")
def test_other_queues_that_a_handler_opens_by_its_function_have_lines_of_their_own(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = Mail(address, capsys)
    Queue.connect(address, "letters").configure(consumers={"printer": MAILER})
    mail.q.enqueue(1)

    def work(job: Any) -> None:
        handler.queue("letters").enqueue(job.payload)

    handler = consumer(work)
    mine, letters = mail.deliver(handler)
    assert (mine["queue"], mine["Completed"]) == ("emails", [1])
    assert (letters["queue"], letters["Enqueued"], letters["Wakes"]) == ("letters", [1], [1])


def test_a_function_from_sqs_counts_as_well(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    mail = Mail(address, capsys)
    mail.q.enqueue(1)
    (line,) = mail.deliver(sqs_shaped(lambda event, context: None))
    assert (line["Completed"], len(line["WaitMs"])) == ([1], 1)


def test_what_was_committed_before_an_invocation_failed_is_told(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = Mail(address, capsys)
    mail.q.enqueue(1)

    def work(job: Any) -> None:
        store: Any = handler.queue("emails").store
        store.inner = Unreachable(store.inner)

    handler = consumer(work)
    with pytest.raises(Unavailable):
        handler(mail.event(), InvocationContext(MACHINE))
    (line,) = mail.lines()
    assert (line["Commits"], len(line["WaitMs"]), "Completed" in line) == ([1], 1, False)


def test_events_that_do_not_reach_the_bus_are_counted(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSQUEUE_EVENT_BUS", "osqueue-prod")
    mail = Mail(address, capsys)
    mail.q.enqueue(1)
    handler = consumer(lambda job: None)
    (sink,) = handler.queue("emails")._sinks
    sink.inner._client = NoBus()  # type: ignore[attr-defined]
    (line,) = mail.deliver(handler)
    assert line["EventsLost"] == [2]


def test_a_line_that_cannot_be_printed_takes_no_answer_away(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = Mail(address, capsys)
    mail.q.enqueue(1)
    monkeypatch.setattr("osqueue.metering.lines._print", Mock(side_effect=TypeError("no JSON")))
    assert mail.deliver(consumer(lambda job: None)) == []
    assert in_the_end(mail.q) == {"Completed": 1, "Failed": 0}
