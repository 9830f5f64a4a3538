"""From archive records to jobs, and from jobs to attempts: pure, DataFrame in and DataFrame out."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from osqueue import limits
from osqueue.core.state import FAILED, RELEASED, STALLED

from .tables import ATTEMPTS, JOBS

KEY = ("queue", "job_id", "run")  # tells a repeated record from another one


def _moment(ms: Column) -> Column:
    return F.timestamp_millis(ms)


def _or(name: str, default: str | int) -> Column:
    """A field that is left out where it has its default value."""
    return F.coalesce(F.col(name), F.lit(default))


def jobs(records: DataFrame) -> DataFrame:
    """Archive records as rows of the table ``jobs``.

    A job that failed, was redriven and ended again tells of its earlier leases a second time. They belong to the
    earlier record: a record's own are the last ones of which as many count as it says that attempts were used.

    A record remembers eight leases. If it has eight of its own, and runs were granted before them that are no attempts
    of it, then it was redriven before or a lease was given back: nobody knows, so how long it took is not told.
    """
    told = F.coalesce(F.col("attempts"), F.array().cast(records.schema["attempts"].dataType))
    rows = records.withColumn("told", told).withColumn("own", _own(F.col("told"), F.col("attempt")))
    rows = rows.withColumn("redriven", F.size("own") < F.size("told"))
    first = F.get("own", F.lit(0))
    remembered = F.col("redriven") | (first["run"] == 1)
    start_ms = F.when(remembered, first["started_ms"])
    claimable_ms = F.greatest(F.col("enqueued_ms"), _or("scheduled_ms", 0))
    forgotten = F.col("attempt") - _counted(F.col("own"))
    fresh = ~F.col("redriven") & (
        (F.size("own") == 0) | (first["run"] <= 1 + F.greatest(forgotten, F.lit(0)))
    )
    return rows.select(
        "job_id",
        "run",
        "id",
        "state",
        _or("kind", "").alias("kind"),
        _or("priority", limits.PRIORITY_DEFAULT).alias("priority"),
        _moment(F.col("enqueued_ms")).alias("enqueued_at"),
        _moment(claimable_ms).alias("claimable_at"),
        _moment(start_ms).alias("started_at"),
        _moment(F.col("finished_ms")).alias("finished_at"),
        "attempt",
        _or("max_attempts", limits.ATTEMPTS_DEFAULT).alias("max_attempts"),
        "redriven",
        F.when(fresh & start_ms.isNotNull(), _span(claimable_ms, start_ms)).alias("wait_ms"),
        F.when(fresh, _span(claimable_ms, F.col("finished_ms"))).alias("total_ms"),
        _or("why", "").alias("why"),
        "payload_bytes",
        _or("result_bytes", 0).alias("result_bytes"),
        _or("result_ttl_ms", limits.RESULT_TTL_MS_DEFAULT).alias("result_ttl_ms"),
        _or("codec", "json").alias("codec"),
        F.col("own").alias("attempts"),
        "part",
        *JOBS.partitions.names,
    )


def _own(told: Column, used: Column) -> Column:
    """The leases since the job was enqueued or redriven."""
    own = F.filter(told, lambda _, at: _counted(F.slice(told, at + 1, F.size(told))) <= used)
    return F.when(F.size(told) <= used, told).otherwise(own)


def _counted(leases: Column) -> Column:
    """How many leases are attempts."""
    return F.size(F.filter(leases, lambda each: each["outcome"] != RELEASED))


def _span(start_ms: Column, end_ms: Column) -> Column:
    return F.greatest(end_ms - start_ms, F.lit(0).cast("long"))


def attempts(jobs: DataFrame) -> DataFrame:
    """The leases of jobs as rows of the table ``attempts``."""
    each = jobs.select(
        "job_id",
        F.posexplode("attempts").alias("at", "lease"),
        "kind",
        "priority",
        F.col("run").alias("job_run"),
        "state",
        F.size("attempts").alias("count"),
        *ATTEMPTS.partitions.names,
    )
    ending = (F.col("outcome") == F.col("state")) | (
        (F.col("outcome") == STALLED) & (F.col("state") == FAILED)
    )
    return each.select("*", "lease.*").select(
        "job_id",
        "run",
        "worker",
        _moment(F.col("started_ms")).alias("started_at"),
        _moment(F.col("ended_ms")).alias("ended_at"),
        "outcome",
        _or("error_type", "").alias("error_type"),
        _or("error", "").alias("error"),
        _moment(F.when(F.col("beat_ms") > 0, F.col("beat_ms"))).alias("heartbeat_at"),
        _span(F.col("started_ms"), F.col("ended_ms")).alias("run_ms"),
        "kind",
        "priority",
        "job_run",
        ((F.col("at") == F.col("count") - 1) & ending).alias("final"),
        *ATTEMPTS.partitions.names,
    )


def repeated(keys: DataFrame) -> DataFrame:
    """The keys that occur more than once. There are none as long as no pass of the reaper dies."""
    return keys.groupBy(*KEY).agg(F.count("*").alias("times")).filter("times > 1").drop("times")


def without_repeats(jobs: DataFrame, repeats: DataFrame, everywhere: DataFrame) -> DataFrame:
    """Jobs without those that an earlier hour or part has: each stays where it was archived first.

    ``repeats`` are the keys in question, ``everywhere`` says in which hours and parts each key occurs.
    """
    place = F.struct("date", "hour", "part")
    first = everywhere.join(repeats, [*KEY], "left_semi").groupBy(*KEY).agg(F.min(place).alias("first"))
    told = jobs.join(first, [*KEY], "left")
    once = told.filter("first is null").drop("first")
    again = told.filter(F.col("first") == place).drop("first").dropDuplicates([*KEY])
    return once.unionByName(again)
