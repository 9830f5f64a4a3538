"""The event bus that is told, and how many events did not reach it."""

from __future__ import annotations

from collections.abc import Sequence

from ..contract import metrics
from ..events import Event, EventBridgeSink, Sink, Undelivered
from .store import current_counts


class MeteredSink:
    """A place for events that counts those which did not arrive."""

    slow = True  # as the bus is

    def __init__(self, inner: Sink) -> None:
        self.inner = inner
        self.name = inner.name

    def send(self, events: Sequence[Event]) -> None:
        """Send the events; raises what the place raises."""
        try:
            self.inner.send(events)
        except Exception as error:
            counts = current_counts()
            if counts is not None:
                counts.whole.add(
                    metrics.LOST, error.failed if isinstance(error, Undelivered) else len(events)
                )
            raise


def metered_bus(name: str) -> MeteredSink:
    """The bus of a name."""
    return MeteredSink(EventBridgeSink(name))
