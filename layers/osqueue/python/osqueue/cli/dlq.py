"""``osqueue dlq …``: dead letters, one by one or by the error they died of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from ..errors import NotFound
from ..events import Sink
from ..model.dead_letters import DeadLetter
from ..model.included import PAYLOAD
from ..model.printable import as_json
from ..model.reports import Purged
from ..objects.listing import PAGE_MAX
from ..queue.blocking import Queue
from .contents import contents_options, fields_shown, include_asked, print_contents
from .options import StoreCommand, existing_queue, open_queue, store_arguments
from .output import Output

LETTER_COLUMNS = ("job_id", "fingerprint", "kind", "attempts", "failed_at", "worker", "error")
GROUP_COLUMNS = ("fingerprint", "count", "first_at", "last_at", "error")
NONE = "no dead letters found"
PURGED_AT_ONCE = 200

F = TypeVar("F", bound=Callable[..., Any])

EPILOG = """\b
Examples:
  osqueue dlq groups s3://bucket/prefix emails
  osqueue dlq ls s3://bucket/prefix emails --fingerprint 7aa82829
  osqueue dlq redrive s3://bucket/prefix emails --fingerprint 7aa82829 --rate 50
"""


@click.group("dlq", short_help="Look at dead letters, redrive or purge them.", epilog=EPILOG)
def dlq() -> None:
    """Look at dead letters (jobs that failed for good), queue them again, or erase them."""


def _filters(function: F) -> F:
    function = click.option("--error", help="Only jobs whose last error contains this.")(function)
    return click.option("--kind", "kinds", multiple=True, help="Only this kind; may be repeated.")(function)


_fingerprint = click.option(
    "--fingerprint", help="Only jobs that died of this error; 'dlq groups' shows which."
)


@dlq.command("ls", cls=StoreCommand)
@store_arguments()
@_filters
@_fingerprint
@click.option("--limit", type=int, default=100, show_default=True, help="Most jobs on the page.")
@click.option("--cursor", help="Where the last page ended.")
@contents_options
@click.pass_obj
def ls(
    output: Output,
    address: str,
    queue: str,
    kinds: Sequence[str],
    error: str | None,
    fingerprint: str | None,
    limit: int,
    cursor: str | None,
    payload: bool,
    traceback: bool,
    redact: Sequence[str],
    timeout: float,
) -> None:
    """List dead letters, page by page, the oldest first.

    As JSON: one document, {"dead_letters": [...], "cursor": ...}; the cursor is null on the last page.
    """
    include = include_asked(payload, traceback, redact)
    with open_queue(address, queue, timeout) as q:
        found, following = existing_queue(q).dead_letters(
            limit, cursor, list(kinds) or None, error, fingerprint, include
        )
    letters = [fields_shown(each, redact) for each in found]
    if not output.tables:
        output.document({"dead_letters": letters, "cursor": following})
        return
    output.rows(letters, LETTER_COLUMNS, none=NONE)
    for fields in letters if include else ():
        output.text("")
        output.text(fields["job_id"])
        if PAYLOAD in fields:
            output.text(as_json(fields[PAYLOAD]))
        print_contents(output, fields)
    if following:
        output.note(f"more: --cursor {following}")


@dlq.command("groups", cls=StoreCommand)
@store_arguments()
@_filters
@click.pass_obj
def groups(
    output: Output, address: str, queue: str, kinds: Sequence[str], error: str | None, timeout: float
) -> None:
    """Group dead letters by the error they died of, the largest group first. Reads all of them."""
    with open_queue(address, queue, timeout) as q:
        found = existing_queue(q).dead_letter_groups(list(kinds) or None, error)
    output.rows((msgspec.structs.asdict(each) for each in found), GROUP_COLUMNS, none=NONE)


@dlq.command("redrive", cls=StoreCommand)
@store_arguments(commits=True)
@_filters
@_fingerprint
@click.option("--job", "jobs", multiple=True, metavar="JOB", help="Only this job; may be repeated.")
@click.option("--limit", type=int, help="Most jobs to redrive, the oldest first.")
@click.option("--rate", type=float, help="Most jobs a second: spread them out.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.pass_obj
def redrive(
    output: Output,
    address: str,
    queue: str,
    kinds: Sequence[str],
    error: str | None,
    fingerprint: str | None,
    jobs: Sequence[str],
    limit: int | None,
    rate: float | None,
    dry_run: bool,
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """Queue dead jobs again; their attempts start from 1.

    It may be stopped at any time: what was not queued yet is still dead. Repeat it to go on.
    """
    with open_queue(address, queue, timeout, sinks=sinks) as q:
        count = existing_queue(q).redrive(
            limit=limit,
            kinds=list(kinds) or None,
            error=error,
            dry_run=dry_run,
            fingerprint=fingerprint,
            rate=rate,
            jobs=jobs or None,
        )
    if jobs and not count:
        raise NotFound("none of these jobs is a dead letter. 'osqueue why' tells what became of each.")
    output.record({"queue": queue, "would_redrive" if dry_run else "redriven": count})


@dlq.command("purge", cls=StoreCommand)
@store_arguments(commits=True)
@_filters
@_fingerprint
@click.option("--limit", type=int, help="Most jobs to purge, the oldest first.")
@click.option("--yes", is_flag=True, help="Do it. Without this they are only counted.")
@click.pass_obj
def purge(
    output: Output,
    address: str,
    queue: str,
    kinds: Sequence[str],
    error: str | None,
    fingerprint: str | None,
    limit: int | None,
    yes: bool,
    timeout: float,
    sinks: Sequence[Sink],
) -> None:
    """Erase dead jobs for good, with their records in the archive and the backups. There is no way back.

    What is no dead letter any more when its turn comes is left alone, and counted. All the same let nobody redrive
    meanwhile. It may be stopped at any time and repeated. See 'osqueue job purge'.
    """
    with open_queue(address, queue, timeout, sinks=sinks) as q:
        wanted = _all(
            existing_queue(q), limit, kinds=list(kinds) or None, error=error, fingerprint=fingerprint
        )
        if not yes:
            output.record({"queue": queue, "would_purge": len(wanted)})
            output.note("nothing was erased: add --yes to do it")
            return
        total = Purged(())
        for at in range(0, len(wanted), PURGED_AT_ONCE):
            total += q.purge([each.job_id for each in wanted[at : at + PURGED_AT_ONCE]], dead_only=True)
    alive = len(wanted) - len(total.jobs)
    output.record({"queue": queue, **purged_fields(total), "no_longer_dead": alive})


def _all(q: Queue[Any], limit: int | None, **which: Any) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    cursor = None
    while limit is None or len(found) < limit:
        page, cursor = q.dead_letters(PAGE_MAX, cursor, **which)
        found.extend(page)
        if cursor is None:
            break
    return found[:limit]


def purged_fields(found: Purged) -> dict[str, Any]:
    """A purge's report as an answer."""
    fields: dict[str, Any] = msgspec.structs.asdict(found)
    return {"purged": len(fields.pop("jobs")), **fields}
