"""What a queue did, hour by hour or day by day: pure, from the tables of history to those of metrics.

A figure belongs to the hour in which the event happened that it is about: a wait to the hour of the claim that ended
it, a run time to the hour in which the lease ended. Percentiles are exact, over every value of the hour or day, with
linear interpolation between the two nearest ranks. Depth is reconstructed from the timelines: a job waits from the
moment it can be claimed until its end, except while somebody holds a lease of it. A redriven job waits from its first
remembered claim on: when it was redriven is not known. Leases that a job has forgotten count as waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from osqueue.core.fingerprint import error_of, fingerprint, normalised
from osqueue.core.history import AttemptRecord
from osqueue.core.state import CANCELLED, COMPLETED, FAILED, RELEASED, STALLED

HOUR, DAY = "hour", "day"
_LENGTH = {HOUR: "INTERVAL 1 HOUR", DAY: "INTERVAL 1 DAY"}
OF_JOBS = (  # the columns that figures are made of
    *("queue", "job_id", "state", "enqueued_at", "claimable_at", "started_at", "finished_at"),
    *("attempt", "wait_ms", "total_ms"),
)
OF_ATTEMPTS = (
    *(
        "queue",
        "job_id",
        "worker",
        "started_at",
        "ended_at",
        "outcome",
        "error_type",
        "error",
        "run_ms",
        "final",
    ),
)
_COUNTS = (
    *("enqueued", "claimed", "completed", "failed", "cancelled", "retried", "stalled", "released", "growth"),
    *("workers", "on_target"),
)


class Range(Struct, frozen=True):
    """The time that figures are about, cut into hours or days."""

    since_ms: int  # its first hour or day begins
    until_ms: int  # its last one ends
    grain: str = HOUR

    @property
    def since(self) -> Column:
        return F.timestamp_millis(F.lit(self.since_ms))

    @property
    def until(self) -> Column:
        return F.timestamp_millis(F.lit(self.until_ms))

    def start(self, at: Column) -> Column:
        """When the hour or day of a moment begins."""
        return F.date_trunc(self.grain, at)

    @property
    def length(self) -> Column:
        return F.expr(_LENGTH[self.grain])

    def of(self, frame: DataFrame, at: str) -> DataFrame:
        """The rows whose event lies within, and the ``start`` of its hour or day."""
        inside = frame.filter((F.col(at) >= self.since) & (F.col(at) < self.until))
        return inside.withColumn("start", self.start(F.col(at)))


def of_jobs(jobs: DataFrame) -> DataFrame:
    """As much of the table ``jobs`` as figures are made of."""
    first = F.slice("attempts.started_ms", 1, 1).alias("started_ms")
    return jobs.select(*OF_JOBS, F.arrays_zip(first).alias("attempts"))


def metrics(
    jobs: DataFrame, attempts: DataFrame, over: Range, target_ms: int, known: Sequence[str] = ()
) -> DataFrame:
    """Rows of ``metrics_hourly`` or ``metrics_daily``: for each queue every hour from its first to its last event.

    ``known`` are queues of which something happened before the range that these jobs need not tell of.
    """
    key = ["queue", "start"]
    parts = (
        _arrivals(jobs, over),
        _endings(jobs, over),
        _claims(jobs, over, target_ms),
        over.of(attempts, "started_at").groupBy(*key).agg(F.count("*").alias("claimed")),
        _leases(attempts, over),
        _workers(attempts, over),
    )
    rows = reduce(
        lambda left, right: left.join(right, key, "left"),
        parts,
        levels(_timeline(jobs, attempts, [(queue, over.since_ms - 1) for queue in known]), over),
    )
    ended = _or_0("completed") + _or_0("failed") + _or_0("cancelled")
    rows = rows.withColumn("growth", _or_0("enqueued") - ended)
    named = {
        **{name: _or_0(name) for name in _COUNTS},
        **{f"depth_{each}": F.col(f"waiting_{each}") for each in ("mean", "max", "end")},
    }
    return rows.withColumns(named).withColumns(
        {
            "target_ms": F.lit(target_ms).cast("long"),
            "date": F.to_date("start"),
        }
    )


def _or_0(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0).cast("long"))


def _summary(name: str, value: Column) -> list[Column]:
    """p50, p95 and p99, exact, and the longest."""
    of = F.percentile(value, F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)))
    found = [of[at].alias(f"{name}_p{p}_ms") for at, p in enumerate((50, 95, 99))]
    return [*found, F.max(value).alias(f"{name}_max_ms")]


def _arrivals(jobs: DataFrame, over: Range) -> DataFrame:
    """A job arrives once, however many records it has."""
    arrived = over.of(jobs, "enqueued_at").dropDuplicates(["queue", "job_id"])
    return arrived.groupBy("queue", "start").agg(F.count("*").alias("enqueued"))


def _endings(jobs: DataFrame, over: Range) -> DataFrame:
    state = F.col("state")
    used = F.when(state.isin(COMPLETED, FAILED), F.col("attempt"))
    return (
        over.of(jobs, "finished_at")
        .groupBy("queue", "start")
        .agg(
            *(F.count_if(state == each).alias(each) for each in (COMPLETED, FAILED, CANCELLED)),
            *_summary("total", F.when(state == COMPLETED, F.col("total_ms"))),
            F.avg(used).alias("attempts_mean"),
            F.max(used).alias("attempts_max"),
        )
    )


def _claims(jobs: DataFrame, over: Range, target_ms: int) -> DataFrame:
    on_target = F.count_if(F.col("wait_ms") <= target_ms)
    return (
        over.of(jobs.filter("wait_ms is not null"), "started_at")
        .groupBy("queue", "start")
        .agg(
            *_summary("wait", F.col("wait_ms")),
            on_target.alias("on_target"),
            (on_target / F.count("*")).alias("on_target_share"),
        )
    )


def _leases(attempts: DataFrame, over: Range) -> DataFrame:
    outcome = F.col("outcome")
    return (
        over.of(attempts, "ended_at")
        .groupBy("queue", "start")
        .agg(
            F.count_if((outcome == FAILED) & ~F.col("final")).alias("retried"),
            F.count_if(outcome == STALLED).alias("stalled"),
            F.count_if(outcome == RELEASED).alias("released"),
            *_summary("run", F.when(outcome == COMPLETED, F.col("run_ms"))),
        )
    )


def _workers(attempts: DataFrame, over: Range) -> DataFrame:
    """How many workers held a lease at some time of the hour or day."""
    last = F.greatest(F.col("started_at"), F.col("ended_at") - F.expr("INTERVAL 1 MILLISECOND"))
    starts = F.sequence(over.start(F.col("started_at")), over.start(last), over.length)
    held = attempts.select("queue", "worker", F.explode(starts).alias("start"))
    return held.groupBy("queue", "start").agg(F.count_distinct("worker").alias("workers"))


# ── Levels ───────────────────────────────────────────────────────────────────
def _timeline(jobs: DataFrame, attempts: DataFrame, known: Sequence[tuple[str, int]]) -> DataFrame:
    """By how many jobs waiting and running change, and when; ``known`` are moments of queues without a change."""
    moments = jobs.sparkSession.createDataFrame([*known], "queue string, ms long")
    begin = F.when(F.col("total_ms").isNotNull(), F.col("claimable_at"))
    held = F.timestamp_millis(F.get("attempts.started_ms", F.lit(0)))
    begin = F.coalesce(begin, held, F.col("finished_at"))
    changes = [
        _change(moments, F.timestamp_millis("ms"), 0, 0),
        _change(jobs, F.col("enqueued_at"), 0, 0),
        _change(jobs, F.least(begin, F.col("finished_at")), 1, 0),
        _change(jobs, F.col("finished_at"), -1, 0),
        _change(attempts, F.col("started_at"), -1, 1),
        _change(attempts, F.col("ended_at"), 1, -1),
    ]
    return reduce(DataFrame.unionByName, changes)


def _change(frame: DataFrame, at: Column, waiting: int, running: int) -> DataFrame:
    return frame.select(
        "queue",
        at.alias("at"),
        F.lit(waiting).cast("long").alias("waiting"),
        F.lit(running).cast("long").alias("running"),
    )


def levels(
    changes: DataFrame,
    over: Range,
    names: Sequence[str] = ("waiting", "running"),
    by: Sequence[str] = ("queue",),
) -> DataFrame:
    """What some quantities were over time, from the changes of them: for every hour or day from the first to the last.

    Of each: the mean over time, the most at one moment, what it was at the end, the milliseconds summed over all that
    it counts, and the share of the time in which it was not zero. Changes at one moment are one change.
    """
    last = F.timestamp_millis(F.lit(over.until_ms - 1))
    ends = changes.groupBy(*by).agg(F.min("at").alias("first"), F.max("at").alias("last"))
    ends = ends.filter((F.col("first") < over.until) & (F.col("last") >= over.since))
    clamped = changes.join(ends, [*by], "left_semi").withColumn("at", F.greatest(F.col("at"), over.since))
    first, end = F.greatest(F.col("first"), over.since), F.least(F.col("last"), last)
    starts = F.sequence(over.start(first), over.start(end), over.length)
    marks = ends.select(
        *by, F.explode(starts).alias("at"), *(F.lit(0).cast("long").alias(name) for name in names)
    )
    inside = clamped.filter(F.col("at") < over.until).select(*by, "at", *names)
    steps = inside.unionByName(marks).groupBy(*by, "at").agg(*(F.sum(name).alias(name) for name in names))
    steps = steps.withColumn("start", over.start(F.col("at")))
    before = Window.partitionBy(*by).orderBy("start").rowsBetween(Window.unboundedPreceding, -1)
    opening = (
        steps.groupBy(*by, "start")
        .agg(*(F.sum(name).alias(name) for name in names))
        .select(
            *by,
            "start",
            *(F.coalesce(F.sum(name).over(before), F.lit(0)).alias(f"{name}_before") for name in names),
        )
    )
    within = Window.partitionBy(*by, "start").orderBy("at")
    so_far = within.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    following = F.coalesce(F.lead("at").over(within), F.col("start") + over.length)
    timed = steps.join(opening, [*by, "start"]).select(
        *by,
        "start",
        "at",
        (F.unix_millis(following) - F.unix_millis("at")).alias("ms"),
        *((F.col(f"{name}_before") + F.sum(name).over(so_far)).alias(name) for name in names),
    )
    return timed.groupBy(*by, "start").agg(*(each for name in names for each in _level(name)))


def _level(name: str) -> list[Column]:
    level, ms = F.col(name), F.col("ms")
    return [
        (F.sum(level * ms) / F.sum(ms)).alias(f"{name}_mean"),
        F.max(level).alias(f"{name}_max"),
        F.max_by(level, F.col("at")).alias(f"{name}_end"),
        F.sum(level * ms).alias(f"{name}_ms"),
        (F.sum(F.when(level > 0, ms).otherwise(0)) / F.sum(ms)).alias(f"{name}_share"),
    ]


# ── Workers and errors ───────────────────────────────────────────────────────
def workers(attempts: DataFrame, over: Range) -> DataFrame:
    """Rows of ``metrics_workers``: the hours in which a worker held a lease."""
    by = ("queue", "worker")
    changes = [
        attempts.select(*by, F.col(at).alias("at"), F.lit(delta).cast("long").alias("held"))
        for at, delta in (("started_at", 1), ("ended_at", -1))
    ]
    held = levels(reduce(DataFrame.unionByName, changes), over, ("held",), by)
    began = over.of(attempts, "started_at").groupBy(*by, "start").agg(F.count("*").alias("claimed"))
    outcomes = (COMPLETED, FAILED, STALLED, RELEASED, CANCELLED)
    ended = (
        over.of(attempts, "ended_at")
        .groupBy(*by, "start")
        .agg(*(F.count_if(F.col("outcome") == each).alias(each) for each in outcomes))
    )
    rows = held.join(began, [*by, "start"], "left").join(ended, [*by, "start"], "left")
    rows = rows.withColumns({name: _or_0(name) for name in ("claimed", *outcomes)})
    busy = F.col("held_ms") > 0
    for name in ("claimed", *outcomes):
        busy = busy | (F.col(name) > 0)
    return rows.filter(busy).withColumns({"utilisation": F.col("held_share"), "date": F.to_date("start")})


def errors(attempts: DataFrame, over: Range) -> DataFrame:
    """Rows of ``metrics_errors``: which errors ended leases, by the library's own fingerprint."""
    what = ["outcome", "error_type", "error"]
    found = over.of(attempts.filter(F.col("outcome").isin(FAILED, STALLED)), "ended_at")
    named = F.udf(_named, "type string, text string, same string, mark string")
    names = found.select(*what).distinct().withColumn("named", named(*what))
    return (
        found.join(names, what)
        .groupBy("queue", "start", F.col("named.mark").alias("fingerprint"))
        .agg(
            F.min("named.type").alias("error_type"),
            F.min("named.same").alias("error"),
            F.min("named.text").alias("example"),
            F.count("*").alias("attempts"),
            F.count_distinct("job_id").alias("jobs"),
            F.count_if("final").alias("deaths"),
            F.min("ended_at").alias("first_at"),
            F.max("ended_at").alias("last_at"),
        )
        .withColumn("date", F.to_date("start"))
    )


def _named(outcome: str, error_type: str, error: str) -> tuple[str, str, str, str]:
    """An error's type and message, the message without what differs, and the fingerprint."""
    kind, text = error_of(AttemptRecord(0, "", 0, 0, outcome, error, error_type))
    return kind, text, normalised(text), fingerprint(kind, text)
