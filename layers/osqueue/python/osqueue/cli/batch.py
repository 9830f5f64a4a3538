"""``osqueue batch …``: batches of jobs, looked at, sealed and cancelled."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import asdict

from ..model.batch import BatchStatus
from .options import StoreCommand, existing_queue, known_if_missing, open_queue, store_arguments
from .output import Output

COLUMNS = ("batch_id", "name", "state", "total", "left", "completed", "failed", "cancelled")

EPILOG = """\b
Examples:
  osqueue batch ls s3://bucket/prefix emails
  osqueue batch show s3://bucket/prefix emails 0190a8b2-7c1d-7e4f-8a5b-3c2d1e0f9a00
  osqueue batch seal s3://bucket/prefix emails 0190a8b2-7c1d-7e4f-8a5b-3c2d1e0f9a00
  osqueue batch cancel s3://bucket/prefix emails 0190a8b2-7c1d-7e4f-8a5b-3c2d1e0f9a00 --dry-run
"""


@click.group("batch", epilog=EPILOG)
def batch() -> None:
    """Batches, jobs whose common end makes another one: list, show, seal, cancel."""


_batch_id = click.argument("batch_id", metavar="BATCH")


def _fields(found: BatchStatus) -> dict[str, Any]:
    kinds = {
        name: None if each is None else each.kind or ""
        for name in ("on_complete", "on_success")
        for each in (getattr(found, name),)
    }
    return {**asdict(found), **kinds}


@batch.command("ls", cls=StoreCommand)
@store_arguments()
@click.pass_obj
def ls(output: Output, address: str, queue: str, timeout: float) -> None:
    """List the batches of a queue: those that are open, and those that were over not long ago."""
    with open_queue(address, queue, timeout) as q:
        found = existing_queue(q).batches()
    output.rows(map(_fields, found), COLUMNS, none=f"queue {queue} has no batches")


@batch.command("show", cls=StoreCommand)
@store_arguments()
@_batch_id
@click.pass_obj
def show(output: Output, address: str, queue: str, batch_id: str, timeout: float) -> None:
    """Show how far a batch is."""
    with open_queue(address, queue, timeout) as q, known_if_missing(q):
        output.record(_fields(q.batch_status(batch_id)))


@batch.command("seal", cls=StoreCommand)
@store_arguments(commits=True)
@_batch_id
@click.pass_obj
def seal(output: Output, address: str, queue: str, batch_id: str, timeout: float, sinks: Any) -> None:
    """Say that no more jobs of a batch come from outside: when none is left, it is over."""
    with open_queue(address, queue, timeout, sinks=sinks) as q, known_if_missing(q):
        output.record(_fields(q.seal_batch(batch_id)))


@batch.command("cancel", cls=StoreCommand)
@store_arguments(commits=True)
@_batch_id
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.pass_obj
def cancel(
    output: Output, address: str, queue: str, batch_id: str, dry_run: bool, timeout: float, sinks: Any
) -> None:
    """Cancel all jobs of a batch that wait, and ask those that run to stop.

    Jobs that join it later run. The batch stays as open as it was, and is over when it is sealed and none is left.
    """
    with open_queue(address, queue, timeout, sinks=sinks) as q, known_if_missing(q):
        q.batch_status(batch_id)
        done = q.cancel_many(batch=batch_id, dry_run=dry_run)
    told = "would_cancel" if dry_run else "cancelled"
    rest = {"asked": done.asked, "waiting": done.waiting}
    output.record({"queue": queue, "batch_id": batch_id, told: done.cancelled, **rest})
