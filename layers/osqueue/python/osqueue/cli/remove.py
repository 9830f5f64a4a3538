"""``osqueue queue rm``: a queue, deleted for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..errors import Rejected
from ..model.validation import queue_name
from ..queue.blocking import Queue
from ..stores.address import is_remote
from .options import StoreCommand, no_such_queue, open_at, store_arguments
from .output import Output, is_terminal

if TYPE_CHECKING:
    from ..maintenance.removal import QueueFound


@click.command("rm", cls=StoreCommand)
@store_arguments()
@click.option("--archive", is_flag=True, help="Delete the archive as well: the history of what finished.")
@click.option("--force", is_flag=True, help="Also while jobs wait or run, or a head cannot be read.")
@click.option("--dry-run", is_flag=True, help="Only show what there is.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.pass_obj
def rm(
    output: Output,
    address: str,
    queue: str,
    archive: bool,
    force: bool,
    dry_run: bool,
    yes: bool,
    timeout: float,
) -> None:
    """Delete a queue for good: its jobs, dead letters and results, its settings, backups, and its name.

    The archive stays, with all that finished, unless --archive says otherwise. Shows what there is and asks for the
    queue's name. Refuses while jobs wait or run, unless --force, and when the queue has changed since it was shown.
    May be interrupted: until it is run again nobody can use the queue. Needs the store itself.
    """
    name = queue_name(queue)
    if is_remote(address):
        raise Rejected(
            "address: a queue is removed at its store, not over an API. Give the store's own address, such as"
            " s3://bucket/prefix.",
            field="address",
        )
    from ..maintenance.removal import look, remove  # here: commands that only look do not pay for it

    q = Queue[Any](open_at(address), name, timeout=timeout)
    found = q._run(look(name))
    if not found.exists(archive):
        no_such_queue(q)
    if dry_run:
        _show(output, found, archive)
        return
    if not force:
        found.check_idle()
    if not yes:
        if not is_terminal(sys.stdin):
            raise click.UsageError(f"queue {name} would be deleted for good: add --yes to do it.")
        _show(output, found, archive)
        typed = click.prompt(
            "It is deleted for good. Type its name", default="", show_default=False, err=True
        )
        if typed != name:
            raise click.UsageError(f"that is not {name!r}. Nothing was deleted.")
    count = q._run(remove(found, q.machine, archive))
    output.record(
        {"queue": name, "deleted": count, "archive_parts": _parts_of(found), "archive": _kept(archive)}
    )


def _show(output: Output, found: QueueFound, archive: bool) -> None:
    """What there is, for a person and for a program."""
    fields = _fields(found, archive)
    if not output.tables:
        output.document(fields)
        return
    objects = fields.pop("objects")
    output.record(fields)
    output.record(objects, title="objects")


def _parts_of(found: QueueFound) -> int:
    """How many parts the archive has."""
    return len(found.keys.get("archive", ()))


def _kept(archive: bool) -> str:
    """What becomes of the archive."""
    return "deleted" if archive else "kept"


def _fields(found: QueueFound, archive: bool) -> dict[str, Any]:
    heads = [head for head in found.heads if head.version is not None]
    return {
        "queue": found.queue,
        **({"interrupted": True} if found.begun else {}),
        **found.jobs(),
        "shards": len(heads),
        "head_bytes": sum(len(head.body) for head in heads),
        "objects": {what: len(keys) for what, keys in found.keys.items() if what != "archive"},
        "archive_parts": _parts_of(found),
        "archive": _kept(archive),
    }
