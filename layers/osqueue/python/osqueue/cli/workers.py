"""``osqueue queue workers``: who works on a queue."""

from __future__ import annotations

import click
from msgspec.structs import asdict

from .options import StoreCommand, existing_queue, open_queue, store_arguments
from .output import Output

COLUMNS = (
    *("name", "state", "holds", "concurrency", "kinds", "host"),
    *("version", "since", "seen", "oldest_start"),
)


@click.command("workers", cls=StoreCommand)
@store_arguments()
@click.pass_obj
def workers(output: Output, address: str, queue: str, timeout: float) -> None:
    """List the workers of a queue: those that run, drain or were lost within an hour, and who else holds jobs.

    A worker says once a minute that it is there, since about a second after its start; without three of these words it
    is lost. What it holds is as of now. JSON tells its process and its id as well.
    """
    with open_queue(address, queue, timeout) as q:
        found = existing_queue(q).workers()
    output.rows(map(asdict, found), COLUMNS, none=f"nobody works on queue {queue}")
