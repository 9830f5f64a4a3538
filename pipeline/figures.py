"""What a queue did, hour by hour or day by day: pure, from the tables of history to those of metrics.

A figure belongs to the hour in which the event happened that it is about: a wait to the hour of the claim that ended
it, a run time to the hour in which the lease ended. Percentiles are exact, over every value of the hour or day, with
linear interpolation between the two nearest ranks. Depth is reconstructed from the timelines: a job waits from the
moment it can be claimed until its end, except while somebody holds a lease of it. A redriven job waits from its first
remembered claim on: when it was redriven is not known. Leases that a job has forgotten count as waiting.

To plan a query takes longer than to run it over an hour's jobs, so there are no joins: all is one frame of events; how
many jobs wait and run in an hour are more rows of it, and the row of an hour or day is one sum over both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from osqueue.core.archive_record import AttemptRecord
from osqueue.core.fingerprint import error_of, fingerprint, normalised
from osqueue.core.state import CANCELLED, COMPLETED, FAILED, RELEASED, STALLED

HOUR, DAY = "hour", "day"
_LENGTH_MS = {HOUR: 3_600_000, DAY: 86_400_000}
_ONE_HOUR = "INTERVAL 1 HOUR"
# What an event may be, besides the states in which jobs end.
_ENQUEUED, _WAITS, _STARTED = "enqueued", "waits", "started"
_CLAIMED, _HELD, _RAN, _RETRIED, _ENDED = "claimed", "held", "ran", "retried", "ended"
_COUNTED = (_ENQUEUED, _CLAIMED, COMPLETED, FAILED, CANCELLED, _RETRIED, STALLED, RELEASED)
RANKS = (50, 95, 99)
_USED = {"sum": F.sum, "count": F.count, "max": F.max}
MESSAGES = 10_000  # whose fingerprints a worker remembers: most errors are one of a few


class FigureWindow(Struct, frozen=True):
    """The whole hours that figures are about."""

    since_ms: int  # the first one begins
    until_ms: int  # the last one ends

    @property
    def since(self) -> Column:
        return F.timestamp_millis(F.lit(self.since_ms))

    @property
    def until(self) -> Column:
        return F.timestamp_millis(F.lit(self.until_ms))

    @property
    def before(self) -> Column:
        """The last moment that is too early."""
        return F.timestamp_millis(F.lit(self.since_ms - 1))

    def has(self, at: str) -> Column:
        return (F.col(at) >= self.since) & (F.col(at) < self.until)


def events(jobs: DataFrame, attempts: DataFrame) -> DataFrame:
    """All that happened, whenever: by how much jobs waiting and running change, and what there is to add up."""
    arrived = jobs.dropDuplicates(["queue", "job_id"])  # a job arrives once, however many records it has
    frames = [
        (arrived, F.array(_event("enqueued_at", _ENQUEUED))),
        (jobs, _of_job()),
        (attempts, _of_attempt()),
    ]
    found = [frame.select("queue", F.inline(each)).filter("at is not null") for frame, each in frames]
    return reduce(DataFrame.union, found)


def depths(events: DataFrame, over: FigureWindow, known: Sequence[str] = ()) -> DataFrame:
    """How many jobs wait and run, for each queue every hour from its first to its last event.

    ``known`` are queues of which something happened before the range that these events need not tell of.
    """
    events = events.filter(~F.col("what").isin(_STARTED, _HELD))  # something else tells of their hours, too
    if known:
        queues = F.explode(F.array(*map(F.lit, known))).alias("queue")
        zero = F.lit(0).cast("long")
        before = (over.before.alias("at"), zero.alias("waiting"), zero.alias("running"))
        events = events.unionByName(
            events.sparkSession.range(1).select(queues, *before), allowMissingColumns=True
        )
    return levels(events, over, ("waiting", "running"), ("queue",))


def summed(
    events: DataFrame, depths: DataFrame, over: FigureWindow, target_ms: int, grain: str = HOUR
) -> DataFrame:
    """Rows of ``metrics_hourly`` or ``metrics_daily``.

    First those of one kind together, and then the few rows of an hour or day: most figures are about one kind.
    """
    kinds = (
        events.filter(over.has("at"))
        .groupBy("queue", F.date_trunc(grain, "at").alias("start"), "what")
        .agg(
            F.count("*").alias("count"),
            F.percentile("value", F.array(*(F.lit(p / 100) for p in RANKS))).alias("ranks"),
            F.max("value").alias("longest"),
            F.count_if(F.col("value") <= target_ms).alias("on_target"),
            *(add("used").alias(f"used_{name}") for name, add in _USED.items()),
            F.size(F.collect_set("worker")).alias("workers"),
        )
    )
    hours = depths.withColumns({"hour": F.col("start"), "start": F.date_trunc(grain, "start")})
    growth = F.when(F.col("what") == _ENQUEUED, F.col("count"))
    growth = F.sum(growth.when(F.col("what").isin(COMPLETED, FAILED, CANCELLED), -F.col("count")))
    return (
        kinds.unionByName(hours, allowMissingColumns=True)
        .groupBy("queue", "start")
        .agg(
            *(_of(each, "count", 0).alias(each) for each in _COUNTED),
            F.coalesce(growth, F.lit(0)).alias("growth"),
            *_summary("wait", _STARTED),
            *_summary("run", _RAN),
            *_summary("total", COMPLETED),
            F.try_divide(F.sum("used_sum"), F.sum("used_count")).alias("attempts_mean"),
            F.max("used_max").alias("attempts_max"),
            *_depth("depth", "waiting", grain),
            *_depth("running", "running", grain),
            _of(_HELD, "workers", 0).alias("workers"),
            F.lit(target_ms).alias("target_ms"),
            _of(_STARTED, "on_target", 0).alias("on_target"),
            (_of(_STARTED, "on_target") / _of(_STARTED, "count")).alias("on_target_share"),
        )
        .withColumn("date", F.to_date("start"))
    )


def _of(what: str, name: str, otherwise: int | None = None) -> Column:
    """A figure of one kind of events; where there are none, something else."""
    found = F.max(F.when(F.col("what") == what, F.col(name)))
    return found if otherwise is None else F.coalesce(found, F.lit(otherwise))


def _depth(figure: str, name: str, grain: str) -> list[Column]:
    """The mean over time, the most at one moment, and what it was at the end."""
    return [
        (F.sum(f"{name}_ms") / _LENGTH_MS[grain]).alias(f"{figure}_mean"),
        F.max(f"{name}_max").alias(f"{figure}_max"),
        F.max_by(f"{name}_end", "hour").alias(f"{figure}_end"),
    ]


def _summary(name: str, what: str) -> list[Column]:
    """p50, p95 and p99, exact, and the longest."""
    found = [_of(what, "ranks")[at].alias(f"{name}_p{p}_ms") for at, p in enumerate(RANKS)]
    return [*found, _of(what, "longest").alias(f"{name}_max_ms")]


# ── Events ───────────────────────────────────────────────────────────────────
def _of_job() -> Column:
    begin = F.when(F.col("total_ms").isNotNull(), F.col("claimable_at"))
    held = F.timestamp_millis(F.get("attempts.started_ms", F.lit(0)))
    begin = F.coalesce(begin, held, F.col("finished_at"))
    first = F.when(F.col("wait_ms").isNotNull(), F.col("started_at"))
    used = F.when(F.col("state").isin(COMPLETED, FAILED), F.col("attempt"))
    return F.array(
        _event(F.least(begin, F.col("finished_at")), _WAITS, waiting=1),
        _event(first, _STARTED, value=F.col("wait_ms")),
        _event("finished_at", F.col("state"), waiting=-1, value=F.col("total_ms"), used=used),
    )


def _of_attempt() -> Column:
    outcome = F.col("outcome")
    what = (
        F.when(outcome == COMPLETED, _RAN)
        .when((outcome == FAILED) & ~F.col("final"), _RETRIED)
        .when(outcome.isin(STALLED, RELEASED), outcome)
        .otherwise(_ENDED)
    )
    last = F.greatest(F.col("started_at"), F.col("ended_at") - F.expr("INTERVAL 1 MILLISECOND"))
    hours = F.sequence(F.date_trunc(HOUR, "started_at"), F.date_trunc(HOUR, last), F.expr(_ONE_HOUR))
    return F.concat(
        F.array(
            _event("started_at", _CLAIMED, waiting=-1, running=1),
            _event("ended_at", what, waiting=1, running=-1, value=F.col("run_ms")),
        ),
        F.transform(hours, lambda at: _event(at, _HELD, worker=F.col("worker"))),
    )


def _event(
    at: Column | str,
    what: Column | str,
    waiting: int = 0,
    running: int = 0,
    value: Column | None = None,
    used: Column | None = None,
    worker: Column | None = None,
) -> Column:
    """One of ``events``."""
    return F.struct(
        (F.col(at) if isinstance(at, str) else at).alias("at"),
        (F.lit(what) if isinstance(what, str) else what).alias("what"),
        F.lit(waiting).cast("long").alias("waiting"),
        F.lit(running).cast("long").alias("running"),
        (F.lit(None) if value is None else value).cast("long").alias("value"),
        (F.lit(None) if used is None else used).cast("int").alias("used"),
        (F.lit(None) if worker is None else worker).cast("string").alias("worker"),
    )


# ── Levels ───────────────────────────────────────────────────────────────────
def levels(events: DataFrame, over: FigureWindow, names: Sequence[str], by: Sequence[str]) -> DataFrame:
    """What some quantities were over time, from the changes of them: for every hour from the first event to the last.

    Of each: what it was at the end, the most at one moment, the milliseconds summed over all that it counts, and those
    in which it was not zero. Changes at one moment are one change. Hours are independent of each other: how one begins
    follows from the sums of those before.
    """
    events = events.select(*by, "at", *names)
    at = F.least(F.greatest("at", over.before), over.until)
    hours = events.groupBy(*by, F.date_trunc(HOUR, at).alias("start")).agg(
        *(F.sum(n).alias(n) for n in names)
    )
    in_order = Window.partitionBy(*by).orderBy("start")
    following = F.sequence(
        F.col("start") + F.expr(_ONE_HOUR), F.lead("start").over(in_order), F.expr(_ONE_HOUR)
    )
    beginnings = hours.select(
        *by, following.alias("at"), *(F.sum(name).over(in_order).alias(name) for name in names)
    ).withColumn("at", F.explode("at"))
    inside = (
        events.unionByName(beginnings).filter(over.has("at")).withColumn("start", F.date_trunc(HOUR, "at"))
    )
    within = Window.partitionBy(*by, "start").orderBy("at")  # its sums are those of all at one moment
    next_at = F.coalesce(F.lead("at").over(within), F.col("start") + F.expr(_ONE_HOUR))
    ms = F.unix_millis(next_at) - F.unix_millis("at")
    timed = inside.select(
        *by, "start", "at", ms.alias("ms"), *(F.sum(name).over(within).alias(name) for name in names)
    )
    return timed.groupBy(*by, "start").agg(*(each for name in names for each in _level(name)))


def _level(name: str) -> list[Column]:
    level, ms = F.col(name), F.col("ms")
    return [
        F.max_by(level, F.col("at")).alias(f"{name}_end"),
        F.max(level).alias(f"{name}_max"),
        F.sum(level * ms).alias(f"{name}_ms"),
        F.sum(F.when(level > 0, ms).otherwise(0)).alias(f"{name}_busy_ms"),
    ]


# ── Workers and errors ───────────────────────────────────────────────────────
def workers(attempts: DataFrame, over: FigureWindow) -> DataFrame:
    """Rows of ``metrics_workers``: the hours in which a worker held a lease."""
    by = ("queue", "worker")
    outcomes = (COMPLETED, FAILED, STALLED, RELEASED, CANCELLED)
    both = [
        F.struct(F.col(at).alias("at"), what.alias("what"), F.lit(delta).cast("long").alias("held"))
        for at, what, delta in (("started_at", F.lit(_CLAIMED), 1), ("ended_at", F.col("outcome"), -1))
    ]
    events = attempts.select(*by, F.inline(F.array(*both)))
    told = events.filter(over.has("at")).select(*by, F.date_trunc(HOUR, "at").alias("start"), "what")
    rows = (
        told.unionByName(levels(events, over, ("held",), by), allowMissingColumns=True)
        .groupBy(*by, "start")
        .agg(
            *(F.count_if(F.col("what") == each).alias(each) for each in (_CLAIMED, *outcomes)),
            F.max("held_ms").alias("held_ms"),
            (F.max("held_ms") / _LENGTH_MS[HOUR]).alias("held_mean"),
            F.max("held_max").alias("held_max"),
            (F.max("held_busy_ms") / _LENGTH_MS[HOUR]).alias("utilisation"),
        )
    )
    busy = F.greatest("held_ms", _CLAIMED, *outcomes) > 0
    return rows.filter(busy).withColumn("date", F.to_date("start"))


def errors(attempts: DataFrame, over: FigureWindow) -> DataFrame:
    """Rows of ``metrics_errors``: which errors ended leases, by the library's own fingerprint."""
    found = attempts.filter(F.col("outcome").isin(FAILED, STALLED) & over.has("ended_at"))
    named = F.udf(_named, "type string, text string, same string, mark string")
    return (
        found.withColumn("named", named("outcome", "error_type", "error"))
        .groupBy(
            "queue", F.date_trunc(HOUR, "ended_at").alias("start"), F.col("named.mark").alias("fingerprint")
        )
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


@lru_cache(MESSAGES)
def _named(outcome: str, error_type: str, error: str) -> tuple[str, str, str, str]:
    """An error's type and message, the message without what differs, and the fingerprint."""
    kind, text = error_of(AttemptRecord(0, "", 0, 0, outcome, error, error_type))
    return kind, text, normalised(text), fingerprint(kind, text)
