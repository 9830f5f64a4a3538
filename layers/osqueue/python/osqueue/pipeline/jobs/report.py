"""The operations review: from the tables to one HTML file.

    spark-submit pipeline/jobs/report.py s3://bucket/tables s3://bucket/reports/week.html --since 2026-01-05T00:00Z

Counts, errors, workers and depths are those of the metrics, so run these first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from glob import escape
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ...clock import MACHINE
from ...errors import NotFound, Rejected, Unavailable
from ...model.validation import queue_name
from .. import files
from ..ended import EndedJobs, by_queue
from ..engines.base import Engine, rows
from ..places import place
from ..report.before import before
from ..report.collect import collect
from ..report.history import ReportTables, history
from ..report.model import HOUR_MS, TITLE
from ..report.page import page
from . import command
from .command import milliseconds, moment
from .metrics import ends_of

LEFTOVER_MS_MAX = 3_600_000  # a draft of the page older than this belongs to a run that was killed


class Review(Struct, frozen=True):
    """What to report."""

    tables: str  # address of the folder of the tables
    out: str  # the file to write: a path, file:// or, on EMR, s3://
    since: datetime | None = None  # from the hour of this moment on; None: from the first thing that happened
    until: datetime | None = None  # up to the hour of this moment; None: up to the last thing that happened
    queues: tuple[str, ...] = ()  # none: all
    target_ms: int | None = None  # how long a job may wait; None: as the metrics have it
    title: str = TITLE


class ReviewResult(Struct, frozen=True):
    """What a run wrote."""

    path: str
    bytes: int
    queues: int
    jobs: int  # that arrived in the period
    since: str
    until: str
    clock_suspect: int = 0  # jobs that were left out: their moments cannot be


def run(engine: Engine, config: Review, read: EndedJobs | None = None) -> ReviewResult:
    """Write the report and say where it is. ``read`` are the jobs, if somebody has read them."""
    root, out = engine.place(config.tables, "tables"), place(config.out, "out")
    if config.target_ms is not None and config.target_ms < 0:
        raise Rejected("target_ms: it is below zero. Give milliseconds, such as 60000.", field="target_ms")
    hour = _hour(config.since, "since")
    first = None if hour is None else datetime.fromtimestamp(hour / 1000, UTC).date()
    until = _hour(config.until, "until")
    last = None if until is None else datetime.fromtimestamp(until / 1000, UTC).date()
    queues = tuple(map(queue_name, config.queues))
    told = history(engine, root, queues, first, last, read)
    begins_ms, ends_ms = _period(engine, told, config)
    report = collect(engine, told, begins_ms, ends_ms, config.target_ms, config.title)
    report = replace(report, before=before(engine, told, report, queues, first))
    if not report.queues and report.unmeasured:
        raise NotFound(
            f"tables: {root} has jobs of this period, but no metrics. First run osqueue pipeline metrics."
        )
    text = page(report).encode()
    _write(out, text)
    return ReviewResult(
        path=out.removeprefix("file://"),
        bytes=len(text),
        queues=len(report.queues) + len(report.others),
        jobs=report.totals.enqueued,
        since=_iso(report.begins_ms),
        until=_iso(report.ends_ms),
        clock_suspect=sum(each.jobs for each in report.suspect),
    )


def _period(engine: Engine, told: ReportTables, config: Review) -> tuple[int, int]:
    """The hours asked for; where none are, from the first arrival to the last end."""
    since, until = _hour(config.since, "since"), _hour(config.until, "until")
    if since is None or until is None:
        (ends,) = rows(engine, ends_of(engine, told.jobs))
        if ends["first"] is None:
            suspect = sum(by_queue(engine, told.suspect).values())
            if suspect:
                raise NotFound(
                    f"tables: {told.root} has no other jobs than {suspect:,} whose moments the store's clock does not "
                    "allow. Look at them: SELECT job_id, clock_suspect FROM jobs."
                )
            raise NotFound(
                f"tables: {told.root} has no jobs. Compact an archive first: osqueue pipeline compact."
            )
        since = ends["first"] if since is None else since
        until = ends["last"] + 1 if until is None else until
    if since >= until:
        raise Rejected("until: the period ends before it begins. Give a later moment.", field="until")
    return since, until


def _hour(at: datetime | None, field: str) -> int | None:
    if at is None:
        return None
    return milliseconds(at, field) // HOUR_MS * HOUR_MS


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _write(out: str, text: bytes) -> None:
    """Replace the file: whoever reads it sees the old one or the new one."""
    folder, _, name = out.rpartition("/")
    if out.startswith("s3://"):
        with files.at(folder) as store:
            store.run(files.replace(name, text))
        return
    path = Path(out.removeprefix("file://"))
    # Runs at once have a draft each: of one name, one run would make the page of the half that another has written.
    draft = path.with_name(f".{path.name}.{MACHINE.name()}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(text)
        draft.replace(path)
        for each in path.parent.glob(f".{escape(path.name)}.*.draft"):
            with suppress(FileNotFoundError):  # its run has ended just now
                if each.stat().st_mtime_ns < (MACHINE.now_ms() - LEFTOVER_MS_MAX) * 1_000_000:
                    each.unlink()
    except OSError as error:
        raise Unavailable(
            f"{path} could not be written: {error.strerror}. Name another file as out."
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point for ``spark-submit``: prints what was written as one line of JSON."""
    parser = command.parser(__doc__)
    parser.add_argument("tables", help="address of the folder of the tables")
    parser.add_argument("out", help="the HTML file to write")
    parser.add_argument("--since", type=moment, help="the first hour (when the first job arrived)")
    parser.add_argument("--until", type=moment, help="the end (when the last job ended)")
    parser.add_argument("--target-ms", type=int, help="how long a job may wait (as the metrics have it)")
    parser.add_argument("--title", default=TITLE, help="the page's heading")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    given = parser.parse_args(arguments)
    config = Review(
        given.tables, given.out, given.since, given.until, tuple(given.queue), given.target_ms, given.title
    )
    done = command.finish(given.engine, command.tables_of(config.tables), lambda engine: run(engine, config))
    if given.open:
        command.show(done.path)
    return 0
