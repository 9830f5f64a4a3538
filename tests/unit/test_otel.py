"""Spans and metrics of OpenTelemetry: a trace goes from the enqueuer to the handler."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from osqueue import (
    AsyncQueue,
    Cancel,
    Fail,
    Next,
    NotInstalled,
    Queue,
    Rejected,
    Snooze,
    Throttle,
    Unavailable,
    limits,
)
from osqueue.operations.claims import claim_of
from osqueue.otel import instrument, with_context
from osqueue.stores.base import Failed, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.api_server import PREFIX, api_server
from tests.support.served import served

PARENT = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}


class Recorded:
    """A provider, and the spans that it has exported."""

    def __init__(self, **options: Any) -> None:
        self.provider = TracerProvider(**options)
        self.kinds: dict[str, str] = {}  # of jobs, by their ids: for tests that note them
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self, name: str) -> list[ReadableSpan]:
        """Those of an operation."""
        return [each for each in self._exporter.get_finished_spans() if each.name == f"{name} mail"]


@contextmanager
def opened(place: str) -> Iterator[Any]:
    """A store, or the address of an API before one."""
    if place == "embedded":
        yield MemoryStore()
    elif place in ("api", "lambda"):
        with api_server(MemoryStore()) as url:
            yield url if place == "api" else f"lambda://{PREFIX}?endpoint={url}"
    else:
        with served(MemoryStore()) as url:
            yield url


def queue_at(place: Any) -> Queue[Any]:
    return Queue.connect(place, "mail") if isinstance(place, str) else Queue(place, "mail")


def worked(q: Any) -> None:
    q.run(until_empty=True, signals=False, poll=0.01)


@pytest.mark.parametrize("place", ["embedded", "api", "served", "lambda"])
def test_a_trace_goes_from_the_enqueuer_to_the_handler(place: str, aws_environment: None) -> None:
    told, seen = Recorded(), []
    with opened(place) as where:
        sender, q = queue_at(where), queue_at(where)
        instrument(sender, told.provider)
        instrument(q, told.provider)
        q.handler(lambda job: seen.append(get_current_span().get_span_context().span_id))
        with told.provider.get_tracer("test").start_as_current_span("request") as request:
            job = sender.enqueue({"secret": 1})
        worked(q)
    (send,), (process,), (receive,) = map(told.spans, ("send", "process", "receive"))
    assert send.context is not None
    assert process.context is not None
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == send.context.trace_id
    assert seen == [process.context.span_id]
    assert [each.context.span_id for each in receive.links] == [send.context.span_id]
    assert (send.kind, receive.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER)
    server = {}
    if place in ("api", "served"):
        parts = urlsplit(where)
        server = {"server.address": parts.hostname, "server.port": parts.port}
    assert process.attributes == {
        "messaging.system": "osqueue",
        "messaging.destination.name": "mail",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": job.job_id,
        "osqueue.job.attempt": 1,
        **server,
    }
    assert [each.context.span_id for each in process.links] == [send.context.span_id]
    assert send.attributes is not None
    assert send.attributes["messaging.message.id"] == job.job_id


def test_coroutines_have_their_own_spans() -> None:
    told, seen = Recorded(), {}

    async def run() -> None:
        q: AsyncQueue[Any] = AsyncQueue(MemoryStore(), "mail")
        instrument(q, told.provider)

        @q.handler
        async def handle(job: Any) -> None:
            await asyncio.sleep(0)
            seen[job.job_id] = get_current_span().get_span_context().span_id

        for number in range(3):
            await q.enqueue(number)
        await q.run(until_empty=True, signals=False, poll=0.01)

    asyncio.run(run())
    process = {each.attributes["messaging.message.id"]: each for each in told.spans("process")}  # type: ignore[index]
    assert seen == {name: each.context.span_id for name, each in process.items()}  # type: ignore[union-attr]
    assert len({each.context.trace_id for each in process.values()}) == 3  # type: ignore[union-attr]


def test_each_attempt_is_a_span_of_the_same_trace_and_says_why_it_failed_but_no_message() -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    q.configure(backoff_base=0.01, backoff_cap=0.01)

    @q.handler  # registered before
    def handle(job: Any) -> Any:
        if job.run == 1:
            return Snooze(0)
        if job.attempt == 1:
            raise ValueError("the secret of the payload")
        return None

    instrument(q, told.provider)
    instrument(q, told.provider)  # once more does nothing
    q.enqueue(1)
    while len(told.spans("process")) < 3:
        worked(q)
    snoozed, failed, done = told.spans("process")
    assert len({each.context.trace_id for each in (snoozed, failed, done)}) == 1  # type: ignore[union-attr]
    assert [each.status.status_code for each in (snoozed, failed, done)] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    (event,) = failed.events
    assert event.attributes is not None
    assert event.attributes["exception.type"] == "ValueError"
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ValueError"
    assert "secret" not in failed.to_json().replace('raise ValueError(\\"the secret of the payload\\")', "")


def test_a_batch_is_linked_to_those_who_enqueued_its_jobs() -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    instrument(q, told.provider)
    q.handler(batch=10)(lambda jobs: [ValueError("no") for _ in jobs])
    q.enqueue(1, max_attempts=1)
    q.enqueue_many([{"payload": 2, "max_attempts": 1}, {"payload": 3, "max_attempts": 1, "headers": PARENT}])
    worked(q)
    (process,) = told.spans("process")
    sent = {each.context.span_id for each in told.spans("send")}  # type: ignore[union-attr]
    assert {each.context.span_id for each in process.links} == {*sent, int("2" * 16, 16)}
    assert process.parent is None
    assert process.attributes is not None
    assert process.attributes["messaging.batch.message_count"] == 3
    assert process.status.status_code is StatusCode.ERROR


def test_a_lease_settled_within_a_span_has_one_and_an_empty_claim_has_none() -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    instrument(q, told.provider)
    assert q.claim() == []
    assert told.spans("receive") == []
    q.enqueue(1)
    with told.provider.get_tracer("test").start_as_current_span("mine"):
        (lease,) = q.claim()
        lease.complete()
    (complete,) = told.spans("complete")
    assert complete.attributes is not None
    assert complete.attributes["messaging.message.id"] == lease.job_id
    assert complete.attributes["messaging.operation.type"] == "settle"


def test_without_sampling_the_trace_goes_on_and_nothing_is_exported() -> None:
    told = Recorded(sampler=ALWAYS_OFF)
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    instrument(q, told.provider)
    q.enqueue(1)
    (lease,) = q.claim()
    assert int(lease.headers["traceparent"][-2:], 16) & 1 == 0  # the flag "sampled"
    assert told.spans("send") == told.spans("receive") == []


@pytest.mark.parametrize(
    "given",
    [PARENT, {"Traceparent": "mine"}, {str(n): "" for n in range(limits.HEADERS_MAX)}, {1: 2}, "text"],
)
def test_a_context_of_the_callers_own_stays_and_headers_without_room_too(given: Any) -> None:
    assert with_context(given, {"traceparent": "other", "tracestate": "a=b"}) is None


def test_the_state_is_left_out_where_it_has_no_room() -> None:
    full = {str(number): "" for number in range(limits.HEADERS_MAX - 1)}
    carrier = {"traceparent": "x", "tracestate": "a=b"}
    assert with_context(None, carrier) == carrier
    assert with_context(full, carrier) == {**full, "traceparent": "x"}
    long = {**carrier, "tracestate": "a" * (limits.HEADER_VALUE_CHARS_MAX + 1)}
    assert with_context(None, long) == {"traceparent": "x"}
    wide = {str(number): "é" * limits.HEADER_VALUE_CHARS_MAX for number in range(4)}  # 2 KB with the names
    assert with_context(wide, carrier) is None


# ── Jobs that others make ────────────────────────────────────────────────────
def traces(told: Recorded) -> dict[str, list[int]]:
    """The trace of each call of a handler, by the kind of its job."""
    found: dict[str, list[int]] = {}
    for each in told.spans("process"):
        assert each.attributes is not None
        assert each.context is not None
        kind = told.kinds[str(each.attributes["messaging.message.id"])]
        found.setdefault(kind, []).append(each.context.trace_id)
    return found


def working(told: Recorded, q: Queue[Any]) -> None:
    """Run what is there, and what it makes."""

    @q.handler
    def handle(job: Any) -> None:
        told.kinds[job.job_id] = job.kind

    instrument(q, told.provider)


@pytest.mark.parametrize(
    "then",
    [
        Next("second", then=[Next("third")]),
        [Next("second", then=[{"kind": "third"}]), {"kind": "third"}],
        {"kind": "second", "then": Next("third", 1)},
    ],
)
def test_follow_ups_are_of_the_trace_of_the_job_that_they_follow(then: Any) -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    working(told, q)
    q.enqueue(1, kind="first", then=then)
    q.enqueue_many([{"payload": 1, "kind": "first", "then": then}])
    worked(q)
    found = traces(told)
    assert set(found) == {"first", "second", "third"}
    assert set(found["first"]) == set(found["second"]) == set(found["third"])
    assert len(set(found["first"])) == 2
    sent = {each.context.span_id for each in told.spans("send")}  # type: ignore[union-attr]
    assert {each.parent.span_id for each in told.spans("process")} == sent  # type: ignore[union-attr]


def test_a_follow_up_with_a_context_of_its_own_keeps_it_and_other_headers_stay() -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    instrument(q, told.provider)
    q.enqueue(1, then=[Next("own", headers=PARENT), Next("other", headers={"tenant": "a"})])
    (lease,) = q.claim()
    lease.complete()
    headers = {lease.kind: lease.headers for lease in q.claim(2)}
    assert headers["own"] == PARENT
    assert headers["other"] == {"tenant": "a", "traceparent": lease.headers["traceparent"]}


def test_follow_ups_without_room_for_a_context_begin_traces_of_their_own() -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    working(told, q)
    q.enqueue(
        1,
        kind="first",
        then=[Next("second", "x" * (limits.FOLLOW_UPS_BYTES_MAX - 200))] + [Next("third")] * 3,
    )
    worked(q)
    found = traces(told)
    assert len({*found["first"], *found["second"], *found["third"]}) == 5


@pytest.mark.parametrize("then", [3, "text", [3], [Next("a", headers=3)], [{"no": 1}], [Next("a")] * 9])  # type: ignore[arg-type]
def test_what_is_no_follow_up_is_refused_as_ever(then: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    instrument(q, Recorded().provider)
    with pytest.raises(Rejected) as caught:
        q.enqueue(1, then=then)
    assert str(caught.value.field).startswith("then")


def test_jobs_of_a_batch_are_of_the_trace_of_who_enqueued_them_and_what_comes_of_its_end_has_its_own() -> (
    None
):
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    working(told, q)
    with (
        told.provider.get_tracer("test").start_as_current_span("import") as span,
        q.batch(on_complete=Next("report")) as batch,
    ):
        batch.enqueue(1, kind="page")
        batch.enqueue_many([{"payload": 2, "kind": "page"}, {"payload": 3, "kind": "page"}])
    worked(q)
    found = traces(told)
    assert found["page"] == [span.get_span_context().trace_id] * 3
    (report,) = found["report"]
    assert report != found["page"][0]


def test_each_job_of_a_schedule_begins_a_trace_unless_its_headers_name_one() -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    working(told, q)
    with told.provider.get_tracer("test").start_as_current_span("set up") as span:
        q.schedule("nightly", "0 3 * * *", kind="nightly")
        q.schedule("known", "0 3 * * *", kind="known", headers=PARENT)
        for name in ("nightly", "nightly", "known"):
            q.run_schedule(name)
    worked(q)
    found = traces(told)
    assert found["known"] == [int("1" * 32, 16)]
    assert len({*found["nightly"], span.get_span_context().trace_id}) == 3


# ── Spans of others ──────────────────────────────────────────────────────────
def test_a_context_of_the_callers_own_is_linked_to_and_the_call_is_nobodys_parent() -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    instrument(q, told.provider)
    q.handler(lambda job: None)
    q.enqueue(1, headers=PARENT)
    q.enqueue_many([{"payload": 2, "headers": PARENT}, {"payload": 3}])
    worked(q)
    alone, many = told.spans("send")
    assert (alone.kind, many.kind) == (SpanKind.CLIENT, SpanKind.PRODUCER)
    for each in (alone, many):
        assert [link.context.span_id for link in each.links] == [int("2" * 16, 16)]
    parents = {each.parent.span_id for each in told.spans("process")}  # type: ignore[union-attr]
    assert many.context is not None
    assert parents == {int("2" * 16, 16), many.context.span_id}


def test_a_worker_within_a_span_is_linked_to_and_no_parent() -> None:
    told = Recorded()

    async def run() -> int:
        q: AsyncQueue[Any] = AsyncQueue(MemoryStore(), "mail")
        instrument(q, told.provider)

        @q.handler
        async def handle(job: Any) -> None:
            await asyncio.sleep(0)

        await q.enqueue(1)
        with told.provider.get_tracer("test").start_as_current_span("worker") as span:
            await q.run(until_empty=True, signals=False, poll=0.01)
        return span.get_span_context().span_id

    worker = asyncio.run(run())
    (send,), (process,) = told.spans("send"), told.spans("process")
    assert process.parent is not None
    assert send.context is not None
    assert process.parent.span_id == send.context.span_id
    assert [link.context.span_id for link in process.links] == [send.context.span_id, worker]


# ── Metrics ──────────────────────────────────────────────────────────────────
class Measured:
    """A provider of meters, and what they have measured."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self._reader])

    def points(self, name: str) -> dict[tuple[str, str], Any]:
        """Values or counts of a metric, by operation and type of error; all have what every one has to say."""
        data = self._reader.get_metrics_data()
        assert data is not None
        (metric,) = [each for each in data.resource_metrics[0].scope_metrics[0].metrics if each.name == name]
        found = {}
        for point in metric.data.data_points:
            told = dict(point.attributes or {})
            assert told["messaging.system"] == "osqueue"
            assert told["messaging.destination.name"] == "mail"
            assert ("messaging.operation.type" in told) == (name == "messaging.client.operation.duration")
            key = (str(told["messaging.operation.name"]), str(told.get("error.type", "")))
            found[key] = point.value if hasattr(point, "value") else point.count
        return found


def test_what_is_sent_and_claimed_is_counted_and_durations_are_measured() -> None:
    told = Measured()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    instrument(q, Recorded().provider, told.provider)
    q.handler(lambda job: None)
    q.enqueue_many([{"payload": 1}, {"payload": 2}])
    worked(q)
    assert told.points("messaging.client.sent.messages") == {("send", ""): 2}
    assert told.points("messaging.client.consumed.messages") == {("receive", ""): 2}
    assert told.points("messaging.process.duration") == {("process", ""): 2}
    operations = told.points("messaging.client.operation.duration")
    assert {name for name, _ in operations} == {"send", "receive", "complete"}


def test_what_fails_is_measured_with_its_error() -> None:
    told = Measured()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    instrument(q, Recorded().provider, told.provider)
    q.handler(lambda job: 1 / 0)
    q.enqueue_many([{"payload": 1, "max_attempts": 1}, {"payload": 2, "priority": 99}])
    with pytest.raises(Rejected):
        q.enqueue(3, priority=99)
    worked(q)
    assert told.points("messaging.client.sent.messages") == {("send", ""): 1, ("send", "Rejected"): 2}
    assert told.points("messaging.process.duration") == {("process", "ZeroDivisionError"): 1}
    operations = told.points("messaging.client.operation.duration")
    assert (operations["send", ""], operations["send", "Rejected"]) == (1, 1)


def test_what_a_worker_says_in_one_commit_is_measured_by_the_way_each_attempt_ended() -> None:
    reader = InMemoryMetricReader()
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    q.configure(max_attempts=1)
    instrument(q, told.provider, MeterProvider(metric_readers=[reader]))
    ways = [None, Fail("no"), Snooze(60), Throttle(60), Cancel("why")]
    q.handler(batch=len(ways))(lambda jobs: [ways[job.payload] for job in jobs])
    q.enqueue_many([{"payload": number} for number in range(len(ways))])
    worked(q)
    data = reader.get_metrics_data()
    assert data is not None
    points = [
        point
        for each in data.resource_metrics[0].scope_metrics[0].metrics
        if each.name == "messaging.client.operation.duration"
        for point in each.data.data_points
    ]
    names = {(point.attributes or {})["messaging.operation.name"] for point in points}
    assert names == {"send", "receive", "complete", "fail", "release", "throttle", "cancel"}
    assert not any(told.spans(name) for name in ("complete", "fail", "release", "throttle", "cancel"))


class Silent(MemoryStore):
    """A store that stops answering."""

    silent = False

    def perform(self, request: StoreRequest) -> StoreReply:
        return Failed(Unavailable("no answer")) if self.silent else super().perform(request)


def test_a_turn_that_fails_has_a_span_for_what_it_was_to_say_and_to_claim(machine: Any) -> None:
    told, store = Recorded(), Silent(machine)
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    instrument(q, told.provider)
    q.enqueue(1)
    (lease,) = q.claim()
    store.silent = True
    flows = q._flows
    q._run(flows.turn([flows.completion(lease.key, lease.token, None)], [claim_of(1, "ada", 30, None)]))
    (complete,), (_, receive) = told.spans("complete"), told.spans("receive")
    assert complete.status.status_code is receive.status.status_code is StatusCode.ERROR


def test_a_handler_that_wants_to_end_the_program_has_failed_its_job_and_its_span() -> None:
    told = Recorded()
    q: Queue[Any] = Queue(MemoryStore(), "mail")

    @q.handler
    def handle(job: Any) -> Any:
        sys.exit("enough")

    instrument(q, told.provider)
    q.enqueue(1, max_attempts=1)
    with suppress(SystemExit):
        worked(q)
    (span,) = told.spans("process")
    assert span.status.status_code == StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "SystemExit"


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "osqueue.otel")
    with pytest.raises(NotInstalled, match=r"osqueue\[otel\]"):
        import osqueue.otel  # noqa: F401
