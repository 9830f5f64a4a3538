"""``osqueue job …``: one job: its state, its result, and ending or erasing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from ..clock import MACHINE
from ..errors import Conflict, NotFound
from ..events import Sink
from ..model.explain import past_steps
from ..model.fields import moment
from ..model.job import Job
from .dlq import purged_fields
from .options import (
    StoreCommand,
    duration,
    existing_queue,
    is_known,
    known_if_missing,
    no_such_queue,
    open_queue,
    store_arguments,
)
from .output import Output

EPILOG = """\b
Examples:
  osqueue job file://jobs emails 01890a5d-ac96-774b-bcce-b302099a8057      (the same as job show)
  osqueue job show file://jobs emails order-1041 --cancel
  osqueue job result file://jobs emails order-1041
"""
DEFAULT = "show"


class JobGroup(click.Group):
    """A group whose first command is meant when none is named: ``osqueue job ADDRESS QUEUE JOB``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in front where no command stands."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group("job", short_help="Show a job, its result; cancel or purge it.", cls=JobGroup, epilog=EPILOG)
def job() -> None:
    """Show a job, read its result or change how long that is kept, cancel the job or erase it.

    JOB is a job id or the client's own id. 'osqueue why' tells what happened to it.
    """


@job.command("show", cls=StoreCommand)
@store_arguments(commits=True)
@click.argument("job_id", metavar="JOB")
@click.option("--cancel", is_flag=True, help="Cancel it: at once if it waits, through its worker if it runs.")
@click.pass_obj
def show(
    output: Output,
    address: str,
    queue: str,
    job_id: str,
    cancel: bool,
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """Show a job with its timeline, or cancel it. What the queue has forgotten, 'osqueue why' finds in the archive."""
    with open_queue(address, queue, timeout, sinks=sinks if cancel else ()) as q:
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
    steps = [{"at": step.at, "what": step.what} for step in past_steps(found)]
    if not output.tables:
        output.document({**msgspec.structs.asdict(found), "timeline": steps})
        return
    head: dict[str, Any] = {
        "job": found.job_id,
        "state": found.state,
        "attempt": f"{found.attempt} of {found.max_attempts}",
        "worker": found.worker,
        "due_at": found.due_at,
        "expires_at": found.expires_at,
        "last_error": found.error,
        "shown_at": moment(MACHINE.now_ms()),
    }
    output.record({name: value for name, value in head.items() if value is not None})
    output.rows(({"when": step["at"], "what": step["what"]} for step in steps), ("when", "what"))


@job.command("result", cls=StoreCommand)
@store_arguments()
@click.argument("job_id", metavar="JOB")
@click.pass_obj
def result(output: Output, address: str, queue: str, job_id: str, timeout: float) -> None:
    """Print what a completed job answered, as JSON.

    Otherwise the error says why there is none: not_finished, job_failed, job_cancelled, expired or not_found.
    """
    with open_queue(address, queue, timeout) as q, known_if_missing(q):
        found = q.result(job_id)
    output.document(found)


@job.command("ttl", cls=StoreCommand)
@store_arguments()
@click.argument("job_id", metavar="JOB")
@click.argument("ttl", metavar="DURATION", type=duration)
@click.pass_obj
def ttl(output: Output, address: str, queue: str, job_id: str, ttl: float, timeout: float) -> None:
    """Keep a job's result for so long from now on, or from its end on if it has not finished."""
    with open_queue(address, queue, timeout) as q, known_if_missing(q):
        q.update_result_ttl(job_id, ttl)
    output.record({"job_id": job_id, "result_ttl": ttl})


@job.command("purge", cls=StoreCommand)
@store_arguments(commits=True)
@click.argument("job_id", metavar="JOB")
@click.option("--yes", is_flag=True, help="Do it.")
@click.pass_obj
def purge(
    output: Output, address: str, queue: str, job_id: str, yes: bool, timeout: float, sinks: Sequence[Sink]
) -> None:
    """Erase a job for good: payload, result, id, its records in the archive and the backups. There is no way back.

    A job that waits is cancelled first; one that is being worked on is a conflict. Repeat the command after any error.
    """
    if not yes:
        raise click.UsageError("there is no way back: add --yes to erase the job.")
    with open_queue(address, queue, timeout, sinks=sinks) as q:
        found = existing_queue(q).purge(job_id)
    output.record({"job_id": job_id, **purged_fields(found)})
