"""``osqueue group …``: what an operator says of single groups."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import asdict

from ..model.settings import GROUP_SETTINGS
from .options import StoreCommand, existing_queue, open_queue, options_of, store_arguments
from .output import Output

EPILOG = """\b
Examples:
  osqueue group ls s3://bucket/prefix emails
  osqueue group configure s3://bucket/prefix emails customer-7 --rate 50/60s --running 5
  osqueue group configure s3://bucket/prefix emails customer-7 --no-rate --no-running
"""
COLUMNS = ("group", "state", "running", "waiting", "why", "since", "opens_at", "waits_for")
LIFTED = tuple(name for name in GROUP_SETTINGS if name != "paused")


@click.group("group", epilog=EPILOG)
def group() -> None:
    """Groups: list those that run or are held, and why; limits of their own."""


@group.command("ls", cls=StoreCommand)
@store_arguments()
@click.option("--limit", type=int, default=100, show_default=True, help="Most groups, up to 1,000.")
@click.pass_obj
def ls(output: Output, address: str, queue: str, limit: int, timeout: float) -> None:
    """List groups that run or that something holds, and why; those that are held first. Others are not listed."""
    with open_queue(address, queue, timeout) as q:
        found = existing_queue(q).groups(limit)
    output.rows(map(asdict, found), COLUMNS, none=f"queue {queue} has no groups that run or are held")


@group.command("configure", cls=StoreCommand)
@store_arguments()
@click.argument("name", metavar="GROUP")
@options_of(GROUP_SETTINGS[name] for name in LIFTED)
@click.option("--no-rate", is_flag=True, help="Its rate is as the queue says.")
@click.option("--no-running", is_flag=True, help="As many run at once as the queue says.")
@click.option("--no-burst", is_flag=True, help="Its burst is as the queue says.")
@click.pass_obj
def configure(
    output: Output, /, address: str, queue: str, name: str, timeout: float, **settings: Any
) -> None:
    """Change what one group has of its own; what is not named stays as it is. 'osqueue queue stats' shows it."""
    changes = {each: settings[each] for each in LIFTED if settings[each] is not None}
    for each in LIFTED:
        if settings[f"no_{each}"]:
            if each in changes:
                raise click.UsageError(f"--no-{each}: --{each} is given, too.")
            changes[each] = None
    if not changes:
        raise click.UsageError("nothing to change: name a setting, such as --running 5.")
    with open_queue(address, queue, timeout) as q:
        existing_queue(q).configure_group(name, **changes)
    output.record({"queue": queue, "group": name, **changes})
