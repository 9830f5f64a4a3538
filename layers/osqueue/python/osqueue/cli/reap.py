"""``osqueue reap``: upkeep, once or again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import click
import msgspec

from ..client.transports.address import open_transport
from ..client.transports.base import Transport
from ..election.blocking import Election
from ..election.upkeep import ReapRow, StopEvent, Told, election_of, keep_up, one_pass
from ..errors import OsqueueError
from ..events import Sink
from ..model import validation
from ..queue.blocking import Queue
from ..signals import ending_signals
from ..stores.address import is_remote
from ..stores.counting import CountingStore
from .options import (
    StoreCommand,
    complete_address,
    complete_queue,
    duration,
    existing_queue,
    json_option,
    open_at,
    open_queue,
    queues_at,
    queues_of,
)
from .output import Output, OutputFailed
from .queues import each_queue
from .signals import ended_by
from .telling import events_option

COLUMNS = ("queue", "expired", "promoted", "archived", "combined", "collected")
EVERY_S_MIN, EVERY_S_MAX = 1.0, 86_400.0

EPILOG = """\b
Examples:
  osqueue reap s3://bucket/prefix            (every queue there)
  osqueue reap s3://bucket/prefix emails
  osqueue reap s3://bucket/prefix --every 60
"""

ReapTarget = CountingStore | Transport


@click.command("reap", short_help="Upkeep of one queue or all.", cls=StoreCommand, epilog=EPILOG)
@click.argument("address", shell_complete=complete_address)
@click.argument("queue", required=False, shell_complete=complete_queue)
@click.option(
    "--every", type=duration, help="Do it again and again, this long apart, until SIGTERM, SIGHUP or Ctrl-C."
)
@click.option("--timeout", type=duration, default=60, help="How long one request may try.  [default: 60s]")
@json_option
@events_option
@click.pass_obj
def reap(
    output: Output,
    address: str,
    queue: str | None,
    every: float | None,
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """One pass of upkeep over one queue or all: ended leases, due jobs, the archive, unreferenced objects.

    Safe at any time and from any number of machines. Run it by a schedule, or with --every where there is none: of
    several such loops only one works, and another takes over when that one ends. Behind an API a function does it by
    its own schedule; --every is not for that.
    """
    if queue is not None:
        validation.queue_name(queue)
    if every is not None:
        if not EVERY_S_MIN <= every <= EVERY_S_MAX:
            raise click.BadParameter("from 1s to 1d.", param_hint="--every")
        _forever(output, address, queue, every, timeout, sinks)
        return
    if queue is not None:
        with open_queue(address, queue, timeout, sinks=sinks) as q:
            output.record({"queue": queue, **msgspec.structs.asdict(existing_queue(q).reap())})
        return
    place: ReapTarget = open_transport(address) if is_remote(address) else open_at(address)
    each_queue(output, passes(place, None, timeout, sinks), COLUMNS)


def passes(
    place: ReapTarget, queue: str | None, timeout: float, sinks: Sequence[Sink] = ()
) -> Iterator[Told]:
    """One pass over one queue or all: of each, its report or the error that kept it from one."""
    names = _names(place, timeout) if queue is None else [queue]
    return one_pass(names, lambda name: Queue[Any](place, name, timeout=timeout, sinks=sinks))


def _names(place: ReapTarget, timeout: float) -> list[str]:
    if isinstance(place, Transport):
        return [row["queue"] for row in queues_of(place, timeout)]
    return queues_at(place)


# ── Again and again ──────────────────────────────────────────────────────────
def _forever(
    output: Output, address: str, queue: str | None, every: float, timeout: float, sinks: Sequence[Sink]
) -> None:
    store = open_at(address)
    if queue is not None:
        existing_queue(Queue[Any](store, queue, timeout=timeout))
    with ended_by(*ending_signals()) as ending:
        make_pass = partial(passes, store, queue, timeout, sinks)
        keep_reaping(output, election_of(store, queue, every), make_pass, every, ending)


def keep_reaping(
    output: Output, election: Election, make_pass: Callable[[], Iterable[Told]], every: float, stop: StopEvent
) -> None:
    """Campaign, and while elected make a pass every so many seconds, until ``stop``. Errors are printed."""

    def trouble(error: OsqueueError) -> None:
        output.error(error.code, error.message)

    keep_up(election, make_pass, every, stop, partial(_tell, output), trouble)


def _tell(output: Output, name: str, row: ReapRow | OsqueueError) -> None:
    """Print what was done in a queue, or why nothing was."""
    if isinstance(row, OsqueueError):
        output.error(row.code, f"queue {name}: {row.message}", queue=name)
        return
    did = ", ".join(f"{field} {value:,}" for field, value in row.items() if field != "queue" and value)
    try:
        if output.tables:
            output.text(f"{name}: {did}")
        else:
            output.document(row)
    except (OutputFailed, BrokenPipeError) as error:  # the work goes on
        why = getattr(error, "message", "standard output has no reader any more.")
        output.error(OutputFailed.code, why, queue=name)
