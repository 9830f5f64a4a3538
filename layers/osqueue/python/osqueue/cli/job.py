"""``osqueue job …``: one job: its state, its result, and ending or erasing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..clock import MACHINE
from ..core.state import FAILED, QUEUED
from ..errors import Conflict, NotFound
from ..events import Sink
from ..model.explain import past_steps
from ..model.fields import moment
from ..model.included import PAYLOAD, JobDetails
from ..model.printable import as_json
from ..queue.blocking import Queue
from .contents import contents_options, fields_shown, include_asked, print_contents
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
  osqueue job show file://jobs emails order-1041 --payload --traceback --redact password
  osqueue job show file://jobs emails order-1041 --cancel
  osqueue job retry file://jobs emails order-1041
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


@click.group(
    "job", short_help="Show a job, its result; retry, cancel or purge it.", cls=JobGroup, epilog=EPILOG
)
def job() -> None:
    """Show a job, read its result or change how long that is kept, cancel the job or erase it.

    JOB is a job id or the client's own id. 'osqueue why' tells what happened to it.
    """


@job.command("show", cls=StoreCommand)
@store_arguments(commits=True)
@click.argument("job_id", metavar="JOB")
@click.option("--cancel", is_flag=True, help="Cancel it: at once if it waits, through its worker if it runs.")
@contents_options
@click.pass_obj
def show(
    output: Output,
    address: str,
    queue: str,
    job_id: str,
    cancel: bool,
    payload: bool,
    traceback: bool,
    redact: Sequence[str],
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """Show a job with its timeline, or cancel it. What the queue has forgotten, 'osqueue why' finds in the archive."""
    include = include_asked(payload, traceback, redact)
    if cancel and include:
        raise click.UsageError("--cancel shows no contents: leave out --payload and --traceback.")
    with open_queue(address, queue, timeout, sinks=sinks if cancel else ()) as q:
        if cancel:
            answer = q.cancel(job_id)
            if answer in ("completed", "failed"):
                raise Conflict(f"job {job_id}: it is {answer} already. Nothing was cancelled.")
            if answer != "not_found":
                output.record({"job_id": job_id, "cancel": answer})
                return
        found = None if cancel else q.status(job_id, include)
        if found is not None:
            _show(output, found, redact)
            return
        if not is_known(q):
            no_such_queue(q)
        raise NotFound(f"job {job_id}: not in this queue. It never was, or it is over and in the archive.")


def _show(output: Output, found: JobDetails, redact: Sequence[str]) -> None:
    steps = [{"at": step.at, "what": step.what} for step in past_steps(found)]
    fields = fields_shown(found, redact)
    if not output.tables:
        output.document({**fields, "timeline": steps})
        return
    head: dict[str, Any] = {
        "job": found.job_id,
        "state": found.state,
        "attempt": f"{found.attempt} of {found.max_attempts}",
        "worker": found.worker,
        "progress": None if found.progress is None else f"{found.progress:.0%}",
        "note": found.note,
        "due_at": found.due_at,
        "start_by": found.start_by,
        "expires_at": found.expires_at,
        "last_error": found.error,
        "shown_at": moment(MACHINE.now_ms()),
    }
    shown = {name: value for name, value in head.items() if value is not None}
    if PAYLOAD in fields:
        shown[PAYLOAD] = as_json(fields[PAYLOAD])
    output.record(shown)
    output.rows(({"when": step["at"], "what": step["what"]} for step in steps), ("when", "what"))
    print_contents(output, fields)


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


@job.command("run-now", cls=StoreCommand)
@store_arguments(commits=True)
@click.argument("job_id", metavar="JOB")
@click.pass_obj
def run_now(
    output: Output, address: str, queue: str, job_id: str, timeout: float, sinks: Sequence[Sink]
) -> None:
    """Let a job be claimable at once that waits for a time, or for its next attempt."""
    with open_queue(address, queue, timeout, sinks=sinks) as q, known_if_missing(q):
        _run_now(output, q, job_id)


@job.command("retry", cls=StoreCommand)
@store_arguments(commits=True)
@click.argument("job_id", metavar="JOB")
@click.pass_obj
def retry(
    output: Output, address: str, queue: str, job_id: str, timeout: float, sinks: Sequence[Sink]
) -> None:
    """Try a failed job again at once: a dead letter with all its attempts, one that waits for its next attempt now."""
    with open_queue(address, queue, timeout, sinks=sinks) as q, known_if_missing(q):
        if q.redrive(jobs=[job_id]):
            output.record({"job_id": job_id, "state": QUEUED, "redriven": True})
            return
        _run_now(output, q, job_id)


def _run_now(output: Output, q: Queue[Any], job_id: str) -> None:
    state = q.run_now(job_id)
    if state == "not_found":
        raise NotFound(f"job {job_id}: not in this queue. It never was, or it is over and in the archive.")
    if state == FAILED:
        raise Conflict(f"job {job_id}: it failed for good. 'osqueue job retry' queues it again.")
    if state != QUEUED:
        raise Conflict(f"job {job_id}: it is {state}, and does not wait.")
    output.record({"job_id": job_id, "state": state})


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
