"""The tables that a report is made from, the part of them that it is about, and the expressions it adds up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from msgspec import Struct
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from osqueue.core.state import COMPLETED
from pipeline import tables

from .model import HOUR_MS, Quantiles


class ReportTables(Struct, frozen=True):
    """The tables, of the queues asked for."""

    root: str  # where they are
    jobs: DataFrame
    attempts: DataFrame
    hours: DataFrame
    workers: DataFrame
    errors: DataFrame


class Period(Struct, frozen=True):
    """What of them is reported."""

    begins_ms: int
    ends_ms: int
    step_ms: int
    target_ms: int

    def has(self, moment: str) -> Column:
        """Is a moment in the period?"""
        return between(moment, self.begins_ms, self.ends_ms)

    @property
    def hours(self) -> range:
        """The hours that touch the period, which the metrics have whole."""
        return range(self.begins_ms // HOUR_MS * HOUR_MS, self.ends_ms, HOUR_MS)

    @property
    def steps(self) -> range:
        """Where the steps begin."""
        return range(self.begins_ms // self.step_ms * self.step_ms, self.ends_ms, self.step_ms)


def history(
    spark: SparkSession, root: str, queues: Sequence[str] = (), since: date | None = None
) -> ReportTables:
    """The tables below a folder: of all queues or some, from the first day or a later one on."""
    used = (
        *(tables.JOBS, tables.ATTEMPTS),
        *(tables.METRICS_HOURLY, tables.METRICS_WORKERS, tables.METRICS_ERRORS),
    )
    return ReportTables(root, *(tables.read(spark, root, table, queues, since) for table in used))


def since(told: ReportTables, period: Period) -> ReportTables:
    """Without what was archived before the period, and metrics of other hours. What happens in it is archived later."""
    day = F.to_date(instant(period.begins_ms))
    hours = between("start", period.hours[0], period.hours[-1] + HOUR_MS)
    return ReportTables(
        told.root,
        told.jobs.filter(F.col("date") >= day),
        told.attempts.filter(F.col("date") >= day),
        *(frame.filter((F.col("date") >= day) & hours) for frame in (told.hours, told.workers, told.errors)),
    )


def of_queues(told: ReportTables, queues: Sequence[str]) -> ReportTables:
    def own(frame: DataFrame) -> DataFrame:
        return frame.filter(F.col("queue").isin(list(queues)))

    return ReportTables(
        told.root, own(told.jobs), own(told.attempts), own(told.hours), own(told.workers), own(told.errors)
    )


def started(told: ReportTables, period: Period) -> DataFrame:
    """The jobs whose first lease began in the period."""
    return told.jobs.filter(period.has("started_at") & F.col("wait_ms").isNotNull())


def completed_attempts(told: ReportTables, period: Period) -> DataFrame:
    return told.attempts.filter(period.has("ended_at") & (F.col("outcome") == COMPLETED))


def waiting(period: Period) -> tuple[Column, Column, Column]:
    return (
        F.count("wait_ms").alias("started"),
        F.count_if(F.col("wait_ms") <= period.target_ms).alias("in_time"),
        quantiles("wait_ms"),
    )


def instant(ms: int) -> Column:
    return F.timestamp_millis(F.lit(ms))


def between(moment: str, begins_ms: int, ends_ms: int) -> Column:
    return (F.col(moment) >= instant(begins_ms)) & (F.col(moment) < instant(ends_ms))


def step_of(moment: str, step_ms: int) -> Column:
    """Where the step of a moment begins, in milliseconds."""
    at = F.unix_millis(F.col(moment))
    return (at - F.pmod(at, F.lit(step_ms))).alias("at_ms")


def quantiles(of: str) -> Column:
    """The percentiles of a span, exact as those of the metrics are, and the longest, as a structure."""
    ranks = F.percentile(of, F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)))
    return F.struct(ranks.alias("ranks"), F.max(of).alias("longest")).alias("quantiles")


def as_quantiles(row: Row | None) -> Quantiles | None:
    if row is None or not row["quantiles"]["ranks"]:
        return None
    p50, p95, p99 = map(float, row["quantiles"]["ranks"])
    return Quantiles(p50, p95, p99, float(row["quantiles"]["longest"]))
