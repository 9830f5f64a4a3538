"""The analyst: a process that makes history of a replay's archive on Spark, and reads out of the tables what they say.

``python -m demo.analyst file:///…/store tables report.html`` writes one line of JSON for each step, and at the end what
it read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from demo.history import TARGET_MS, TITLE, AnalysisStep, TableTotals
from demo.measure import Percentiles
from osqueue.errors import OsqueueError
from pipeline import tables
from pipeline.jobs import compact, metrics, report
from pipeline.session import session

SUMS = {
    tables.METRICS_HOURLY: ("enqueued", "claimed", "completed", "failed", "cancelled", "retried", "stalled"),
    tables.METRICS_DAILY: ("enqueued", "claimed", "completed", "failed", "cancelled", "retried", "stalled"),
    tables.METRICS_WORKERS: ("claimed", "completed", "failed", "stalled"),
    tables.METRICS_ERRORS: ("attempts",),
}
SETTINGS = {  # for an archive so small that to compile plans takes longer than to work through it
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
}


def main() -> int:
    try:
        work(*sys.argv[1:])
    except (OsqueueError, PySparkException) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def work(store: str, root: str, out: str) -> None:
    """The whole pipeline, and what came of it."""
    say(AnalysisStep("start of Spark"))
    spark = session("osqueue demo", settings=SETTINGS)
    compact.run(spark, compact.Compaction(store, root), counting("compaction"))
    metrics.run(spark, metrics.Metrics(root, target_ms=TARGET_MS), counting("metrics"))
    say(AnalysisStep("report"))
    report.run(spark, report.Review(root, out, title=TITLE))
    say(AnalysisStep("check"))
    say(read(spark, f"file://{root}"))
    spark.stop()


def counting(step: str) -> Callable[[int, int], None]:
    """Tells of a step that it begins, and how far it is."""
    say(AnalysisStep(step))
    return lambda done, total: say(AnalysisStep(step, done, total))


def say(what: AnalysisStep | TableTotals) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


def read(spark: SparkSession, root: str) -> TableTotals:
    """What the tables say, by Spark SQL alone."""
    jobs, attempts = (tables.read(spark, root, table) for table in (tables.JOBS, tables.ATTEMPTS))
    return TableTotals(
        states=_counts(jobs, "state"),
        outcomes=_counts(attempts, "outcome"),
        jobs=jobs.select("job_id").distinct().count(),
        attempts=attempts.select("job_id", "run").distinct().count(),
        wait=_percentiles(jobs, "wait_ms"),
        run=_percentiles(attempts.filter("final"), "run_ms"),
        sums={table.name: _sums(tables.read(spark, root, table), columns) for table, columns in SUMS.items()},
    )


def _counts(frame: DataFrame, by: str) -> dict[str, int]:
    return {row[by]: row["count"] for row in frame.groupBy(by).count().collect()}


def _sums(frame: DataFrame, columns: tuple[str, ...]) -> dict[str, int]:
    row = frame.agg(
        functions.count("*").alias("rows"), *(functions.sum(name).alias(name) for name in columns)
    ).first()
    return {name: value or 0 for name, value in row.asDict().items()} if row is not None else {}


def _percentiles(frame: DataFrame, of: str) -> Percentiles:
    """By nearest rank, as the demo's own."""
    ranks = (f"percentile_disc({share}) WITHIN GROUP (ORDER BY {of})" for share in (0.5, 0.95, 0.99))
    row = frame.agg(*map(functions.expr, ranks)).first()
    return Percentiles(*((value or 0) / 1000 for value in row or (0, 0, 0)))


if __name__ == "__main__":
    sys.exit(main())
