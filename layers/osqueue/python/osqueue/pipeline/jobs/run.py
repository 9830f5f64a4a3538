"""All of it: compaction, metrics and the report, one after the other in one session.

    osqueue pipeline run file:///var/lib/jobs file:///var/lib/tables report.html
    spark-submit pipeline/jobs/run.py s3://bucket s3://other/tables s3://other/week.html --at 2026-01-05T10:10Z

Without ``--at`` it goes through the whole archive. With it, as a schedule runs it, through the latest hours of the
archive and the latest days of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime

from msgspec import Struct

from ...errors import NotFound, Rejected
from ..ended import ended
from ..engines.base import Engine
from ..stretch import Compacted
from . import command, compact, metrics, report
from .command import Progress, milliseconds, moment, silent


class PipelineRun(Struct, frozen=True):
    """What to go through, and where to put it."""

    store: str  # address of the store, with archive/ in it
    tables: str  # address of the folder of the tables
    out: str  # the HTML file to write
    queues: tuple[str, ...] = ()  # none: all
    target_ms: int = metrics.TARGET_MS  # the longest wait on target
    at: datetime | None = (
        None  # when the run was scheduled; None: go through everything, or the following range
    )
    since: datetime | None = (
        None  # without at: of the archive and of what is measured and reported; None: the first
    )
    until: datetime | None = None  # without at: the end; None: the last
    hours: int = compact.LOOK_BACK_HOURS  # with at: archived hours that had ended by then
    days: int = metrics.LOOK_BACK_DAYS  # with at: days before it that are measured anew and reported


class PipelineResult(Struct, frozen=True):
    """What each step did."""

    compacted: Compacted
    measured: metrics.MetricsResult
    reported: report.ReviewResult


def run(
    engine: Engine, config: PipelineRun, progress: Callable[[str], Progress] = lambda what: silent
) -> PipelineResult:
    """Compact, measure and report, with progress in things of a name. Raises what the steps raise."""
    for field in ("hours", "days"):
        if getattr(config, field) < 1:
            raise Rejected(f"{field}: it is less than 1. Give a number such as 3.", field=field)
    at, (store, root, queues) = config.at, (config.store, config.tables, config.queues)
    if at is not None and (config.since is not None or config.until is not None):
        raise Rejected("at: it sets the range by itself. Leave out since and until.", field="at")
    asked = config.since, config.until
    first, last = asked if at is None else compact.hours_before(at, config.hours)
    since, until = asked if at is None else metrics.days_before(at, config.days)
    archived = compact.Compaction(store, root, first, last, queues, catch_up=at is not None)
    compacted = compact.run(engine, archived, progress("archive parts"))
    measuring = metrics.Metrics(root, since, until, queues, config.target_ms)
    read = ended(engine, engine.place(root, "tables"), queues, None if since is None else _day(since))
    measured = metrics.run(engine, measuring, progress("tables of metrics"), read)
    try:
        reviewing = report.Review(root, config.out, since, until, queues, config.target_ms)
        reported = report.run(engine, reviewing, read)
    except NotFound as error:
        if compacted.parts:
            raise
        raise NotFound(
            f"store: the archive of {store} has no jobs of this range. Jobs that have ended get there when a reaper "
            "runs: osqueue reap."
        ) from error
    return PipelineResult(compacted, measured, reported)


def _day(at: datetime) -> date:
    return datetime.fromtimestamp(milliseconds(at, "since") / 1000, UTC).date()


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point for ``spark-submit``: prints what was done as one line of JSON."""
    parser = command.parser(__doc__)
    parser.add_argument("store", help="address of the store, with archive/ in it")
    parser.add_argument("tables", help="address of the folder of the tables")
    parser.add_argument("out", help="the HTML file to write")
    parser.add_argument(
        "--target-ms", type=int, default=metrics.TARGET_MS, help="the longest wait on target (60000)"
    )
    parser.add_argument("--at", type=moment, help="when the run was scheduled (go through everything)")
    parser.add_argument("--since", type=moment, help="without --at: the first hour (the first archived one)")
    parser.add_argument("--until", type=moment, help="without --at: the end (of the last archived hour)")
    parser.add_argument(
        "--hours",
        type=int,
        default=compact.LOOK_BACK_HOURS,
        help="with --at: hours to compact, the last that had ended (3)",
    )
    parser.add_argument(
        "--days",
        type=int,
        default=metrics.LOOK_BACK_DAYS,
        help="with --at: days to measure and report, up to it (7)",
    )
    parser.add_argument("--open", action="store_true", help="open the report in a browser")
    given = parser.parse_args(arguments)
    ranges = (given.at, given.since, given.until, given.hours, given.days)
    config = PipelineRun(given.store, given.tables, given.out, tuple(given.queue), given.target_ms, *ranges)
    done = command.finish(
        given.engine, command.archive_of(config.store), lambda engine: run(engine, config, command.told)
    )
    if given.open:
        command.show(done.reported.path)
    return 0
