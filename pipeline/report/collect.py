"""From the tables to a report's data. Everything is added up in Spark.

What comes here is bounded by the numbers of queues, steps, workers and errors that are shown. Counts of whole hours are
those of the metrics; what is finer than an hour is counted anew. Percentiles are always those of the jobs: the
percentiles of hours cannot be added up.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from osqueue.core.state import COMPLETED

from .history import (
    Period,
    ReportTables,
    as_quantiles,
    between,
    completed_attempts,
    of_queues,
    quantiles,
    since,
    started,
    step_of,
    waiting,
)
from .model import (
    DAY_MS,
    HOUR_MS,
    TITLE,
    Bin,
    Error,
    QueueSection,
    ReviewPage,
    Totals,
    WeekHour,
    WorkerLoad,
    WorkerSection,
    step_for,
)
from .steps import loads_of, points_of

QUEUES_MAX = 20  # with a section of their own
WORKERS_MAX = 12  # a queue's
ERRORS_MAX = 10  # a queue's
TARGET_MS = 60_000  # where neither the caller nor the metrics have one
BINS_PER_DECADE = 6  # of a distribution; with more, whole milliseconds would leave holes

_COUNTS = ("enqueued", "completed", "failed", "cancelled", "retried", "stalled")
_ENDS = ("completed", "failed", "cancelled")  # of jobs
_LEASE_ENDS = ("completed", "failed", "stalled", "released", "cancelled")  # columns of the workers' metrics


def collect(
    told: ReportTables, begins_ms: int, ends_ms: int, target_ms: int | None = None, title: str = TITLE
) -> ReviewPage:
    """The report of a period."""
    step_ms = step_for(ends_ms - begins_ms)
    period = Period(begins_ms, ends_ms, step_ms, TARGET_MS if target_ms is None else target_ms)
    told = since(told, period)
    if target_ms is None:
        period = replace(period, target_ms=_target(told))
    everything, totals = _totals(told, period)
    error, unmeasured = _first_error(told), _unmeasured(told, period)
    names = sorted(totals, key=lambda name: (-totals[name].enqueued - totals[name].ended, name))
    shown = names[:QUEUES_MAX]
    told = of_queues(told, shown)
    points, waits, runs = (
        points_of(told, period),
        _bins(started(told, period), "wait_ms"),
        _runs(told, period),
    )
    errors, workers, week = _errors(told, period), _workers(told, period), _week(told, period)
    queues = [
        QueueSection(
            name,
            totals[name],
            points.get(name, ()),
            waits.get(name, ()),
            runs.get(name, ()),
            *errors.get(name, ((), 0)),
            *workers.get(name, ((), 0)),
            week.get(name, ()),
        )
        for name in shown
    ]
    return ReviewPage(
        begins_ms,
        ends_ms,
        step_ms,
        period.target_ms,
        everything,
        tuple(queues),
        len(names) - len(shown),
        title,
        error,
        unmeasured,
    )


def _target(told: ReportTables) -> int:
    """The target that the latest metrics of the period were made with."""
    row = told.hours.agg(F.max_by("target_ms", "start").alias("target_ms")).first()
    return TARGET_MS if row is None or row["target_ms"] is None else int(row["target_ms"])


def _unmeasured(told: ReportTables, period: Period) -> tuple[tuple[str, int], ...]:
    """The queues and days of which the metrics count other endings than there are jobs: they were never made, or before
    some of the jobs came.
    """
    ended = between("finished_at", period.hours[0], period.hours[-1] + HOUR_MS)
    there = told.jobs.filter(ended).select("queue", step_of("finished_at", DAY_MS), F.lit(1).alias("more"))
    counted = sum((F.col(name) for name in _ENDS), F.lit(0))
    measured = told.hours.select("queue", step_of("start", DAY_MS), (-counted).alias("more"))
    days = there.union(measured).groupBy("queue", "at_ms").agg(F.sum("more").alias("more"))
    found = days.filter("more <> 0").orderBy("queue", "at_ms").collect()
    return tuple((row["queue"], row["at_ms"]) for row in found)


# ── Totals ───────────────────────────────────────────────────────────────────


def _totals(told: ReportTables, period: Period) -> tuple[Totals, dict[str, Totals]]:
    """Of all queues, and by queue."""
    counts = _by_queue(told.hours, *(F.sum(name).cast("long").alias(name) for name in _COUNTS))
    leases = sum((F.col(name) for name in _LEASE_ENDS), F.lit(0))
    attempts = _by_queue(told.workers, F.sum(leases).cast("long").alias("attempts"))
    waits = _by_queue(started(told, period), *waiting(period))
    runs = _by_queue(completed_attempts(told, period), quantiles("run_ms"))
    completed = told.jobs.filter((F.col("state") == COMPLETED) & F.col("total_ms").isNotNull())
    wholes = _by_queue(completed.filter(period.has("finished_at")), quantiles("total_ms"))
    totals = {
        name: Totals(
            **{each: int(row[each] or 0) for each in _COUNTS},
            attempts=attempts[name]["attempts"] if name in attempts else 0,
            started=waits[name]["started"] if name in waits else 0,
            in_time=waits[name]["in_time"] if name in waits else 0,
            wait=as_quantiles(waits.get(name)),
            run=as_quantiles(runs.get(name)),
            whole=as_quantiles(wholes.get(name)),
        )
        for name, row in counts.items()
    }
    everything = totals.pop(None, Totals())
    return everything, {name: each for name, each in totals.items() if name is not None}


def _by_queue(frame: DataFrame, *columns: Column) -> dict[str | None, Row]:
    """One row for each queue; under None that of all queues."""
    return {row["queue"]: row for row in frame.rollup("queue").agg(*columns).collect()}


# ── Distributions, hours of the week ─────────────────────────────────────────


def _runs(told: ReportTables, period: Period) -> dict[str, tuple[Bin, ...]]:
    return _bins(completed_attempts(told, period), "run_ms")


def _bins(frame: DataFrame, of: str) -> dict[str, tuple[Bin, ...]]:
    """The distribution of a span, by queue."""
    bins: dict[str, list[Bin]] = defaultdict(list)
    for row in frame.groupBy("queue", _bin(of)).count().orderBy("queue", "bin").collect():
        bins[row["queue"]].append(_as_bin(row["bin"], row["count"]))
    return {queue: tuple(own) for queue, own in bins.items()}


def _bin(of: str) -> Column:
    """Which bar of a distribution a span belongs to; null is the one below a millisecond."""
    return F.when(
        F.col(of) >= 1, F.floor(F.log10(F.col(of).cast("double")) * BINS_PER_DECADE + F.lit(1e-9))
    ).alias("bin")


def _as_bin(index: int | None, count: int) -> Bin:
    if index is None:
        return Bin(0.0, 1.0, count)
    return Bin(10 ** (index / BINS_PER_DECADE), 10 ** ((index + 1) / BINS_PER_DECADE), count)


def _week(told: ReportTables, period: Period) -> dict[str, tuple[WeekHour, ...]]:
    """The hours of the week, by queue; those of the period in which nothing happened, too."""
    hours = Counter((at_ms // DAY_MS + 3) % 7 * 24 + at_ms // HOUR_MS % 24 for at_ms in period.hours)

    def of_week(moment: str) -> Column:
        return (F.weekday(moment) * 24 + F.hour(moment)).alias("of_week")

    arrived = told.hours.groupBy("queue", of_week("start")).agg(F.sum("enqueued").alias("enqueued")).collect()
    begun = started(told, period).groupBy("queue", of_week("started_at")).agg(*waiting(period)[:2]).collect()
    counts: dict[str, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in (*arrived, *begun):
        counts[row["queue"]][row["of_week"]] |= {
            name: int(value or 0) for name, value in row.asDict().items() if name not in ("queue", "of_week")
        }
    return {
        queue: tuple(
            WeekHour(
                of_week // 24,
                of_week % 24,
                number,
                own[of_week].get("enqueued", 0),
                own[of_week].get("started", 0),
                own[of_week].get("in_time", 0),
            )
            for of_week, number in sorted(hours.items())
        )
        for queue, own in counts.items()
    }


# ── Errors and workers ───────────────────────────────────────────────────────


def _errors(told: ReportTables, period: Period) -> dict[str, tuple[tuple[Error, ...], int]]:
    """The most frequent errors by queue, and how many more there were."""
    found: dict[str, tuple[tuple[Error, ...], int]] = {}
    for row in _most(_kinds(told, "queue"), "number", "fingerprint", ERRORS_MAX):
        own, rest = found.get(row["queue"], ((), row["everything"]))
        error = _as_error(row)
        found[row["queue"]] = ((*own, error), rest - error.count)
    return found


def _first_error(told: ReportTables) -> Error | None:
    """The most frequent one, over all queues."""
    row = _kinds(told).orderBy(F.desc("number"), "fingerprint").first()
    return None if row is None else _as_error(row)


def _kinds(told: ReportTables, *by: str) -> DataFrame:
    return told.errors.groupBy(*by, "fingerprint").agg(
        F.max_by("error_type", "last_at").alias("kind"),
        F.max_by("example", "last_at").alias("example"),
        F.sum("attempts").alias("number"),
        F.sum("deaths").alias("deaths"),
        F.unix_millis(F.min("first_at")).alias("first_ms"),
        F.unix_millis(F.max("last_at")).alias("last_ms"),
    )


def _as_error(row: Row) -> Error:
    return Error(
        row["fingerprint"],
        row["kind"] or "",
        row["example"] or "",
        row["number"],
        row["deaths"] or 0,
        row["first_ms"],
        row["last_ms"],
    )


def _workers(told: ReportTables, period: Period) -> dict[str, tuple[tuple[WorkerSection, ...], int]]:
    """The busiest workers by queue, and how many more there were."""
    leases = sum((F.col(name) for name in _LEASE_ENDS), F.lit(0))
    busy = told.workers.groupBy("queue", "worker").agg(
        F.sum("held_ms").alias("held_ms"),
        F.sum(leases).alias("attempts"),
        F.sum(F.col("failed") + F.col("stalled")).alias("failed"),
        (F.sum("utilisation") * HOUR_MS).alias("used_ms"),
    )
    rows = _most(busy, "held_ms", "worker", WORKERS_MAX)
    loads: dict[tuple[str, str], list[WorkerLoad]] = defaultdict(list)
    names = sorted({row["worker"] for row in rows})
    for row in loads_of(told, period, names).collect():
        loads[row["queue"], row["worker"]].append(WorkerLoad(row["at_ms"], row["held_ms"] / period.step_ms))
    found: dict[str, tuple[tuple[WorkerSection, ...], int]] = {}
    for row in rows:
        own, rest = found.get(row["queue"], ((), row["rows"]))
        worker = WorkerSection(
            row["worker"],
            row["attempts"],
            row["failed"],
            row["held_ms"],
            min(1.0, row["used_ms"] / (period.ends_ms - period.begins_ms)),
            tuple(loads[row["queue"], row["worker"]]),
        )
        found[row["queue"]] = ((*own, worker), rest - 1)
    return found


def _most(frame: DataFrame, by: str, then: str, most: int) -> list[Row]:
    """The highest rows of each queue, the highest first, with the number of rows and the sum of all."""
    queue = Window.partitionBy("queue")
    ranked = frame.select(
        "*",
        F.row_number().over(queue.orderBy(F.desc(by), then)).alias("rank"),
        F.count("*").over(queue).alias("rows"),
        F.sum(by).over(queue).alias("everything"),
    )
    return ranked.filter(F.col("rank") <= most).orderBy("queue", "rank").collect()
