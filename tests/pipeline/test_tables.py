"""Reading and writing tables: of some queues, or from a day on, nothing else is looked into."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline import files, tables
from pipeline.tables import METRICS_DAILY

DAYS = [("emails", "2025-12-31"), ("emails", "2026-01-05"), ("letters", "2026-01-05")]


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path) -> str:
    """A table of three days, and what others have left there."""
    rows = spark.createDataFrame(DAYS, "queue string, day string").withColumn("date", F.to_date("day"))
    missing = [each for each in METRICS_DAILY.schema.names if each not in rows.columns]
    whole = rows.select("*", *(F.lit(None).alias(name) for name in missing))
    assert set(tables.write(whole, f"file://{tmp_path}", METRICS_DAILY).values()) == {1}
    for name in ("queue=emails/date=soon", "queue=emails/_temporary", "notes"):
        (tmp_path / METRICS_DAILY.name / name).mkdir(parents=True)
    return f"file://{tmp_path}"


def days(spark: SparkSession, root: str, *of: object) -> list[tuple[str, str]]:
    rows = tables.read(spark, root, METRICS_DAILY, *of).select("queue", F.col("date").cast("string"))  # type: ignore[arg-type]
    return sorted((row.queue, row.date) for row in rows.collect())


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        (((), date(2026, 1, 1)), DAYS[1:]),
        (((), date(2026, 1, 5)), DAYS[1:]),
        (((), date(2026, 1, 6)), []),
        ((["emails"],), DAYS[:2]),
        ((["emails"], date(2026, 1, 1)), DAYS[1:2]),
        ((["nobody"],), []),
    ],
    ids=["from a day on", "from that day on", "later", "one queue", "both", "no such queue"],
)
def test_of_a_table_some_queues_and_days_are_read(
    spark: SparkSession, root: str, of: tuple[object, ...], wanted: list[tuple[str, str]]
) -> None:
    assert days(spark, root, *of) == wanted


def test_what_is_not_asked_for_is_not_looked_into(spark: SparkSession, root: str) -> None:
    (damaged,) = Path(root.removeprefix("file://")).glob("*/queue=emails/date=2025-12-31/*.parquet")
    damaged.write_bytes(b"nothing")
    assert days(spark, root, (), date(2026, 1, 1)) == DAYS[1:]
    assert days(spark, root, ["letters"]) == DAYS[2:]
    with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
        tables.read(spark, root, METRICS_DAILY, ["emails"]).select("start").collect()


def test_partitions_are_the_folders_of_days_and_nothing_else(root: str) -> None:
    wanted = [f"queue={queue}/date={day}" for queue, day in DAYS]
    assert files.days(root, METRICS_DAILY.name) == wanted
    assert files.days(root, METRICS_DAILY.name, ["emails"], date(2026, 1, 1)) == wanted[1:2]


def test_rows_are_written_to_their_partitions_sorted_and_others_are_left_alone(
    spark: SparkSession, root: str
) -> None:
    before = {path: path.stat().st_ino for path in Path(root.removeprefix("file://")).rglob("*.parquet")}
    hours = spark.createDataFrame(
        [("emails", "2026-01-05", hour) for hour in (7, 3, 5)], "queue string, day string, hour int"
    )
    columns = {
        "date": F.to_date("day"),
        "start": F.timestamp_seconds(
            F.unix_timestamp(F.to_date("day").cast("timestamp")) + F.col("hour") * 3600
        ),
    }
    rows = hours.withColumns(columns)
    missing = [each for each in METRICS_DAILY.schema.names if each not in rows.columns]
    whole = rows.select("*", *(F.lit(None).alias(name) for name in missing))
    for _ in range(2):
        assert tables.write(whole, root, METRICS_DAILY) == {"queue=emails/date=2026-01-05": 3}
    found = tables.read(spark, root, METRICS_DAILY, ["emails"], date(2026, 1, 1))
    assert found.dtypes == [(field.name, field.dataType.simpleString()) for field in METRICS_DAILY.schema]
    assert [row.hour for row in found.select(F.hour("start").alias("hour")).collect()] == [3, 5, 7]
    after = {path: path.stat().st_ino for path in Path(root.removeprefix("file://")).rglob("*.parquet")}
    (changed,) = (path for path in before if before[path] != after[path])
    assert (changed.parent.parent.name, changed.parent.name) == ("queue=emails", "date=2026-01-05")
