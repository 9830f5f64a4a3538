"""Where the events of what a command commits are sent: ``--events``."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl

import click

from ..errors import Rejected, shown
from ..events import Event, EventBridgeSink, Undelivered
from .output import Output

VARIABLE = "OSQUEUE_EVENTS"
SCHEME = "eventbridge:"
FORM = "Write eventbridge:BUS or eventbridge:BUS?source=NAME; BUS is the bus's name or ARN."


class LossCountingSink:
    """A sink that counts what did not arrive, in all queues of a command together, and says so at its end."""

    slow = True

    def __init__(self, inner: EventBridgeSink) -> None:
        self.inner = inner
        self.name = inner.name
        self.lost = 0
        self.why = ""

    def send(self, events: Sequence[Event]) -> None:
        """Send them on."""
        try:
            self.inner.send(events)
        except Undelivered as error:
            self.lost += error.failed
            self.why = error.message
            raise

    def conclude(self, output: Output) -> None:
        """Print how many events were lost; what was committed stands."""
        if self.lost:
            output.note(f"{self.lost:,} events did not reach {self.name}: {self.why}")


def sink_of(text: str | None) -> LossCountingSink | None:
    """The sink that a text like ``eventbridge:jobs?source=shop`` names; raises Rejected. None: there is none."""
    if not text:
        return None
    bus, mark, query = text.removeprefix(SCHEME).partition("?")
    if not text.startswith(SCHEME) or not bus:
        raise Rejected(f"events: {shown(text)} is no place for events. {FORM}", field="events")
    given = parse_qsl(query, keep_blank_values=True)
    if [name for name, _ in given] != (["source"] if mark else []):
        raise Rejected(f"events: {shown(query)} is not one source=NAME. {FORM}", field="events")
    return LossCountingSink(EventBridgeSink(bus, dict(given)["source"]) if given else EventBridgeSink(bus))


def _sinks(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[LossCountingSink, ...]:
    sink = sink_of(value)
    if sink is None:
        return ()
    output = ctx.ensure_object(Output)
    ctx.call_on_close(lambda: sink.conclude(output))
    return (sink,)


events_option = click.option(
    "--events",
    "sinks",
    envvar=VARIABLE,
    metavar="PLACE",
    callback=_sinks,
    help="Tell eventbridge:BUS[?source=NAME] of every transition that this commits.",
)
