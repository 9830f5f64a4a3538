"""``osqueue archive …``: reading what finished, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import click
import msgspec

from ..clock import MACHINE
from ..commit.driver import BlockingDriver
from ..core.archive_record import ArchiveRecord, decode_part
from ..core.state import CANCELLED, COMPLETED, FAILED
from ..model.job import archived_view
from ..objects import archive as parts
from ..objects.archive_summary import Summary
from ..objects.layout import unavailable
from ..queue.blocking import Queue
from ..stores.base import Found, Get, Missing
from .options import StoreCommand, archived_queue, moment, open_queue, store_arguments
from .output import Output
from .record_files import FORMATS, RecordFile
from .replay import replay

HOUR_COLUMNS = ("hour", "parts", "records", "bytes")
CAT_COLUMNS = ("finished_at", "job_id", "state", "kind", "run", "error")
QUERY_COLUMNS = (
    *("hour", "count", "completed", "failed", "cancelled"),
    *("wait_p50", "wait_p95", "run_p50", "run_p95"),
)
FAILURE_COLUMNS = ("fingerprint", "count", "dead", "last_at", "error")
FAILURES_SHOWN = 10

F = TypeVar("F", bound=Callable[..., Any])

EPILOG = """\b
Examples:
  osqueue archive ls s3://bucket/prefix emails --since 2030-01-31T00:00:00Z
  osqueue archive cat s3://bucket/prefix emails --state failed --limit 100
  osqueue archive cat s3://bucket/prefix emails --format parquet --output emails.parquet
  osqueue archive query s3://bucket/prefix emails --since 2030-01-31T00:00:00Z
  osqueue archive replay s3://bucket/prefix emails --since 2030-01-31T00:00:00Z --into emails-again
"""


@click.group("archive", short_help="Read, sum up and replay what finished.", epilog=EPILOG)
def archive() -> None:
    """Read the records of finished jobs, hour by hour, sum them up, and enqueue their jobs again."""


archive.add_command(replay)


def _window(function: F) -> F:
    function = click.option("--until", type=moment, help="Only what finished before this time.")(function)
    return click.option("--since", type=moment, help="Only what finished at this time or later.")(function)


def _records(
    q: Queue[Any], since: datetime | float | None, until: datetime | float | None
) -> Iterator[ArchiveRecord]:
    """The records of a queue's archive, each once."""
    run = BlockingDriver(q.store, MACHINE).run
    pages = parts.RecordPager(q.name, since, until)
    while (page := run(pages.page())) is not None:
        yield from page


def _nothing(q: Queue[Any]) -> str:
    """Why the answer is empty."""
    found = q.stats()
    if found["counters"].get("archived"):
        return "nothing in the archive matches"
    if found["finished"]:
        return "nothing was archived yet: the jobs that are over wait for 'osqueue reap', which a schedule should run"
    return "nothing was archived yet: no job is over"


@archive.command("ls", cls=StoreCommand)
@store_arguments()
@click.option("--since", type=moment, help="From the hour of this time on.")
@click.option("--until", type=moment, help="Only hours that begin before this time.")
@click.option("--names", is_flag=True, help="Only the names of the parts: reads none of them.")
@click.pass_obj
def ls(
    output: Output,
    address: str,
    queue: str,
    since: datetime | float | None,
    until: datetime | float | None,
    names: bool,
    timeout: float,
) -> None:
    """List the archive hour by hour: parts, records (repeated ones counted twice) and bytes.

    The hours are those in which the records were written.
    """
    since_ms, until_ms = parts.window(since, until)
    end = None if until_ms is None else parts.hour_of(queue, until_ms - 1)
    with open_queue(address, queue, timeout) as q:
        found = _names(archived_queue(q), since_ms, end)
        if names:
            output.rows(({"part": name} for name in found), ("part",), none=lambda: _nothing(q))
        else:
            output.rows(_hours(q, found), HOUR_COLUMNS, none=lambda: _nothing(q))


def _names(q: Queue[Any], since_ms: int | None, end: str | None) -> Iterator[str]:
    run = BlockingDriver(q.store, MACHINE).run
    after = ""
    while page := run(parts.parts(q.name, since_ms, after)):
        for name in page:
            if end is not None and name.rpartition("/")[0] + "/" > end:
                return
            yield name
        after = page[-1]


def _hours(q: Queue[Any], names: Iterator[str]) -> Iterator[dict[str, Any]]:
    hour: dict[str, Any] = {}
    for name in names:
        reply = q.store.perform(Get(name))
        if isinstance(reply, Missing):
            continue
        if not isinstance(reply, Found):
            raise unavailable(reply, name)
        date, _, number = name.rpartition("/")[0].partition("date=")[2].partition("/hour=")
        begins = f"{date}T{number}:00:00Z"
        if hour and hour["hour"] != begins:
            yield hour
            hour = {}
        hour = hour or {"hour": begins, "parts": 0, "records": 0, "bytes": 0}
        hour["parts"] += 1
        hour["records"] += len(decode_part(reply.body, name))
        hour["bytes"] += len(reply.body)
    if hour:
        yield hour


@archive.command("cat", cls=StoreCommand)
@store_arguments()
@_window
@click.option("--state", type=click.Choice((COMPLETED, FAILED, CANCELLED)), help="Only jobs that ended so.")
@click.option("--kind", help="Only this kind.")
@click.option("--job", "job_id", help="Only this job, by job id or by the client's own id.")
@click.option("--limit", type=click.IntRange(1), help="Most records to print.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Print the records so, also on a terminal."
)
@click.option(
    "--output", "-o", "path", type=click.Path(dir_okay=False), help="Write them to this file.  [default: -]"
)
@click.pass_obj
def cat(
    output: Output,
    address: str,
    queue: str,
    since: datetime | float | None,
    until: datetime | float | None,
    state: str | None,
    kind: str | None,
    job_id: str | None,
    limit: int | None,
    form: str | None,
    path: str | None,
    timeout: float,
) -> None:
    """Print records of finished jobs, in the order of the archive, each once.

    As JSON: one record a line, as the archive has it. CSV and Parquet have a column for each field of a record,
    also for those that a record leaves out.
    """
    if form is None and path is not None:
        raise click.UsageError("--output: say which --format the file is to have.")
    file = None if form is None else RecordFile(form, path)
    with open_queue(address, queue, timeout) as q:
        found = (
            record
            for record in _records(archived_queue(q), since, until)
            if (state is None or record.state == state)
            and (kind is None or record.kind == kind)
            and (job_id is None or job_id in (record.job_id, record.client_id))
        )
        if file is not None:
            if not file.write(islice(found, limit)):
                output.note(_nothing(q))
            return
        rows = (_row(output, record) for record in islice(found, limit))
        output.rows(rows, CAT_COLUMNS, none=lambda: _nothing(q))


def _row(output: Output, record: ArchiveRecord) -> dict[str, Any]:
    if not output.tables:
        fields: dict[str, Any] = msgspec.to_builtins(record)
        return fields
    job = archived_view(record)
    return {**msgspec.structs.asdict(job), "run": record.run}


@archive.command("query", cls=StoreCommand)
@store_arguments()
@_window
@click.option("--kind", help="Only this kind.")
@click.pass_obj
def query(
    output: Output,
    address: str,
    queue: str,
    since: datetime | float | None,
    until: datetime | float | None,
    kind: str | None,
    timeout: float,
) -> None:
    """Sum up what finished, hour by hour: how many, how long they waited and ran, and what attempts failed of.

    wait and run are in seconds, to half a percent. As JSON: one document, {"hours": [...], "total": {...},
    "failures": [...]}.
    """
    summary = Summary()
    with open_queue(address, queue, timeout) as q:
        for record in _records(archived_queue(q), since, until):
            if kind is None or record.kind == kind:
                summary.add(record)
    if not output.tables:
        output.document({"hours": summary.hours(), "total": summary.total(), "failures": summary.failures()})
        return
    hours = [msgspec.structs.asdict(each) for each in (*summary.hours(), summary.total())]
    for row in hours:
        row["hour"] = "all" if row["hour"] is None else f"{row['hour']:%Y-%m-%d %H}h"
    output.rows(hours, QUERY_COLUMNS)
    failures = summary.failures()
    if failures:
        shown = (msgspec.structs.asdict(each) for each in failures[:FAILURES_SHOWN])
        output.rows(shown, FAILURE_COLUMNS, title="failures")
    if len(failures) > FAILURES_SHOWN:
        output.note(f"and {len(failures) - FAILURES_SHOWN} other errors. --json shows all.")
