"""``osqueue queue cancel``: cancel many waiting jobs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from ..core.state import CANCELLED, FAILING, PROCESSING, QUEUED, SCHEDULED
from ..events import Sink
from ..objects.listing import PAGE_MAX
from ..queue.blocking import Queue
from .options import StoreCommand, duration, existing_queue, open_queue, store_arguments
from .output import Output, is_terminal

WAITING = (QUEUED, SCHEDULED, FAILING)
AT_ONCE = 32  # callers, who share commits


@click.command("cancel", cls=StoreCommand)
@store_arguments(commits=True)
@click.option("--kind", "kinds", multiple=True, help="Only this kind; may be repeated.")
@click.option("--all", "every", is_flag=True, help="Jobs of every kind.")
@click.option("--state", type=click.Choice(WAITING), help="Only jobs in this state.")
@click.option("--older-than", type=duration, help="Only jobs enqueued at least so long ago.")
@click.option("--limit", type=click.IntRange(1), help="Most jobs to cancel.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.pass_obj
def cancel(
    output: Output,
    address: str,
    queue: str,
    kinds: Sequence[str],
    every: bool,
    state: str | None,
    older_than: float | None,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """Cancel waiting jobs: queued, scheduled or failing ones. Those that run when their turn comes are asked to stop.

    They are listed first and cancelled one by one, so jobs that are enqueued meanwhile stay. It may be stopped at any
    time and repeated.
    """
    if bool(kinds) == every:
        raise click.UsageError("which jobs? Name --kind, or --all.")
    with open_queue(address, queue, timeout, sinks=sinks) as q:
        wanted = _waiting(existing_queue(q), kinds or None, state, older_than, limit)
        if dry_run or not wanted:
            output.record({"queue": queue, "would_cancel": len(wanted)})
            return
        if not yes:
            if not is_terminal(sys.stdin):
                raise click.UsageError(f"{len(wanted):,} jobs would be cancelled: add --yes to do it.")
            click.confirm(f"Cancel {len(wanted):,} jobs of queue {queue}?", abort=True, err=True)
        from concurrent.futures import ThreadPoolExecutor  # here: what commands share does not pay for it

        with ThreadPoolExecutor(AT_ONCE) as callers:
            done = Counter(callers.map(q.cancel, wanted))
    output.record(
        {
            "queue": queue,
            "cancelled": done.pop(CANCELLED, 0),
            "asked": done.pop(PROCESSING, 0),
            "over": done.total(),
        }
    )


def _waiting(
    q: Queue[Any], kinds: Sequence[str] | None, state: str | None, older_than: float | None, limit: int | None
) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while limit is None or len(found) < limit:
        page, cursor = q.jobs(state, PAGE_MAX, cursor, kinds, older_than=older_than)
        found += [each.job_id for each in page if each.state in WAITING]
        if cursor is None:
            break
    return found[:limit]
