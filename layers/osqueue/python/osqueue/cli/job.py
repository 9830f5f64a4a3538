"""``osqueue job``: one job, what happened to it, and cancelling it."""

from __future__ import annotations

from typing import Any

import click

from ..clock import MACHINE
from ..errors import Conflict, NotFound
from ..job import Job, moment
from .options import StoreCommand, is_known, no_such_queue, open_queue, store_arguments
from .output import Output
from .timeline import job_record, timeline

EPILOG = """\b
Examples:
  osqueue job file://jobs emails 01890a5d-ac96-774b-bcce-b302099a8057
  osqueue job file://jobs emails 01890a5d-ac96-774b-bcce-b302099a8057 --cancel
"""


@click.command("job", cls=StoreCommand, epilog=EPILOG)
@store_arguments()
@click.argument("job_id", metavar="JOB")
@click.option("--cancel", is_flag=True, help="Cancel it: at once if it waits, through its worker if it runs.")
@click.pass_obj
def job(output: Output, address: str, queue: str, job_id: str, cancel: bool, timeout: float) -> None:
    """Show a job with its timeline, or cancel it.

    A job that is over is shown until it moves to the archive.
    """
    with open_queue(address, queue, timeout) as q:
        if cancel:
            answer = q.cancel(job_id)
            if answer == "completed":
                raise Conflict(f"job {job_id}: it is completed already. Nothing was cancelled.")
            if answer != "not_found":
                output.record({"job_id": job_id, "cancel": answer})
                return
        found = None if cancel else q.status(job_id)
        if found is not None:
            _show(output, found)
            return
        if not is_known(q):
            no_such_queue(q)
        raise NotFound(f"job {job_id}: not in this queue. It never was, or it is over and in the archive.")


def _show(output: Output, found: Job) -> None:
    now = moment(MACHINE.now_ms())
    if not output.tables:
        output.document(job_record(found, now))
        return
    head: dict[str, Any] = {
        "job": found.job_id,
        "state": found.state,
        "attempt": f"{found.attempt} of {found.max_attempts}",
    }
    if found.worker:
        head["worker"] = found.worker
    if found.error:
        head["last_error"] = found.error
    output.record(head)
    rows = [{"when": at, "what": what} for at, what in timeline(found, now)]
    output.rows(rows, ("when", "what"))
