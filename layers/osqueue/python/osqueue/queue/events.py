"""Who hears of what happens: sinks of a queue object's own commits, and callbacks for those of everybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from .. import limits
from ..aws_calls import waker_of_environment
from ..commit.event_queue import OnEvents
from ..core.consumers import Wake
from ..core.reduce import Told
from ..core.state import Transition
from ..errors import NotSupported, Rejected, pass_on_interruption, shown
from ..model.validation import milliseconds
from ..operations.context import Writers
from ..operations.head_board import NEVER
from ..stores.counting import CountingStore

if TYPE_CHECKING:  # loaded where they are used
    from ..client.events import RemoteEventReader
    from ..events import Delivery, EventOutlet, Sink
    from ..model.event import Event
    from ..operations.events import EventReader

    AnyReader: TypeAlias = EventReader | RemoteEventReader

F = TypeVar("F", bound=Callable[..., Any])


WAIT_MS_MAX = limits.DAY_MS


def wait_seconds(wait: Any) -> float:
    """For how long a listener waits for the next event; None: for ever. Raises Rejected."""
    return NEVER if wait is None else milliseconds(wait, "wait", 0, WAIT_MS_MAX) / 1000


class EventCallback(NamedTuple):
    """A function that wants to hear of some events."""

    function: Callable[[Event], Any]
    names: frozenset[str]

    def wants(self, event: Event) -> bool:
        """Is it one of those?"""
        return not self.names or event.name in self.names

    def failed(self, queue: str, event: Event, error: Exception) -> None:
        """It raised: whoever listens goes on."""
        import logging

        words = "a callback of queue %s failed at %s of job %s"
        logging.getLogger("osqueue.events").error(words, queue, event.name, event.job_id, exc_info=error)


class Waker(Protocol):
    """Invokes the consumers that commits wake."""

    def wake(self, queue: str, wakes: Sequence[Wake]) -> object:
        """Invoke each once, and soon: callers wait for it. A wake is a hint, so what fails is not tried again."""
        ...


class QueueEvents:
    """The part of a queue object that tells of commits."""

    name: str
    _blocks = True  # do its methods block?
    _place: Any
    _writers: Writers

    def __init__(self, waker: Waker | None = None) -> None:
        self._callbacks: list[EventCallback] = []
        self._observers: list[OnEvents] = []
        self._sinks: list[Sink] = []
        self._outlet: EventOutlet | None = None
        self._waker = waker_of_environment() if waker is None else waker

    def on(self, *names: str) -> Callable[[F], F]:
        """Register a function that ``listen`` calls with every event of these names, whoever commits it.

        The names are those of ``osqueue.events.NAMES``, such as "completed"; none of them means all. Raises Rejected
        for another one, and for a coroutine function where ``listen`` blocks.
        """
        from ..events import NAMES, is_coroutine_function

        for name in names:
            if name not in NAMES:
                hint = " Write @q.on() for all of them." if callable(name) else ""
                raise Rejected(
                    f"names: {shown(name)} is no event. They are {', '.join(NAMES)}.{hint}", field="names"
                )

        def register(function: F) -> F:
            if not callable(function):
                raise Rejected(f"function: {shown(function)} cannot be called.", field="function")
            if self._blocks and is_coroutine_function(function):
                raise Rejected(
                    "function: a coroutine function needs an AsyncQueue. Register a plain one here.",
                    field="function",
                )
            self._callbacks.append(EventCallback(function, frozenset(names)))
            return function

        return register

    def _listeners(self) -> list[EventCallback]:
        if not self._callbacks:
            raise Rejected("listen: nobody wants to hear of events. Register a function with @q.on(…) first.")
        return self._callbacks

    def on_event(self, function: F) -> F:
        """Call a function with every ``Event`` that this object itself commits from now on, after the commit.

        The function runs on a thread that has just committed, so keep it short. It may use this object; it gets the
        events of its own calls after it has returned. Its exceptions are counted and logged, and stop nothing.
        """
        from ..events import CallbackSink

        self.add_sink(CallbackSink(function, f"{getattr(function, '__name__', 'callback')}-{id(function):x}"))
        return function

    def add_sink(self, sink: Sink) -> None:
        """Send every event that this object commits from now on to a sink as well. See ``osqueue.events``.

        Raises NotSupported over an API: its functions commit, and send events to EventBridge.
        """
        if not isinstance(self._place, CountingStore):
            raise NotSupported(
                "sinks: over an API this object commits nothing, so it has no events to tell of. The functions do:"
                " they send them to an EventBridge bus.",
                field="sinks",
            )
        from ..events import EventOutlet

        before = self._outlet
        self._outlet = EventOutlet([*self._sinks, sink], before)
        self._sinks.append(sink)
        if before is None:
            self._observe(self._tell_sinks)

    @property
    def deliveries(self) -> dict[str, Delivery]:
        """By sink: how many events it took, and how many were lost."""
        return {} if self._outlet is None else self._outlet.deliveries

    def _observe(self, observer: OnEvents) -> None:
        """Call ``observer`` as well for every transition that this object commits from now on."""
        self._observers.append(observer)
        for place, writer in self._writers.items():
            writer.observed = not isinstance(place, str)  # a limiter's knows no jobs

    def _tell(self, told: Sequence[Told]) -> None:
        wakes = [each for each in told if isinstance(each, Wake)]
        if wakes and self._waker is not None:
            self._protected(self._waker.wake, self.name, wakes)
        events = [each for each in told if isinstance(each, Transition)] if wakes else told
        for observer in self._observers if events else ():
            self._protected(observer, events)

    def _protected(self, function: Callable[..., object], *told: Any) -> None:
        try:
            function(*told)
        except Exception as error:  # the commit is done; nothing may make it look undone
            pass_on_interruption(error)
            import logging

            logging.getLogger("osqueue").exception("an observer of queue %s failed", self.name)

    def _tell_sinks(self, events: Sequence[Any]) -> None:
        if self._outlet is not None:
            self._outlet.tell(self.name, events)
