"""Metrics: what each queue did, hour by hour and day by day, from the tables ``jobs`` and ``attempts``.

    spark-submit pipeline/jobs/metrics.py s3://bucket/tables --since 2026-01-05 --until 2026-01-12

Whole days are computed anew and replaced. A job becomes part of them once it has ended and is compacted: arrivals and
depth of hours whose jobs have not all ended rise until they have, so go over the last days again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from ...commit.effects import together
from ...errors import Rejected
from ...model.validation import queue_name
from .. import figures, files, tables
from ..ended import EndedJobs, by_queue, ended
from ..engines.base import Engine, Relation, rows
from ..figures import DAY_MS, FigureWindow
from ..tables import (
    METRICS_DAILY,
    METRICS_ERRORS,
    METRICS_HOURLY,
    METRICS_WORKERS,
    TableSpec,
)
from . import command
from .command import Progress, milliseconds, moment, silent

TARGET_MS = 60_000
LOOK_BACK_DAYS = 7


class Metrics(Struct, frozen=True):
    """What to compute."""

    tables: str  # address of the folder of the tables
    since: datetime | None = None  # from the day of this moment on, UTC; None: from the first job's on
    until: datetime | None = (
        None  # up to the day before this moment's, unless it is later than 0:00; None: the end
    )
    queues: tuple[str, ...] = ()  # none: all
    target_ms: int = TARGET_MS  # the longest wait that is on target, milliseconds


class MetricsResult(Struct, frozen=True):
    """What a run did."""

    since: datetime | None = None  # the days it is about; None: there are no jobs
    until: datetime | None = None
    rows: dict[str, int] = {}  # of each table
    clock_suspect: dict[str, int] = {}  # jobs that were left out, by queue: their moments cannot be


def run(
    engine: Engine, config: Metrics, progress: Progress = silent, read: EndedJobs | None = None
) -> MetricsResult:
    """Replace the metrics of a range of days, from the jobs that somebody has read for it, or those of the tables."""
    root = engine.place(config.tables, "tables")
    queues = tuple(map(queue_name, config.queues))
    if config.target_ms < 0:
        raise Rejected("target_ms: it is less than 0. Give milliseconds, such as 60000.", field="target_ms")
    since, until = _day(config.since, "since"), _day(config.until, "until", up=True)
    if since is not None and until is not None and since >= until:
        raise Rejected("until: it is not after the day of since. Give a later moment.", field="until")
    # A job is archived in the hour of its end or a later one.
    told = read or ended(engine, root, queues, None if since is None else _moment(since).date())
    jobs, attempts, suspect = told.jobs, told.attempts, by_queue(engine, told.suspect)
    (ends,) = rows(engine, ends_of(engine, jobs))
    first = since if since is not None else _floor(ends["first"]) if ends["first"] is not None else until
    last = (
        until if until is not None else _floor(ends["last"]) + DAY_MS if ends["last"] is not None else since
    )
    if first is None or last is None or first >= last:
        return MetricsResult(clock_suspect=suspect)
    over = FigureWindow(first, last)
    counts = {}
    with (
        engine.kept(figures.events(engine, jobs, attempts)) as events,
        engine.kept(figures.depths(engine, events, over)) as depths,
    ):
        relations = {
            METRICS_HOURLY: figures.summed(engine, events, depths, over, config.target_ms),
            METRICS_DAILY: figures.summed(engine, events, depths, over, config.target_ms, DAY_MS),
            METRICS_WORKERS: figures.workers(engine, attempts, over),
            METRICS_ERRORS: figures.errors(engine, attempts, over),
        }
        for done, (table, relation) in enumerate(relations.items(), start=1):
            written = tables.write(engine.arrow(relation), root, table)
            counts[table.name] = sum(written.values())
            _empty(root, table, queues, first, last, written.keys())
            progress(done, len(relations))
    return MetricsResult(_moment(first), _moment(last), counts, suspect)


def ends_of(engine: Engine, jobs: Relation) -> Relation:
    """When the first job arrived, and when the last one ended; null: there are none."""
    return engine.sql(
        f"SELECT unix_millis(min(enqueued_at)) AS first, unix_millis(max(finished_at)) AS last FROM {jobs}"
    )


def _empty(
    root: str, table: TableSpec, queues: Sequence[str], first: int, last: int, kept: Collection[str]
) -> None:
    """Remove the days of a range that have no rows now."""
    there = files.days(root, table.name, queues, _moment(first).date())
    before = f"{_moment(last).date()}"
    gone = [each for each in there if each not in kept and each.rpartition("=")[2] < before]
    with files.at(root) as held:
        held.run(together([files.replace(files.key_of(table.name, each), None) for each in gone]))


def _day(at: datetime | None, field: str, up: bool = False) -> int | None:
    if at is None:
        return None
    ms = milliseconds(at, field)
    return _floor(ms + DAY_MS - 1) if up else _floor(ms)


def _floor(ms: int) -> int:
    return ms // DAY_MS * DAY_MS


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def days_before(at: datetime, look_back: int = LOOK_BACK_DAYS) -> tuple[datetime, datetime]:
    """The days that a run scheduled for a moment goes over: the one it falls into and so many before."""
    return at - timedelta(days=look_back), at


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point for ``spark-submit``: prints what was done as one line of JSON."""
    parser = command.parser(__doc__)
    parser.add_argument("tables", help="address of the folder of the tables")
    parser.add_argument("--since", type=moment, help="the first day, UTC (the first job's)")
    parser.add_argument("--until", type=moment, help="the end, UTC (of the last job's day)")
    parser.add_argument("--at", type=moment, help="when the run was scheduled, for --look-back")
    parser.add_argument("--look-back", type=int, default=LOOK_BACK_DAYS, help="days before --at's (7)")
    parser.add_argument("--target-ms", type=int, default=TARGET_MS, help="the longest wait on target (60000)")
    given = parser.parse_args(arguments)
    if given.at is not None and (given.since is not None or given.until is not None):
        parser.error("--at sets the days by itself: leave out --since and --until")
    since, until = days_before(given.at, given.look_back) if given.at else (given.since, given.until)
    config = Metrics(given.tables, since, until, tuple(given.queue), given.target_ms)

    def act(engine: Engine) -> MetricsResult:
        return run(engine, config, command.told("tables of metrics"))

    command.finish(given.engine, command.tables_of(config.tables), act)
    return 0
