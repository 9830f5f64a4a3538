"""``osqueue why``: the story of a job."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from .options import StoreCommand, known_if_missing, open_queue, store_arguments
from .output import Output

EPILOG = """\b
Examples:
  osqueue why s3://bucket/prefix emails 01890a5d-ac96-774b-bcce-b302099a8057
  osqueue why s3://bucket/prefix emails order-1041
"""


@click.command("why", short_help="What happened to a job, and why.", cls=StoreCommand, epilog=EPILOG)
@store_arguments()
@click.argument("job_id", metavar="JOB")
@click.pass_obj
def why(output: Output, address: str, queue: str, job_id: str, timeout: float) -> None:
    """Tell what happened to a job and why, how it stands now, and what happens next.

    JOB is a job id or the client's own id. A job that the queue has forgotten is looked for in its archive, by job id.
    """
    with open_queue(address, queue, timeout) as q, known_if_missing(q):
        found = q.story(job_id)
    if output.tables:
        for line in found.lines():
            output.text(line)
        return
    document: dict[str, Any] = msgspec.structs.asdict(found)
    output.document(document)
