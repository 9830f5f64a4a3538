"""``osqueue queue consumers``: the functions that are invoked when jobs of a queue wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from msgspec.structs import asdict

from ..model.consumer import CONSUMER_SETTINGS
from .options import StoreCommand, existing_queue, open_queue, options_of, store_arguments
from .output import Output

COLUMNS = ("consumer", "target", "held", "fired", "most", "since", "tries")
LISTED = ("target", "kinds")  # those that are options of their own

EPILOG = """\b
Examples:
  osqueue queue consumers s3://bucket/prefix emails
  osqueue queue consumers s3://bucket/prefix emails --attach mailer --target ARN --batch 10
  osqueue queue consumers s3://bucket/prefix emails --detach mailer
"""


@click.command("consumers", cls=StoreCommand, epilog=EPILOG)
@store_arguments()
@click.option("--attach", metavar="NAME", help="Attach a consumer under this name, or change it: as a whole.")
@click.option("--detach", metavar="NAME", help="Detach it. What it holds it may still complete.")
@click.option("--target", metavar="ARN", help=CONSUMER_SETTINGS["target"].about.description)
@click.option("--kind", "kinds", multiple=True, help="Only jobs of this kind; may be repeated.")
@options_of(each for name, each in CONSUMER_SETTINGS.items() if name not in LISTED)
@click.option("--create", is_flag=True, help="Also when no queue of this name was used yet.")
@click.pass_obj
def consumers(
    output: Output,
    /,
    address: str,
    queue: str,
    attach: str | None,
    detach: str | None,
    target: str | None,
    kinds: Sequence[str],
    create: bool,
    timeout: float,
    **settings: Any,
) -> None:
    """List consumers: what is invoked, how many are at work, and who was invoked and has not come; attach, detach.

    SINCE is when the first of those was last invoked that have not come, TRIES how often.
    """
    wished = {name: value for name, value in settings.items() if value is not None}
    wished |= {"kinds": tuple(kinds)} if kinds else {}
    if attach is not None and target is None:
        raise click.UsageError(f"--attach {attach}: --target says what is to be invoked.")
    if attach is None and (target is not None or wished):
        raise click.UsageError("--attach NAME says which consumer these are settings of.")
    changes: dict[str, Any] = {} if attach is None else {attach: {"target": target, **wished}}
    if detach is not None:
        changes[detach] = None
    with open_queue(address, queue, timeout) as q:
        if not (create and attach is not None):
            existing_queue(q)
        if changes:
            q.configure(consumers=changes)
        found = q.flow().consumers
    rows = ({"consumer": name, **asdict(use)} for name, use in found.items())
    output.rows(rows, COLUMNS, none=f"queue {queue} has no consumers: jobs wait for workers")
