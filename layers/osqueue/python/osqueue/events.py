"""Events: every transition of a job as public data, and the places it may be sent to.

An event tells that a job went from one state to another, in a commit that is durable. It says who, when and why,
and never what: no payload, no result, no error text. Sinks are sent events after the commit and in its order. Nothing
is undone when one fails, and nothing is sent again later: whoever needs all of them reads them from the queue
(``events`` of a Queue), or the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import iscoroutinefunction
from logging import getLogger
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from . import forks
from .clock import MACHINE, Machine
from .core import state as stored
from .core.encoding import cut_by_weight
from .errors import OsqueueError, Rejected, Unavailable, pass_on_interruption, shown
from .limits import ERROR_CHARS_MAX, KB
from .model.event import NAMES, Event, public_events
from .model.validation import text

__all__ = (
    "NAMES",
    "CallbackSink",
    "Delivery",
    "Event",
    "EventBridgeSink",
    "EventOutlet",
    "Sink",
    "Undelivered",
)

ENTRIES_PER_REQUEST_MAX = 10  # of PutEvents
REQUEST_BYTES_MAX = 256 * KB - 1  # of all entries of one PutEvents: AWS asks for less than 256 KB
BUS_CHARS_MAX = 1_600  # a name or an ARN
SOURCE_CHARS_MAX = 256
TIME_BYTES = 14  # what AWS counts for an entry's time
TRIES = 2  # of each entry: the first one, and one more

log = getLogger("osqueue.events")


def is_coroutine_function(function: Any) -> bool:
    """Is it one, or an object whose calls are coroutines?"""
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class Undelivered(Unavailable):
    """Some events did not arrive. ``failed`` says how many of those given to ``send``."""

    def __init__(self, message: str, failed: int = 1) -> None:
        super().__init__(message)
        self.failed = int(failed)


class Sink(Protocol):
    """A place that events are sent to."""

    @property
    def name(self) -> str:
        """Its name in counts and logs."""
        ...

    def send(self, events: Sequence[Event]) -> None:
        """Take the events of one commit, in order.

        May raise anything when they did not arrive; ``Undelivered`` when some of them did.
        For one queue object one thread at a time calls it, not always the same.
        """
        ...


class CallbackSink:
    """Calls a function with each event. An event for which it raises does not keep the others from it.

    >>> told = []
    >>> sink = CallbackSink(told.append)
    """

    def __init__(self, function: Callable[[Event], object], name: str = "callback") -> None:
        if not callable(function):
            raise Rejected(f"function: {shown(function)} cannot be called.", field="function")
        if is_coroutine_function(function):
            raise Rejected(
                "function: a coroutine function cannot be told of events. Pass a plain one; it may create a task.",
                field="function",
            )
        self.name = name
        self._function = function

    def send(self, events: Sequence[Event]) -> None:
        """Call the function with each event, on the calling thread."""
        failed = 0
        last: Exception | None = None
        for event in events:
            try:
                self._function(event)
            except Exception as error:  # noqa: BLE001 - it is the caller's code
                pass_on_interruption(error)
                failed, last = failed + 1, error
        if last is not None:
            raise Undelivered(_words(last), failed) from last


class EventBridgeSink:
    """Puts events on an EventBridge bus, at most ten and less than 256 KB in a request.

    Each entry has ``source``, the detail type ``job.<name>``, the commit's time, and the event's fields as its
    detail. Entries that the bus refuses are sent once more. ``client`` is a boto3 client for ``events`` of the
    caller's own. Without one the requests are signed here, without boto3: by the environment's credentials, or those
    that boto3 finds in profiles and roles where it is installed.
    """

    slow = True  # it waits for another machine

    def __init__(
        self, bus: str, source: str = "osqueue", client: Any = None, machine: Machine = MACHINE
    ) -> None:
        self.bus = text(bus, "bus", BUS_CHARS_MAX, 1)
        self.source = text(source, "source", SOURCE_CHARS_MAX, 1)
        if source.startswith("aws."):
            raise Rejected(
                f"source: {source!r} is one of Amazon's. Use a name that does not begin with 'aws.'.",
                field="source",
            )
        self.name = f"eventbridge:{bus}"
        self._machine = machine
        self._client: Any = client

    def send(self, events: Sequence[Event]) -> None:
        """Send the events; raises ``Undelivered`` with the number that the bus did not take.

        When a request brings no answer twice, the rest is not tried: whoever commits is waiting.
        """
        entries = [self._entry(event) for event in events]
        fitting = [entry for entry in entries if entry_bytes(entry) <= REQUEST_BYTES_MAX]
        failed = len(entries) - len(fitting)
        why = "an event is larger than 256 KB" if failed else ""
        unsent = len(fitting)
        for batch in batches(fitting):
            unsent -= len(batch)
            refused, reason, silent = self._deliver(batch)
            failed, why = failed + refused, reason or why
            if silent:
                failed += unsent
                break
        if failed:
            raise Undelivered(f"{failed} of {len(entries)} events did not reach {self.bus}: {why}", failed)

    def _deliver(self, batch: list[dict[str, Any]]) -> tuple[int, str, bool]:
        """Send one batch, what fails of it twice: how many failed, why, and whether there was no answer at all."""
        left, why, silent = batch, "", False
        for _ in range(TRIES):
            try:
                answer = self._asked().put_events(Entries=left)
            except Exception as error:  # noqa: BLE001 - botocore raises many kinds, and a client may be anybody's
                pass_on_interruption(error)
                why, silent = _words(error), True
                continue
            silent = False
            if not answer.get("FailedEntryCount"):
                return 0, "", False
            results = zip(left, answer["Entries"], strict=True)
            refused = [(entry, result) for entry, result in results if result.get("ErrorCode")]
            left = [entry for entry, _ in refused]
            why = ", ".join(sorted({str(result["ErrorCode"]) for _, result in refused}))
            if not left:
                return 0, "", False
        return len(left), why, silent

    def _entry(self, event: Event) -> dict[str, Any]:
        return {
            "Source": self.source,
            "DetailType": f"job.{event.name}",
            "Detail": msgspec.json.encode(_detail(event)).decode(),
            "EventBusName": self.bus,
            "Time": event.at,
        }

    def _asked(self) -> Any:
        """What is asked to put events."""
        if self._client is None:
            from .aws_calls.eventbridge import EventBridgeCaller  # at the first event

            self._client = EventBridgeCaller(self._machine)
        return self._client


def _detail(event: Event) -> dict[str, Any]:
    detail = msgspec.structs.asdict(event)
    del detail["cursor"]  # of those who read them from a queue
    return detail


def entry_bytes(entry: dict[str, Any]) -> int:
    """The size of a PutEvents entry as AWS counts it: the time, the source, the detail type and the detail."""
    return TIME_BYTES + sum(len(entry[field].encode()) for field in ("Source", "DetailType", "Detail"))


def batches(entries: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The entries in order, as few at a time as one PutEvents takes."""
    return cut_by_weight(entries, entry_bytes, REQUEST_BYTES_MAX, ENTRIES_PER_REQUEST_MAX)


class Delivery(Struct, frozen=True):
    """What became of the events of one sink so far."""

    delivered: int = 0
    failed: int = 0
    last_error: str | None = None  # the text of the latest failure; it stays when later events arrive


class EventOutlet:
    """Sends events to several sinks. A sink that fails is counted and logged, and disturbs nobody.

    >>> told = []
    >>> outlet = EventOutlet([CallbackSink(told.append)])
    >>> outlet.deliveries["callback"].failed
    0
    """

    def __init__(self, sinks: Iterable[Sink], before: EventOutlet | None = None) -> None:
        """``before`` is an outlet whose sinks are among these: its counts go on."""
        given = tuple(sinks)
        for sink in given:
            if not hasattr(sink, "name") or not callable(getattr(sink, "send", None)):
                raise Rejected(
                    f"sinks: {shown(sink)} is none. A sink has a name and a method send(events).",
                    field="sinks",
                )
        self._sinks = tuple((str(sink.name), sink) for sink in given)
        self._lock = forks.lock()
        counted = {} if before is None else before.deliveries
        self._deliveries = {name: counted.get(name, Delivery()) for name, _ in self._sinks}
        self._failing: set[str] = set()
        if len(self._deliveries) < len(self._sinks):
            raise Rejected(
                f"sinks: two have one name, among {', '.join(name for name, _ in self._sinks)}. "
                "Give each a name of its own.",
                field="sinks",
            )

    @property
    def deliveries(self) -> dict[str, Delivery]:
        """The counts of each sink by its name: a copy that does not change any more."""
        with self._lock:
            return dict(self._deliveries)

    @property
    def slow(self) -> bool:
        """Does a sink wait for another machine? Sinks of your own may say so by an attribute ``slow``."""
        return any(getattr(sink, "slow", False) for _, sink in self._sinks)

    def send(self, events: Sequence[Event]) -> None:
        """Send the events to every sink, one after the other, on the calling thread. Raises no ``Exception``."""
        given = tuple(events)
        if not given:
            return
        for name, sink in self._sinks:
            try:
                sink.send(given)
            except Exception as error:  # noqa: BLE001 - the commit is done; nothing may make it look undone
                pass_on_interruption(error)
                self._count(name, len(given), error)
            else:
                self._count(name, len(given), None)

    def tell(self, queue: str, events: Iterable[stored.Transition]) -> None:
        """Send the transitions of one commit of ``queue`` in their public form."""
        self.send(public_events(queue, events))

    def lose(self, count: int) -> None:
        """Count events that no sink got: there was no time left."""
        error = Unavailable(
            f"{count:,} events were not sent: the sinks were slower than the commits to the end"
        )
        for name, _ in self._sinks:
            self._count(name, count, error)

    def _count(self, name: str, given: int, error: Exception | None) -> None:
        failed = 0 if error is None else given
        if isinstance(error, Undelivered):
            failed = min(max(error.failed, 0), given)
        why = None if error is None else _words(error)
        with self._lock:
            before = self._deliveries[name]
            self._deliveries[name] = Delivery(
                before.delivered + given - failed, before.failed + failed, why or before.last_error
            )
            changed = (error is not None) != (name in self._failing)
            (self._failing.discard if error is None else self._failing.add)(name)
        if changed and error is not None:  # once, not for every commit until somebody mends it
            log.warning("sink %s fails (%s); its failures are counted", name, type(error).__name__)
        elif changed:
            log.info("sink %s takes events again", name)


def _words(error: Exception) -> str:
    """An error in words. A foreign exception may not even be printable."""
    from .masking import without_secrets  # here, because most sinks take what they get

    try:
        words = error.message if isinstance(error, OsqueueError) else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001
        words = type(error).__name__
    return without_secrets(words)[:ERROR_CHARS_MAX]
