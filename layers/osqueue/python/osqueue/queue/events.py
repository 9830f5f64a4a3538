"""Who hears of what a queue object commits: callbacks and sinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..commit.event_queue import OnEvents
from ..core.state import Transition
from ..errors import NotSupported
from ..operations.context import Writers
from ..stores.counting import CountingStore

if TYPE_CHECKING:  # loaded where they are used
    from ..events import Delivery, EventOutlet, Sink

F = TypeVar("F", bound=Callable[..., Any])


class QueueEvents:
    """The part of a queue object that tells of its own commits."""

    name: str
    _place: Any
    _writers: Writers

    def __init__(self) -> None:
        self._observers: list[OnEvents] = []
        self._sinks: list[Sink] = []
        self._outlet: EventOutlet | None = None

    def on_event(self, function: F) -> F:
        """Call a function with every ``Event`` that this object commits from now on, after the commit.

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
        for writer in self._writers.values():
            writer.observed = True

    def _tell(self, events: Sequence[Transition]) -> None:
        for observer in self._observers:
            try:
                observer(events)
            except Exception:  # the commit is done; nothing may make it look undone
                import logging

                logging.getLogger("osqueue").exception("an observer of queue %s failed", self.name)

    def _tell_sinks(self, events: Sequence[Transition]) -> None:
        if self._outlet is not None:
            self._outlet.tell(self.name, events)
