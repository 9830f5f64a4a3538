"""From the tables to a report's data. Everything is added up by the engine.

What comes here is bounded by the numbers of queues, steps, workers and errors that are shown. Counts of whole hours are
those of the metrics; what is finer than an hour is counted anew. Percentiles are always those of the jobs: the
percentiles of hours cannot be added up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from msgspec.structs import replace

from ...core.state import COMPLETED
from ..engines.base import Engine, rows
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
    SuspectJobs,
    Totals,
    WeekHour,
    WorkerLoad,
    WorkerSection,
    step_for,
)
from .steps import loads_of, points_of

QUEUES_MAX, QUEUES_MIN = 20, 3  # with a section of their own
STEPS_MAX = 600  # of all sections: a page stays below a megabyte, and opens at once
WORKERS_MAX = 12  # a queue's
ERRORS_MAX = 10  # a queue's
TARGET_MS = 60_000  # where neither the caller nor the metrics have one
BINS_PER_DECADE = 6  # of a distribution; with more, whole milliseconds would leave holes

_COUNTS = ("enqueued", "completed", "failed", "cancelled", "retried", "stalled")
_ENDS = ("completed", "failed", "cancelled")  # of jobs
_LEASES = "completed + failed + stalled + released + cancelled"  # columns of the workers' metrics
_WEEK, _MONDAY = 7 * 24, 3 * 24  # hours: 1 January 1970 was a Thursday


def collect(
    engine: Engine,
    told: ReportTables,
    begins_ms: int,
    ends_ms: int,
    target_ms: int | None = None,
    title: str = TITLE,
) -> ReviewPage:
    """The report of a period."""
    step_ms = step_for(ends_ms - begins_ms)
    period = Period(begins_ms, ends_ms, step_ms, TARGET_MS if target_ms is None else target_ms)
    told = since(engine, told, period)
    if target_ms is None:
        period = replace(period, target_ms=_target(engine, told))
    everything, totals = _totals(engine, told, period)
    error, unmeasured = _first_error(engine, told), _unmeasured(engine, told, period)
    suspect = _suspect(engine, told)
    size = {name: own.enqueued + own.ended for name, own in totals.items()}
    names = sorted(totals, key=lambda name: (-totals[name].trouble, -size[name], name))
    shown = names[: sections_of(len(period.steps))]
    told = of_queues(engine, told, shown)
    points = points_of(engine, told, period)
    waits = _bins(engine, started(told, period), "wait_ms")
    runs = _bins(engine, completed_attempts(told, period), "run_ms")
    errors, workers, week = (
        _errors(engine, told),
        _workers(engine, told, period),
        _week(engine, told, period),
    )
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
        tuple((name, totals[name]) for name in names[len(shown) :]),
        title,
        error,
        unmeasured,
        suspect,
    )


def sections_of(steps: int) -> int:
    """How many queues have a section, where each has so many steps."""
    return max(QUEUES_MIN, min(QUEUES_MAX, STEPS_MAX // steps))


def _target(engine: Engine, told: ReportTables) -> int:
    """The target that the latest metrics of the period were made with."""
    latest = engine.sql(f"SELECT max_by(target_ms, start) AS target_ms FROM {told.hours}")
    (row,) = rows(engine, latest)
    return TARGET_MS if row["target_ms"] is None else int(row["target_ms"])


def _unmeasured(engine: Engine, told: ReportTables, period: Period) -> tuple[tuple[str, int], ...]:
    """The queues and days of which the metrics count other endings than there are jobs: they were never made, or before
    some of the jobs came.
    """
    found = engine.sql(f"""
        WITH counted AS (
          SELECT queue, {step_of("finished_at", DAY_MS)} AS day_ms, 1 AS more
          FROM {told.jobs} WHERE {between("finished_at", period.hours[0], period.hours[-1] + HOUR_MS)}
          UNION ALL
          SELECT queue, {step_of("start", DAY_MS)}, -({" + ".join(_ENDS)}) FROM {told.hours}
        )
        SELECT queue, day_ms FROM counted GROUP BY queue, day_ms HAVING sum(more) <> 0 ORDER BY queue, day_ms""")
    return tuple((row["queue"], row["day_ms"]) for row in rows(engine, found))


def _suspect(engine: Engine, told: ReportTables) -> tuple[SuspectJobs, ...]:
    """What is left out, by queue, the most first."""
    found = engine.sql(f"""
        SELECT queue, count(*) AS jobs, min(job_id) AS job_id, min_by(clock_suspect, job_id) AS moments
        FROM {told.suspect} GROUP BY queue ORDER BY jobs DESC, queue""")
    return tuple(SuspectJobs(**row) for row in rows(engine, found))


# ── Totals ───────────────────────────────────────────────────────────────────


def _totals(engine: Engine, told: ReportTables, period: Period) -> tuple[Totals, dict[str, Totals]]:
    """Of all queues, and by queue."""

    def by_queue(figures: str, of: Any) -> dict[str | None, dict[str, Any]]:
        """One row for each queue; under None that of all queues."""
        found = engine.sql(f"SELECT queue, {figures} FROM {of} GROUP BY ROLLUP(queue)")
        return {row["queue"]: row for row in rows(engine, found)}

    completed = f"state = '{COMPLETED}' AND total_ms IS NOT NULL"
    counts = by_queue(", ".join(f"sum({name}) AS {name}" for name in _COUNTS), told.hours)
    attempts = by_queue(f"sum({_LEASES}) AS attempts", told.workers)
    waits = by_queue(f"{waiting(period)}, {quantiles('wait_ms')}", started(told, period))
    runs = by_queue(quantiles("run_ms"), completed_attempts(told, period))
    wholes = by_queue(quantiles("total_ms"), f"{told.jobs} WHERE {completed} AND {period.has('finished_at')}")
    totals = {
        name: Totals(
            **{each: int(row[each] or 0) for each in _COUNTS},
            attempts=attempts[name]["attempts"] or 0 if name in attempts else 0,
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


# ── Distributions, hours of the week ─────────────────────────────────────────


def _bins(engine: Engine, those: str, of: str) -> dict[str, tuple[Bin, ...]]:
    """The distribution of a span over some rows, by queue."""
    # Which bar a span belongs to; null is the one below a millisecond.
    bar = f"cast(floor(log10(cast({of} AS double)) * {BINS_PER_DECADE} + 1e-9) AS int)"
    found = engine.sql(f"""
        SELECT queue, bar, count(*) AS number
        FROM (SELECT queue, CASE WHEN {of} >= 1 THEN {bar} END AS bar FROM {those}) AS bars
        GROUP BY queue, bar""")
    bins: dict[str, list[Bin]] = defaultdict(list)
    for row in rows(engine, found):
        bins[row["queue"]].append(_as_bin(row["bar"], row["number"]))
    return {queue: tuple(sorted(own, key=lambda each: each.low_ms)) for queue, own in bins.items()}


def _as_bin(index: int | None, count: int) -> Bin:
    if index is None:
        return Bin(0.0, 1.0, count)
    return Bin(10 ** (index / BINS_PER_DECADE), 10 ** ((index + 1) / BINS_PER_DECADE), count)


def _week(engine: Engine, told: ReportTables, period: Period) -> dict[str, tuple[WeekHour, ...]]:
    """The hours of the week, by queue; those of the period in which nothing happened, too."""
    hours = Counter((at_ms // HOUR_MS + _MONDAY) % _WEEK for at_ms in period.hours)

    def of_week(moment: str) -> str:
        return f"(({step_of(moment, HOUR_MS)}) / {HOUR_MS} + {_MONDAY}) % {_WEEK}"

    arrived = engine.sql(f"""
        SELECT queue, cast({of_week("start")} AS int) AS of_week, sum(enqueued) AS enqueued
        FROM {told.hours} GROUP BY queue, {of_week("start")}""")
    begun = engine.sql(f"""
        SELECT queue, cast({of_week("started_at")} AS int) AS of_week, {waiting(period)}
        FROM {started(told, period)} GROUP BY queue, {of_week("started_at")}""")
    counts: dict[str, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in (*rows(engine, arrived), *rows(engine, begun)):
        counts[row["queue"]][row["of_week"]] |= {
            name: int(value or 0) for name, value in row.items() if name not in ("queue", "of_week")
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


def _errors(engine: Engine, told: ReportTables) -> dict[str, tuple[tuple[Error, ...], int]]:
    """The most frequent errors by queue, and how many more there were."""
    found: dict[str, tuple[tuple[Error, ...], int]] = {}
    kinds = _kinds(told, "queue, fingerprint")
    for row in _most(engine, kinds, "number", "fingerprint", ERRORS_MAX):
        own, rest = found.get(row["queue"], ((), row["everything"]))
        error = _as_error(row)
        found[row["queue"]] = ((*own, error), rest - error.count)
    return found


def _first_error(engine: Engine, told: ReportTables) -> Error | None:
    """The most frequent one, over all queues."""
    found = engine.sql(f"{_kinds(told, 'fingerprint')} ORDER BY number DESC, fingerprint LIMIT 1")
    return next(map(_as_error, rows(engine, found)), None)


def _kinds(told: ReportTables, by: str) -> str:
    return f"""
        SELECT {by}, max_by(error_type, last_at) AS kind, max_by(example, last_at) AS example,
               sum(attempts) AS number, sum(deaths) AS deaths,
               unix_millis(min(first_at)) AS first_ms, unix_millis(max(last_at)) AS last_ms
        FROM {told.errors} GROUP BY {by}"""


def _as_error(row: dict[str, Any]) -> Error:
    return Error(
        row["fingerprint"],
        row["kind"] or "",
        row["example"] or "",
        row["number"],
        row["deaths"] or 0,
        row["first_ms"],
        row["last_ms"],
    )


def _workers(
    engine: Engine, told: ReportTables, period: Period
) -> dict[str, tuple[tuple[WorkerSection, ...], int]]:
    """The busiest workers by queue, and how many more there were."""
    busy = f"""
        SELECT queue, worker, sum(held_ms) AS held_ms, sum({_LEASES}) AS attempts,
               sum(failed + stalled) AS failed, sum(utilisation) * {HOUR_MS} AS used_ms
        FROM {told.workers} GROUP BY queue, worker"""
    shown = _most(engine, busy, "held_ms", "worker", WORKERS_MAX)
    loads: dict[tuple[str, str], list[WorkerLoad]] = defaultdict(list)
    names = sorted({row["worker"] for row in shown})
    for row in loads_of(engine, told, period, names):
        loads[row["queue"], row["worker"]].append(WorkerLoad(row["step_ms"], row["held_ms"] / period.step_ms))
    found: dict[str, tuple[tuple[WorkerSection, ...], int]] = {}
    for row in shown:
        own, rest = found.get(row["queue"], ((), row["those"]))
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


def _most(engine: Engine, of: str, by: str, then: str, most: int) -> list[dict[str, Any]]:
    """The highest rows of each queue, the highest first, with the number of rows and the sum of all."""
    found = engine.sql(f"""
        SELECT * FROM (
          SELECT *, row_number() OVER (PARTITION BY queue ORDER BY {by} DESC, {then}) AS place,
                 count(*) OVER (PARTITION BY queue) AS those, sum({by}) OVER (PARTITION BY queue) AS everything
          FROM ({of}) AS found
        ) AS ranked WHERE place <= {most} ORDER BY queue, place""")
    return rows(engine, found)
