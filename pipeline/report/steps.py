"""What happened in each step of the period, and how busy each worker was in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from osqueue.core.state import COMPLETED, FAILED, STALLED

from .history import Period, ReportTables, as_quantiles, started, step_of, waiting
from .model import HOUR_MS, Point

COUNTS = ("enqueued", "completed", "failed", "retried", "stalled")


def points_of(told: ReportTables, period: Period) -> dict[str, tuple[Point, ...]]:
    """What happened in each step, by queue."""
    told_by_metrics = period.step_ms % HOUR_MS == 0
    counts = _hourly(told, period) if told_by_metrics else _counted(told, period)
    depths = _depths(_hourly_depth(told, period) if told_by_metrics else _fine_depth(told, period), period)
    step = step_of("started_at", period.step_ms)
    waits = {
        (row["queue"], row["at_ms"]): row
        for row in started(told, period).groupBy("queue", step).agg(*waiting(period)).collect()
    }
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


def _hourly(told: ReportTables, period: Period) -> dict[tuple[str, int], dict[str, int]]:
    """Counts by queue and step, from the metrics."""
    rows = told.hours.groupBy("queue", step_of("start", period.step_ms)).agg(
        *(F.sum(name).alias(name) for name in COUNTS)
    )
    return {
        (row["queue"], row["at_ms"]): {name: int(row[name] or 0) for name in COUNTS} for row in rows.collect()
    }


def _counted(told: ReportTables, period: Period) -> dict[tuple[str, int], dict[str, int]]:
    """The same for steps that are finer than the metrics."""

    def events(frame: DataFrame, moment: str, kind: Column) -> DataFrame:
        return frame.filter(period.has(moment)).select(
            "queue", step_of(moment, period.step_ms), kind.alias("kind")
        )

    retried = (F.col("outcome") == FAILED) & ~F.col("final")
    happened = (
        events(told.jobs.dropDuplicates(["queue", "job_id"]), "enqueued_at", F.lit("enqueued"))
        .unionAll(
            events(told.jobs.filter(F.col("state").isin(COMPLETED, FAILED)), "finished_at", F.col("state"))
        )
        .unionAll(events(told.attempts.filter(retried), "ended_at", F.lit("retried")))
        .unionAll(events(told.attempts.filter(F.col("outcome") == STALLED), "ended_at", F.lit("stalled")))
    )
    counts: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for row in happened.groupBy("queue", "at_ms", "kind").count().collect():
        counts[row["queue"], row["at_ms"]][row["kind"]] = row["count"]
    return counts


def _hourly_depth(told: ReportTables, period: Period) -> DataFrame:
    """The most that waited in each step, and how many did at its end; of steps that the metrics tell of."""
    return told.hours.groupBy("queue", step_of("start", period.step_ms)).agg(
        F.max("depth_max").alias("most"), F.max_by("depth_end", "start").alias("last")
    )


def _fine_depth(told: ReportTables, period: Period) -> DataFrame:
    """The same for finer steps: a job waits from when it may be claimed, and from each lease's end, to the next claim.

    That of its last lease ends with the job, at the same instant. When a redriven job began to wait again is not
    known: it is counted from its claim.
    """

    def change(frame: DataFrame, moment: Column, by: int) -> DataFrame:
        at = F.greatest(F.unix_millis(moment), F.lit(period.begins_ms))
        return frame.select("queue", at.alias("ms"), F.lit(by).alias("by"))

    began = F.when(F.col("redriven"), F.coalesce("started_at", "finished_at")).otherwise(
        F.least("claimable_at", "finished_at")
    )
    changes = (
        change(told.jobs, began, 1)
        .unionAll(change(told.attempts, F.col("started_at"), -1))
        .unionAll(change(told.attempts, F.col("ended_at"), 1))
        .unionAll(change(told.jobs, F.col("finished_at"), -1))
    )
    by_time = Window.partitionBy("queue").orderBy("ms")
    depths = (
        changes.filter(F.col("ms") < period.ends_ms)
        .groupBy("queue", "ms")
        .agg(F.sum("by").alias("by"))
        .select("queue", "ms", F.sum("by").over(by_time).alias("depth"))
    )
    step = (F.col("ms") - F.pmod("ms", F.lit(period.step_ms))).alias("at_ms")
    return depths.groupBy("queue", step).agg(
        F.max("depth").alias("most"), F.max_by("depth", "ms").alias("last")
    )


def _depths(told: DataFrame, period: Period) -> dict[tuple[str, int], int]:
    """The most that waited, of every step: one that nothing is told of begins and ends as the one before ended."""
    rows = {(row["queue"], row["at_ms"]): row for row in told.collect()}
    depths = {}
    for queue in {queue for queue, _ in rows}:
        last = 0
        for at_ms in period.steps:
            row = rows.get((queue, at_ms))
            most, before = (last, last) if row is None else (max(last, row["most"]), row["last"])
            depths[queue, at_ms] = int(most)
            last = before
    return {key: depth for key, depth in depths.items() if depth}


def loads_of(told: ReportTables, period: Period, names: Sequence[str]) -> DataFrame:
    """Lease time by queue, worker and step."""
    shown = F.col("worker").isin(list(names))
    if period.step_ms % HOUR_MS == 0:
        held = told.workers.filter(shown).select(
            "queue", "worker", step_of("start", period.step_ms), F.col("held_ms").alias("held")
        )
    else:
        step = F.lit(period.step_ms)
        lease = told.attempts.filter(shown).select(
            "queue",
            "worker",
            F.greatest(F.unix_millis("started_at"), F.lit(period.begins_ms)).alias("from"),
            F.least(F.unix_millis("ended_at"), F.lit(period.ends_ms)).alias("to"),
        )
        first = F.col("from") - F.pmod("from", step)
        held = (
            lease.filter(F.col("to") > F.col("from"))
            .select("*", F.explode(F.sequence(first, F.col("to") - 1, step)).alias("at_ms"))
            .withColumn("held", F.least("to", F.col("at_ms") + step) - F.greatest("from", "at_ms"))
        )
    return held.groupBy("queue", "worker", "at_ms").agg(F.sum("held").alias("held_ms")).orderBy("at_ms")
