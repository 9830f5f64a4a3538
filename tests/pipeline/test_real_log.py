"""The real log end to end: archive, compaction, metrics; every figure against plain Python over the same log."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from demo.swf import read_jobs
from osqueue.core.history import Record, encode_part
from pipeline import tables
from pipeline.jobs import compact, metrics
from pipeline.jobs.compact import Compaction
from pipeline.jobs.metrics import Metrics
from pipeline.tables import (
    ATTEMPTS,
    JOBS,
    METRICS_DAILY,
    METRICS_ERRORS,
    METRICS_HOURLY,
    METRICS_WORKERS,
    Table,
)
from tests.pipeline import log_as_past
from tests.pipeline.log_as_past import DAY_MS, HOUR_MS, LOG, Figures, Life

REAPED_MS = 48 * HOUR_MS  # a reaper that comes every other day
REPEATED = 7  # every so many passes die before their commit, and the next one writes their records again
TARGET_MS = 45_000


class Past:
    """The log in tables."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.lives = log_as_past.lives()
        self.store, self.root = folder / "store", str(folder / "tables")
        self.repeats = self._archive()
        self.told = compact.run(spark, Compaction(str(self.store), self.root))
        metrics.run(spark, Metrics(self.root, target_ms=TARGET_MS))

    def _archive(self) -> int:
        """Write the parts; answers how many records are there twice."""
        passes: defaultdict[tuple[str, int], list[Life]] = defaultdict(list)
        for life in self.lives:
            passes[life.queue, (life.finished // REAPED_MS + 1) * REAPED_MS + 5 * 60_000].append(life)
        repeats = 0
        for number, (queue, at) in enumerate(sorted(passes)):
            taken = passes[queue, at]
            self._part(queue, at, 0, list(map(log_as_past.record, taken)))
            if number % REPEATED == 0:
                repeats += len(taken)
                self._part(queue, at + 3 * HOUR_MS, 1, list(map(log_as_past.record, taken)))
        return repeats

    def _part(self, queue: str, at_ms: int, number: int, records: list[Record]) -> None:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        folder = self.store / f"archive/queue={queue}/{moment:date=%Y-%m-%d/hour=%H}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"00-{number:012x}-0123456789ab.jsonl.gz").write_bytes(encode_part(records))

    def table(self, table: Table) -> DataFrame:
        return tables.read(self.spark, self.root, table)

    def rows(self, table: Table) -> list[Row]:
        return self.table(table).withColumn("start_ms", F.unix_millis("start")).collect()


@pytest.fixture(scope="module")
def past(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(spark, tmp_path_factory.mktemp("log"))


def differences(found: dict[tuple[object, ...], Row], wanted: dict[tuple[object, ...], Figures]) -> list[str]:
    """Every figure that is another one."""
    assert found.keys() == wanted.keys()
    return [
        f"{key} {name}: {found[key][name]}, not {value}"
        for key, figures in wanted.items()
        for name, value in figures.items()
        if name in found[key]
        and (
            found[key][name] != pytest.approx(value, rel=1e-9, abs=1e-9)
            if value is not None
            else found[key][name] is not None
        )
    ]


def test_every_job_of_the_log_is_in_the_table_once(past: Past) -> None:
    assert past.told.repeats == past.repeats > 500
    assert past.told.jobs == len(past.lives)
    assert past.table(JOBS).select("job_id").distinct().count() == sum(1 for _ in read_jobs(LOG))
    assert past.table(JOBS).select("queue", "job_id", "run").distinct().count() == len(past.lives)


def test_every_lease_is_in_the_table_once(past: Past) -> None:
    columns = ("queue", "job_id", "run", "worker", "outcome", "final")
    times = (F.unix_millis("started_at").alias("start"), F.unix_millis("ended_at").alias("end"))
    found = [tuple(row) for row in past.table(ATTEMPTS).select(*columns, *times).collect()]
    wanted = [
        (life.queue, life.job_id, each.run, each.worker, each.outcome, each.final, each.start, each.end)
        for life in past.lives
        for each in life.leases
    ]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize(
    ("table", "length"), [(METRICS_HOURLY, HOUR_MS), (METRICS_DAILY, DAY_MS)], ids=["hourly", "daily"]
)
def test_every_metric_is_that_of_the_log(past: Past, table: Table, length: int) -> None:
    found = {(row.queue, row.start_ms): row for row in past.rows(table)}
    wanted = log_as_past.metrics(past.lives, length, TARGET_MS)
    assert set(table.columns.names) - {"start"} <= set(next(iter(wanted.values())))
    assert differences(found, dict(wanted)) == []


def test_every_workers_hour_is_that_of_the_log(past: Past) -> None:
    found = {(row.queue, row.start_ms, row.worker): row for row in past.rows(METRICS_WORKERS)}
    assert differences(found, dict(log_as_past.workers(past.lives))) == []


def test_every_error_is_that_of_the_log(past: Past) -> None:
    rows = past.table(METRICS_ERRORS).select(
        "*", *(F.unix_millis(name).alias(f"{name}_ms") for name in ("start", "first_at", "last_at"))
    )
    found = {
        (row.queue, row.start_ms, row.fingerprint): (
            *(row.attempts, row.jobs, row.deaths),
            *(row.first_at_ms, row.last_at_ms),
        )
        for row in rows.collect()
    }
    assert found == log_as_past.errors(past.lives)


def test_some_weeks_again_change_nothing(past: Past) -> None:
    def digest() -> list[Row | None]:
        row = F.xxhash64(F.to_json(F.struct("*")))
        return [
            past.table(table).agg(F.count("*"), F.sum(row.cast("decimal(38,0)"))).first()
            for table in (JOBS, ATTEMPTS, METRICS_HOURLY)
        ]

    before = digest()
    weeks = [datetime.fromtimestamp((log_as_past.BEGAN_MS + n * DAY_MS) / 1000, UTC) for n in (30, 44)]
    again = compact.run(past.spark, Compaction(str(past.store), past.root, *weeks))
    assert again.hours > 10
    assert again.repeats > 0
    metrics.run(past.spark, Metrics(past.root, *weeks, target_ms=TARGET_MS))
    assert digest() == before
