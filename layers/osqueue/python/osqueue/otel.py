"""Spans and metrics of OpenTelemetry, by its conventions for messaging. Nothing here is loaded unless it is asked for.

    from osqueue.otel import instrument

    instrument(q)

A queue object works through its flows, and its workers call its handlers: both are wrapped, and nothing else is. The
context of a trace travels in the job's headers.
"""

from __future__ import annotations

import functools
import traceback
from asyncio import CancelledError
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import asdict

from . import __version__, limits
from .commit.effects import QueueFlow
from .core.job_ops import Completion, FailedAttempt
from .errors import NotInstalled, Rejected
from .model import validation
from .model.follow_ups import Next
from .model.job import Done, Enqueued
from .model.job_options import OPTIONS
from .model.keys import job_id
from .operations.claims import ClaimResult, TurnAnswers
from .operations.endings import AttemptEnd, ReleasedJob
from .worker.handlers import Handler, is_coroutine
from .worker.outcomes import (
    Directive,
    RunFailed,
    RunOutcome,
    outcome_of_error,
    outcome_of_return,
    outcomes_of_batch,
)

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.metrics import Counter
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise NotInstalled(
        "opentelemetry-api is not installed. Install it with: pip install 'osqueue[otel]'"
    ) from missing

if TYPE_CHECKING:
    from .worker.job import WorkerJob

SYSTEM = "osqueue"
TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
# What the conventions advise, in seconds.
BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

R = TypeVar("R")
ENDINGS = (Directive, CancelledError, GeneratorExit)  # that something asked for: no failures
_PROPAGATOR = TraceContextTextMapPropagator()


def instrument(queue: Any, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Trace and measure what a ``Queue`` or an ``AsyncQueue`` does from now on, and the handlers of its workers.

    Without providers it uses those that the program has set. Call it before a worker starts; once more does nothing.
    """
    if isinstance(queue._flows, TracedFlows):
        return
    telemetry = Telemetry(queue, tracer_provider, meter_provider)
    queue._flows = TracedFlows(queue._flows, telemetry)
    queue.handlers.wrap(functools.partial(_traced, telemetry))


class Telemetry:
    """The tracer and the instruments for one queue object."""

    def __init__(self, queue: Any, tracer_provider: Any, meter_provider: Any) -> None:
        self.tracer = trace.get_tracer("osqueue", __version__, tracer_provider)
        self.machine = queue.machine
        self.queue: str = queue.name
        self.common: dict[str, Any] = {"messaging.system": SYSTEM, "messaging.destination.name": self.queue}
        self.common |= _server_of(getattr(queue._place, "url", ""))
        meter = metrics.get_meter("osqueue", __version__, meter_provider)
        histogram = functools.partial(
            meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=BOUNDARIES
        )
        self.operated = histogram("messaging.client.operation.duration")
        self.processed = histogram("messaging.process.duration")
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self.consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")


def _server_of(url: str) -> dict[str, Any]:
    """Where an API answers over HTTP; nothing of a store, or of functions that are invoked."""
    parts = urlsplit(url)
    if not parts.hostname:
        return {}
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"server.address": parts.hostname, "server.port": port}


class TracedOperation:
    """One operation while it lasts. It is never the current span of a flow: a flow's steps run where they may.

    The span begins with ``begin``, or else where the block ends, as of its start: then it can still be left out.
    """

    def __init__(self, telemetry: Telemetry, name: str, kind: str, span_kind: SpanKind) -> None:
        self._telemetry, self._name, self.span_kind = telemetry, name, span_kind
        self.attributes: dict[str, Any] = {
            **telemetry.common,
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
        }
        self.links: list[Link] = []
        self.shown = True  # False: no span, unless it fails
        self.error = ""  # its type, where an answer tells of one
        self.duration = telemetry.operated
        self.counter: Counter | None = None  # of messages
        self.messages: Mapping[str, int] = {}  # how many, by the type of their error; "": none
        self.context = context.get_current()
        self.span: Span | None = None
        self._from = telemetry.machine.moment()

    def begin(self) -> Span:
        """The span."""
        self.span = self._telemetry.tracer.start_span(
            f"{self._name} {self._telemetry.queue}",
            self.context,
            self.span_kind,
            self.attributes,
            self.links,
            start_time=self._from.wall_ms * 1_000_000,
        )
        return self.span

    def brings(self, headers: Sequence[Any]) -> None:
        """Say with which headers jobs are sent: contexts among them stay. Where all have one, it is nobody's parent."""
        self.messages = {"": len(headers)}
        own = [each for each in headers if _has_context(each)]
        self.links = _links(own)
        if own and len(own) == len(headers):
            self.span_kind = SpanKind.CLIENT

    def about(self, job_ids: Sequence[str | None], batch: bool) -> None:
        """Say which job it is about, or how many."""
        if batch:
            self.attributes["messaging.batch.message_count"] = len(job_ids)
        elif job_ids and job_ids[0] is not None:
            self.attributes["messaging.message.id"] = job_ids[0]

    def __enter__(self) -> TracedOperation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        machine = self._telemetry.machine
        failure = None if error is None or isinstance(error, ENDINGS) else error
        if failure is not None:
            self.error = type(failure).__qualname__
        told = {"error.type": self.error} if self.error else {}
        counted = {"messaging.operation.name": self._name, **self._telemetry.common}
        self._count(counted)
        measured = {**counted, **told}
        if self.duration is self._telemetry.operated:
            measured["messaging.operation.type"] = self.attributes["messaging.operation.type"]
        self.duration.record(max(0.0, machine.monotonic() - self._from.monotonic), measured)
        if self.span is None and not (self.shown or self.error):
            return
        span = self.span or self.begin()
        span.set_attributes({**self.attributes, **told})
        if failure is not None:
            # Without its message, which may hold parts of a payload.
            frames = "".join(traceback.format_tb(failure.__traceback__))
            span.add_event(
                "exception", {"exception.type": _full_name(failure), "exception.stacktrace": frames}
            )
        if self.error:
            span.set_status(StatusCode.ERROR, self.error)
        span.end(machine.now_ms() * 1_000_000)

    def _count(self, about: Mapping[str, Any]) -> None:
        """Add up the messages; all of them have failed where the operation has."""
        messages = {self.error: sum(self.messages.values())} if self.error else self.messages
        for error, count in messages.items():
            if self.counter is not None and count:
                self.counter.add(count, {**about, "error.type": error} if error else about)


def _full_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class TracedFlows:
    """The flows of a queue, those about jobs with a span each. All others are passed on as they are."""

    def __init__(self, flows: Any, telemetry: Telemetry) -> None:
        self._flows = flows
        self._telemetry = telemetry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flows, name)

    def _send(self) -> TracedOperation:
        call = TracedOperation(self._telemetry, "send", "send", SpanKind.PRODUCER)
        call.counter = self._telemetry.sent
        return call

    def enqueue(self, payload: Any, options: Mapping[str, Any]) -> QueueFlow[Enqueued]:
        """One job."""
        with self._send() as call:
            call.brings([options.get("headers")])
            carried = carrying(options, _carrier(call.begin()))
            done: Enqueued = yield from self._flows.enqueue(payload, carried)
            call.about([done.job_id], batch=False)
        return done

    def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> QueueFlow[list[Enqueued]]:
        """Many jobs: all of them carry the context of the one span."""
        with self._send() as call:
            batch = validation.items(items)
            call.brings([item.get("headers") if isinstance(item, Mapping) else None for item in batch])
            call.about([None] * len(batch), batch=True)
            carrier = _carrier(call.begin())
            done: list[Enqueued] = yield from self._flows.enqueue_many(
                [carrying(item, carrier) if isinstance(item, Mapping) else item for item in batch]
            )
            call.messages = Tally(
                "" if each.error is None else type(each.error).__qualname__ for each in done
            )
        return done

    def claim(self, *args: Any, **kwargs: Any) -> QueueFlow[Any]:
        """A span where there were jobs, linked to those who enqueued them: an idle worker makes none."""
        with self._receive() as call:
            claimed = yield from self._flows.claim(*args, **kwargs)
            self._received(call, [claimed])
        return claimed

    def turn(self, endings: Sequence[AttemptEnd], claims: Sequence[Any]) -> QueueFlow[TurnAnswers]:
        """What a worker says in one commit is an operation of each way to end, and one of all its claims."""
        ways: dict[str, list[int]] = {}
        for at, each in enumerate(endings):
            ways.setdefault(_way(each), []).append(at)
        with ExitStack() as calls:
            settling = [
                calls.enter_context(self._settle(way, [(endings[at].key,) for at in places]))
                for way, places in ways.items()
            ]
            receiving = calls.enter_context(self._receive()) if claims else None
            done, claimed = yield from self._flows.turn(endings, claims)
            for call, places in zip(settling, ways.values(), strict=True):
                call.error = _trouble([done[at] for at in places])
            if receiving is not None:
                self._received(receiving, claimed)
        return done, claimed

    def _receive(self) -> TracedOperation:
        call = TracedOperation(self._telemetry, "receive", "receive", SpanKind.CLIENT)
        call.shown = False
        return call

    def _received(self, call: TracedOperation, claimed: Sequence[ClaimResult | Exception]) -> None:
        call.error = _trouble(claimed)
        found = [each for each in claimed if isinstance(each, ClaimResult)]
        jobs = [each.lease.job for claim in found for each in claim.leases]
        call.shown = bool(jobs)
        call.about([job_id(job.key) for job in jobs], batch=True)
        call.links = _links(dict(job.headers or ()) for job in jobs)
        call.counter = self._telemetry.consumed
        call.messages = {"": len(jobs)}

    def complete(self, key: bytes, token: str, value: Any) -> QueueFlow[bool]:
        """One job."""
        with self._settle("complete", [(key,)]) as call:
            held: bool = yield from self._flows.complete(key, token, value)
            call.error = "" if held else "lease_lost"
        return held

    def complete_many(self, items: Sequence[Any]) -> QueueFlow[list[Done]]:
        """Many jobs."""
        return self._settled("complete", items, lambda: self._flows.complete_many(items))

    def complete_encoded(self, items: Sequence[Any]) -> QueueFlow[list[Done]]:
        """Many jobs, with results already serialised."""
        return self._settled("complete", items, lambda: self._flows.complete_encoded(items))

    def fail_many(self, items: Sequence[Any], *about: Any) -> QueueFlow[list[Done]]:
        """Failed attempts."""
        return self._settled("fail", items, lambda: self._flows.fail_many(items, *about))

    def release_many(self, items: Sequence[Any], *about: Any) -> QueueFlow[list[Done]]:
        """Jobs that are given back."""
        return self._settled("release", items, lambda: self._flows.release_many(items, *about))

    def throttle_many(self, items: Sequence[Any], *about: Any) -> QueueFlow[list[Done]]:
        """Jobs that are given back, and others wait."""
        return self._settled("throttle", items, lambda: self._flows.throttle_many(items, *about))

    def abort_many(self, items: Sequence[Any], *about: Any) -> QueueFlow[list[Done]]:
        """Jobs that end as cancelled."""
        return self._settled("cancel", items, lambda: self._flows.abort_many(items, *about))

    def _settled(
        self, name: str, items: Sequence[Any], flow: Callable[[], QueueFlow[list[Done]]]
    ) -> QueueFlow[list[Done]]:
        with self._settle(name, items) as call:
            done = yield from flow()
            call.error = _trouble(done)
        return done

    def _settle(self, name: str, items: Sequence[Any]) -> TracedOperation:
        """A span within a trace alone: a worker settles jobs of many traces in one commit, outside of them all."""
        call = TracedOperation(self._telemetry, name, "settle", SpanKind.CLIENT)
        call.shown = trace.get_current_span(call.context).get_span_context().is_valid
        call.about([job_id(item[0]) for item in items], batch=len(items) != 1)
        return call


def _way(item: AttemptEnd) -> str:
    """What an ending is called."""
    if isinstance(item, ReleasedJob):
        return "throttle" if item.pause_ms else "release"
    return {Completion: "complete", FailedAttempt: "fail"}.get(type(item), "cancel")


def _trouble(answers: Sequence[object]) -> str:
    """The type of an error among answers, or what a single one was refused for."""
    error = next((each for each in answers if isinstance(each, Exception)), None)
    if error is not None:
        return type(error).__qualname__
    refused = [each.code for each in answers if isinstance(each, Done) and not each.ok]
    return refused[0] if refused and len(answers) == 1 else ""


# ── Handlers ─────────────────────────────────────────────────────────────────
def _traced(telemetry: Telemetry, function: Handler) -> Handler:
    """A handler with a span around each of its calls."""
    if is_coroutine(function):

        @functools.wraps(function)
        async def awaited(argument: Any) -> Any:
            with _processing(telemetry, argument) as call, _current(call):
                value = await function(argument)
                call.error = _error_of(value, argument)
            return value

        return awaited

    @functools.wraps(function)
    def called(argument: Any) -> Any:
        with _processing(telemetry, argument) as call, _current(call):
            value = function(argument)
            call.error = _error_of(value, argument)
        return value

    return called


def _processing(telemetry: Telemetry, argument: WorkerJob[Any] | list[WorkerJob[Any]]) -> TracedOperation:
    """A child of the span that enqueued the job; of a batch, a trace of its own. Both are linked to those who enqueued.

    A worker that itself runs within a span is no parent of what it works on: linked, too.
    """
    batch = isinstance(argument, list)
    jobs = argument if isinstance(argument, list) else [argument]
    call = TracedOperation(telemetry, "process", "process", SpanKind.CONSUMER)
    call.duration = telemetry.processed
    around = trace.get_current_span(call.context).get_span_context()
    call.links = [*_links(job.headers for job in jobs), *([Link(around)] if around.is_valid else [])]
    call.context = context.Context()
    if not batch:
        call.context = _PROPAGATOR.extract(jobs[0].headers, call.context)
        call.attributes["osqueue.job.attempt"] = jobs[0].attempt
    call.about([job.job_id for job in jobs], batch)
    call.begin()
    return call


@contextmanager
def _current(call: TracedOperation) -> Iterator[None]:
    """Spans that the handler makes are below this one."""
    assert call.span is not None, "it has begun"
    with trace.use_span(call.span, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except Directive as asked:
            call.error = _failed(asked, outcome_of_error(asked))
            raise


def _error_of(value: Any, argument: Any) -> str:
    if not isinstance(argument, list):
        return _failed(value, outcome_of_return(value))
    outcomes = outcomes_of_batch(value, len(argument))
    return next(filter(None, (_failed(None, each) for each in outcomes)), "")


def _failed(value: Any, outcome: RunOutcome) -> str:
    """The type of the error that an outcome is; a snooze, a throttle or a cancel is none."""
    if not isinstance(outcome, RunFailed):
        return ""
    return type(value).__qualname__ if isinstance(value, Directive) else "failed"


# ── Context, in headers ──────────────────────────────────────────────────────
def _carrier(span: Span) -> dict[str, str]:
    found: dict[str, str] = {}
    _PROPAGATOR.inject(found, trace.set_span_in_context(span, context.Context()))
    return found


def carrying(job: Mapping[str, Any], carrier: Mapping[str, str]) -> Mapping[str, Any]:
    """A job's options, or those of a follow-up, with the context: in its headers and in those of what follows it.

    What is no options is refused later, where all of them are read.
    """
    changed: dict[str, Any] = {}
    if (headers := with_context(job.get("headers"), carrier)) is not None:
        changed["headers"] = headers
    if then := job.get("then"):
        changed["then"] = _then_carrying(then, carrier)
    return {**job, **changed}


def _then_carrying(then: Any, carrier: Mapping[str, str]) -> Any:
    """Follow-ups with the context, where there is room; else, or where they are none, as they are."""
    given = [then] if isinstance(then, Next | Mapping) else then
    try:
        carried = [carrying(asdict(each) if isinstance(each, Next) else each, carrier) for each in given]
        OPTIONS["then"].read(carried)
    except (Rejected, TypeError, AttributeError):
        return then
    return carried


def with_context(given: Any, carrier: Mapping[str, str]) -> dict[str, str] | None:
    """A caller's headers with the context beside them, as far as there is room; None: leave them as they are.

    A context of the caller's own stays. What is no headers is refused later, where all options are read.
    """
    headers = {} if given is None else given
    if TRACEPARENT not in carrier or not _is_headers(headers) or _has_context(headers):
        return None
    parent = {**headers, TRACEPARENT: carrier[TRACEPARENT]}
    if not _fits(parent):
        return None
    state = carrier.get(TRACESTATE, "")
    both = {**parent, TRACESTATE: state}
    return both if state and len(state) <= limits.HEADER_VALUE_CHARS_MAX and _fits(both) else parent


def _is_headers(given: Any) -> bool:
    return isinstance(given, Mapping) and all(
        isinstance(text, str) for pair in given.items() for text in pair
    )


def _has_context(given: Any) -> bool:
    """Does a job bring a context along?"""
    return _is_headers(given) and any(name.lower() in (TRACEPARENT, TRACESTATE) for name in given)


def _fits(headers: Mapping[str, str]) -> bool:
    size = sum(len(text.encode("utf-8", "replace")) for pair in headers.items() for text in pair)
    return len(headers) <= limits.HEADERS_MAX and size <= limits.HEADERS_BYTES_MAX


def _links(headers: Iterable[Mapping[str, str]]) -> list[Link]:
    found = (
        trace.get_current_span(_PROPAGATOR.extract(each, context.Context())).get_span_context()
        for each in headers
    )
    return [Link(each) for each in {each.span_id: each for each in found if each.is_valid}.values()]
