"""``osqueue queue cancel``: cancel many waiting jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from ..clock import MACHINE
from ..events import Sink
from ..model.reports import CancelledMany
from .options import StoreCommand, duration, existing_queue, moment, open_queue, store_arguments
from .output import Output, is_terminal


def _before(value: str | float) -> float:
    """A duration, for so long ago, or a time."""
    if isinstance(value, float):
        return value
    try:
        return MACHINE.now_ms() / 1000 - duration(value)
    except click.BadParameter:
        found = moment(value)
    return found if isinstance(found, float) else found.timestamp()


@click.command("cancel", cls=StoreCommand)
@store_arguments(commits=True)
@click.option("--kind", "kinds", multiple=True, help="Only this kind; may be repeated.")
@click.option("--group", help="Only this group.")
@click.option("--all", "every", is_flag=True, help="Jobs of every kind and group.")
@click.option("--before", type=_before, help="Only jobs enqueued so long ago, or before this time.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.pass_obj
def cancel(
    output: Output,
    address: str,
    queue: str,
    kinds: Sequence[str],
    group: str | None,
    every: bool,
    before: float | None,
    dry_run: bool,
    yes: bool,
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """Cancel all jobs that wait: queued, scheduled or failing ones, however many. Those that run are asked to stop.

    No worker gets any of them from then on. Those that lie deep in the queue are cancelled when they are met. Jobs that
    are enqueued later stay.
    """
    if (bool(kinds) or group is not None) == every:
        raise click.UsageError("which jobs? Name --kind or --group, or --all.")
    names = list(kinds) or None
    with open_queue(address, queue, timeout, sinks=sinks) as q:
        found = existing_queue(q).cancel_many(names, group, before, dry_run=True)
        if dry_run or found == CancelledMany():
            output.record({"queue": queue, "would_cancel": found.cancelled, **_rest(found)})
            return
        if not yes:
            count = _count(found)
            if not is_terminal(sys.stdin):
                raise click.UsageError(f"{count} would be cancelled: add --yes to do it.")
            click.confirm(f"Cancel {count} of queue {queue}?", abort=True, err=True)
        done = q.cancel_many(names, group, before)
    output.record({"queue": queue, "cancelled": done.cancelled, **_rest(done)})


def _rest(found: CancelledMany) -> dict[str, int]:
    return {"asked": found.asked, "waiting": found.waiting}


def _count(found: CancelledMany) -> str:
    total = f"{found.cancelled + found.asked + found.waiting:,} jobs"
    return f"at most {total}" if found.waiting else total
