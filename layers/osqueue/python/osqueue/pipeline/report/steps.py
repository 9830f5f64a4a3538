"""What happened in each step of the period, and how busy each worker was in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ...core.state import COMPLETED, FAILED, STALLED
from ..engines.base import Engine, Relation, rows
from .history import Period, ReportTables, as_quantiles, names, quantiles, started, step_of, waiting
from .model import HOUR_MS, Point

COUNTS = ("enqueued", "completed", "failed", "retried", "stalled")


def points_of(engine: Engine, told: ReportTables, period: Period) -> dict[str, tuple[Point, ...]]:
    """What happened in each step, by queue."""
    told_by_metrics = period.step_ms % HOUR_MS == 0
    counts = _hourly(engine, told, period) if told_by_metrics else _counted(engine, told, period)
    depth = _hourly_depth(engine, told, period) if told_by_metrics else _fine_depth(engine, told, period)
    depths = _depths(rows(engine, depth), period)
    begun = engine.sql(f"""
        SELECT queue, {step_of("started_at", period.step_ms)} AS step_ms, {waiting(period)}, {quantiles("wait_ms")}
        FROM {started(told, period)} GROUP BY queue, {step_of("started_at", period.step_ms)}""")
    waits = {(row["queue"], row["step_ms"]): row for row in rows(engine, begun)}
    points: dict[str, list[Point]] = defaultdict(list)
    for queue, at_ms in sorted({*counts, *depths, *waits}):
        wait = waits.get((queue, at_ms))
        points[queue].append(
            Point(
                at_ms,
                **counts.get((queue, at_ms), {}),
                started=wait["started"] if wait else 0,
                in_time=wait["in_time"] if wait else 0,
                depth=depths.get((queue, at_ms), 0),
                wait=as_quantiles(wait),
            )
        )
    return {queue: tuple(own) for queue, own in points.items()}


def _hourly(engine: Engine, told: ReportTables, period: Period) -> dict[tuple[str, int], dict[str, int]]:
    """Counts by queue and step, from the metrics."""
    sums = ", ".join(f"sum({name}) AS {name}" for name in COUNTS)
    found = engine.sql(f"""
        SELECT queue, {step_of("start", period.step_ms)} AS step_ms, {sums}
        FROM {told.hours} GROUP BY queue, {step_of("start", period.step_ms)}""")
    return {
        (row["queue"], row["step_ms"]): {name: int(row[name] or 0) for name in COUNTS}
        for row in rows(engine, found)
    }


def _counted(engine: Engine, told: ReportTables, period: Period) -> dict[tuple[str, int], dict[str, int]]:
    """The same for steps that are finer than the metrics."""
    enqueued, ended, left = (
        step_of(moment, period.step_ms) for moment in ("enqueued_at", "finished_at", "ended_at")
    )
    found = engine.sql(f"""
        WITH arrived AS (
          SELECT queue, min(enqueued_at) AS enqueued_at FROM {told.jobs} GROUP BY queue, job_id
        ), happened AS (
          SELECT queue, {enqueued} AS step_ms, 'enqueued' AS what
          FROM arrived WHERE {period.has("enqueued_at")}
          UNION ALL
          SELECT queue, {ended}, state
          FROM {told.jobs} WHERE {period.has("finished_at")} AND state IN ('{COMPLETED}', '{FAILED}')
          UNION ALL
          SELECT queue, {left}, 'retried'
          FROM {told.attempts} WHERE {period.has("ended_at")} AND outcome = '{FAILED}' AND NOT final
          UNION ALL
          SELECT queue, {left}, 'stalled'
          FROM {told.attempts} WHERE {period.has("ended_at")} AND outcome = '{STALLED}'
        )
        SELECT queue, step_ms, what, count(*) AS number FROM happened GROUP BY queue, step_ms, what""")
    counts: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for row in rows(engine, found):
        counts[row["queue"], row["step_ms"]][row["what"]] = row["number"]
    return counts


def _hourly_depth(engine: Engine, told: ReportTables, period: Period) -> Relation:
    """The most that waited in each step, and how many did at its end; of steps that the metrics tell of."""
    return engine.sql(f"""
        SELECT queue, {step_of("start", period.step_ms)} AS step_ms, max(depth_max) AS most,
               max_by(depth_end, start) AS latest
        FROM {told.hours} GROUP BY queue, {step_of("start", period.step_ms)}""")


def _fine_depth(engine: Engine, told: ReportTables, period: Period) -> Relation:
    """The same for finer steps: a job waits from when it may be claimed, and from each lease's end, to the next claim.

    That of its last lease ends with the job, at the same instant. When a redriven job began to wait again is not
    known: it is counted from its claim.
    """
    step_ms = f"moment_ms - moment_ms % {period.step_ms}"
    return engine.sql(f"""
        WITH changes AS (
          SELECT queue, 1 AS change,
                 unix_millis(CASE WHEN redriven THEN coalesce(started_at, finished_at)
                                  ELSE least(claimable_at, finished_at) END) AS moment_ms
          FROM {told.jobs}
          UNION ALL SELECT queue, -1, unix_millis(started_at) FROM {told.attempts}
          UNION ALL SELECT queue, 1, unix_millis(ended_at) FROM {told.attempts}
          UNION ALL SELECT queue, -1, unix_millis(finished_at) FROM {told.jobs}
        ), moments AS (
          SELECT queue, greatest(moment_ms, {period.begins_ms}) AS moment_ms, sum(change) AS change
          FROM changes WHERE moment_ms < {period.ends_ms} GROUP BY queue, greatest(moment_ms, {period.begins_ms})
        ), depths AS (
          SELECT queue, moment_ms, sum(change) OVER (PARTITION BY queue ORDER BY moment_ms) AS depth FROM moments
        )
        SELECT queue, {step_ms} AS step_ms, max(depth) AS most, max_by(depth, moment_ms) AS latest
        FROM depths GROUP BY queue, {step_ms}""")


def _depths(told: Sequence[dict[str, Any]], period: Period) -> dict[tuple[str, int], int]:
    """The most that waited, of every step: one that nothing is told of begins and ends as the one before ended."""
    known = {(row["queue"], row["step_ms"]): row for row in told}
    depths = {}
    for queue in {queue for queue, _ in known}:
        last = 0
        for at_ms in period.steps:
            row = known.get((queue, at_ms))
            most, before = (last, last) if row is None else (max(last, row["most"]), row["latest"])
            depths[queue, at_ms] = int(most)
            last = before
    return {key: depth for key, depth in depths.items() if depth}


def loads_of(
    engine: Engine, told: ReportTables, period: Period, workers: Sequence[str]
) -> list[dict[str, Any]]:
    """Lease time by queue, worker and step."""
    shown = f"worker IN (SELECT worker FROM {names(engine, 'worker', workers)})"
    step_ms = period.step_ms
    if step_ms % HOUR_MS == 0:
        held = f"""
          SELECT queue, worker, {step_of("start", step_ms)} AS step_ms, held_ms FROM {told.workers} WHERE {shown}"""
    else:
        held = f"""
          SELECT queue, worker, step_ms,
                 least(until_ms, step_ms + {step_ms}) - greatest(since_ms, step_ms) AS held_ms
          FROM (
            SELECT *, explode(sequence(since_ms - since_ms % {step_ms}, until_ms - 1, {step_ms})) AS step_ms
            FROM (
              SELECT queue, worker, greatest(unix_millis(started_at), {period.begins_ms}) AS since_ms,
                     least(unix_millis(ended_at), {period.ends_ms}) AS until_ms
              FROM {told.attempts} WHERE {shown}
            ) AS leases WHERE until_ms > since_ms
          ) AS steps"""
    return rows(
        engine,
        engine.sql(f"""
        SELECT queue, worker, step_ms, sum(held_ms) AS held_ms FROM ({held}) AS held
        GROUP BY queue, worker, step_ms ORDER BY step_ms"""),
    )
