"""``osqueue events``: what happens in a queue, transition by transition, whoever commits it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from msgspec.structs import asdict

from ..clock import MACHINE
from ..model.event import NAMES, PREFIX, Event
from .options import StoreCommand, duration, existing_queue, moment, open_queue, store_arguments
from .output import Output

POLL_DEFAULT = 1.0
NONE_KEPT = (
    "no events are kept of that time. They are recorded from now on, for a day after somebody last asked"
)
NONE_FITS = "nothing that happened matches"

EPILOG = """\b
Examples:
  osqueue events file://jobs emails
  osqueue events s3://bucket/prefix emails --follow
  osqueue events s3://bucket/prefix emails --since 10m --name failed --name stalled
  osqueue events https://host/stage emails --follow --json >> events.jsonl
"""


def beginning(text: str) -> str | datetime | float:
    """The cursor of an event, a time, or how long ago. A number is seconds ago; there are no events of 1970."""
    if text.startswith(PREFIX):
        return text
    try:
        return MACHINE.now_ms() / 1000 - duration(text)
    except click.BadParameter:
        pass
    try:
        return moment(text)
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r} is no beginning. Write 10m, 2030-01-31T08:00:00Z, or the cursor of an event."
        ) from None


@click.command(
    "events", cls=StoreCommand, epilog=EPILOG, short_help="What happens in a queue, as it happens."
)
@store_arguments()
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@click.option(
    "--since",
    type=beginning,
    help="From how long ago (10m), from a time, or behind an event by its cursor.  [default: all that is kept; with"
    " --follow from now on]",
)
@click.option("--name", "names", multiple=True, type=click.Choice(NAMES), help="Only these events.")
@click.option("--kind", "kinds", multiple=True, help="Only of jobs of these kinds.")
@click.option(
    "--poll", type=duration, default=POLL_DEFAULT, help="How often to look while following.  [default: 1s]"
)
@click.pass_obj
def events(
    output: Output,
    address: str,
    queue: str,
    follow: bool,
    since: str | datetime | float | None,
    names: Sequence[str],
    kinds: Sequence[str],
    poll: float,
    timeout: float,
) -> None:
    """Print every committed transition of the queue's jobs, whoever commits it, one a line.

    Transitions are recorded while somebody asks for them, and for a day longer; each is kept for a day. In JSON each
    has a cursor, to go on behind it.
    """
    begin = 0.0 if since is None and not follow else since
    with open_queue(address, queue, timeout) as q:
        found = met = False
        for event in existing_queue(q).events(begin, None if follow else 0.0, poll):
            met = True
            if (not names or event.name in names) and (not kinds or (event.kind or "") in kinds):
                found = True
                _print(output, event)
    if not found:
        output.note(NONE_FITS if met else NONE_KEPT)


def _print(output: Output, event: Event) -> None:
    if output.tables:
        output.text(line_of(event))
    else:
        output.document(asdict(event))


def line_of(event: Event) -> str:
    """One event for people."""
    who = event.job_id or f"{event.count:,} jobs"
    more: dict[str, Any] = {"id": event.id, "kind": event.kind, "worker": event.worker}
    words = [f"{name}={value}" for name, value in more.items() if value]
    why = [] if event.cause in (event.name, "enqueue", "claim", "complete", "fail") else [f"({event.cause})"]
    attempt = [f"attempt={event.attempt}"] if event.attempt else []
    at = event.at.astimezone(UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]
    return "  ".join((f"{at}Z", f"{event.name:10}", who, *words, *attempt, *why))
