"""The real log end to end: archive, compaction, metrics; every figure against plain Python over the same log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo import past
from demo.past import LoggedEnding
from demo.plan import LOG
from demo.swf import read_jobs
from osqueue.core.archive_record import decode_part
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.engines.spark import SparkEngine
from osqueue.pipeline.jobs import compact, metrics, sql
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.jobs.metrics import Metrics
from osqueue.pipeline.tables import (
    ATTEMPTS,
    JOBS,
    METRICS_DAILY,
    METRICS_ERRORS,
    METRICS_HOURLY,
    METRICS_WORKERS,
    TableSpec,
)
from tests.pipeline import log_as_past
from tests.pipeline.log_as_past import DAY_MS, HOUR_MS, Figures
from tests.pipeline.past import Row, read
from tests.support.places import ROOT

REAPED_MS = 7 * DAY_MS  # a reaper that comes every Thursday
REPEATED = 4  # every so many passes die before their commit, and the next one writes their records again
TARGET_MS = 600_000  # as in the tour
TOUR = (ROOT / "docs/pipeline-tour.md").read_text(encoding="utf-8")
ASKED = re.findall(r"```sql\n(.*?)```\n\n```text\n(.*?)\n```", TOUR, re.DOTALL)
MOMENTS = ("start", "first_at", "last_at")


class Past:
    """The log in tables."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        endings = past.endings()
        self.lives = log_as_past.lives(endings)
        self.store, self.root = folder / "store", str(folder / "tables")
        self.repeats = self._archive(endings)
        self.told = compact.run(engine, Compaction(str(self.store), self.root))
        metrics.run(engine, Metrics(self.root, target_ms=TARGET_MS))

    def _archive(self, endings: Sequence[LoggedEnding]) -> int:
        """Write the parts; answers how many records are there twice."""
        repeats = 0
        for number, (queue, at_ms, found) in enumerate(past.passes(endings, REAPED_MS)):
            records = [each.record for each in found]
            past.write_part(self.store, queue, at_ms, records)
            if number % REPEATED == 0:
                repeats += len(records)
                past.write_part(self.store, queue, at_ms + 3 * HOUR_MS, records)
        return repeats

    def rows(self, table: TableSpec, *key: str) -> dict[tuple[object, ...], Row]:
        """By key, moments as milliseconds."""
        found = {}
        for row in read(self.root, table):
            row |= {name: milliseconds(row[name]) for name in MOMENTS if name in row}
            found[tuple(row[name] for name in key)] = row
        return found

    def differences(
        self, table: TableSpec, wanted: Mapping[tuple[object, ...], Figures], *key: str
    ) -> list[str]:
        """Every figure that is another one, of all columns that the table has."""
        found = self.rows(table, *key)
        assert found.keys() == wanted.keys()
        return [
            f"{who} {name}: {row[name]}, not {wanted[who][name]}"
            for who, row in found.items()
            for name in table.arrow.names
            if name not in key and row[name] != close_to(wanted[who][name])
        ]


def milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def close_to(value: float | str | None) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def log(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(engine, tmp_path_factory.mktemp("log"))


@pytest.mark.both_engines
def test_every_job_of_the_log_is_in_the_table_once(log: Past) -> None:
    assert log.told.repeats == log.repeats > 500
    assert log.told.jobs == len(log.lives)
    jobs = read(log.root, JOBS)
    assert len({row.job_id for row in jobs}) == sum(1 for _ in read_jobs(LOG))
    assert len({(row.queue, row.job_id, row.run) for row in jobs}) == len(log.lives)


@pytest.mark.both_engines
def test_every_lease_is_in_the_table_once(log: Past) -> None:
    columns = ("queue", "job_id", "run", "worker", "outcome", "final")
    found = [
        (*(row[name] for name in columns), milliseconds(row.started_at), milliseconds(row.ended_at))
        for row in read(log.root, ATTEMPTS)
    ]
    wanted = [
        (life.queue, life.job_id, each.run, each.worker, each.outcome, each.final, each.start, each.end)
        for life in log.lives
        for each in life.leases
    ]
    assert sorted(found) == sorted(wanted)


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("table", "length"), [(METRICS_HOURLY, HOUR_MS), (METRICS_DAILY, DAY_MS)], ids=["hourly", "daily"]
)
def test_every_metric_is_that_of_the_log(log: Past, table: TableSpec, length: int) -> None:
    wanted = log_as_past.metrics(log.lives, length, TARGET_MS)
    assert log.differences(table, wanted, "queue", "start") == []


@pytest.mark.both_engines
def test_every_workers_hour_is_that_of_the_log(log: Past) -> None:
    assert log.differences(METRICS_WORKERS, log_as_past.workers(log.lives), "queue", "start", "worker") == []


@pytest.mark.both_engines
def test_every_error_is_that_of_the_log(log: Past) -> None:
    wanted = log_as_past.errors(log.lives)
    assert len({mark for _, _, mark in wanted}) == 5
    assert log.differences(METRICS_ERRORS, wanted, "queue", "start", "fingerprint") == []


@pytest.mark.both_engines
@pytest.mark.parametrize(("query", "answer"), ASKED)
def test_the_tours_questions_have_the_answers_it_prints(
    spark: SparkSession, log: Past, query: str, answer: str
) -> None:
    """They do not depend on how often the reaper comes: here it is once a week, and for the reader every night."""
    assert "\n".join(sql.text(SparkEngine(spark).ask(log.root, query))) == answer


def test_every_question_of_the_tour_has_an_answer() -> None:
    assert TOUR.count("\n```sql\n") == len(ASKED) >= 5


def test_the_archive_of_the_tour_is_one_that_the_library_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert past.main([str(tmp_path / "store")]) == 0
    parts = sorted((tmp_path / "store").rglob("*.jsonl.gz"))
    found = sum(len(decode_part(part.read_bytes(), part.name)) for part in parts)
    assert f"{len(parts)} archive parts" in capsys.readouterr().out
    assert f"the log as an archive: {len(parts)} parts" in TOUR
    assert found == len(past.endings())
    with pytest.raises(SystemExit):
        past.main([str(tmp_path / "store")])
    assert "is not empty. Name a new folder" in capsys.readouterr().err


def test_some_weeks_again_change_nothing(log: Past) -> None:
    def digest() -> dict[str, bytes]:
        return {f"{path}": path.read_bytes() for path in Path(log.root).rglob("*.parquet")}

    before = digest()
    weeks = [datetime.fromtimestamp((past.BEGAN_MS + n * DAY_MS) / 1000, UTC) for n in (30, 44)]
    again = compact.run(log.engine, Compaction(str(log.store), log.root, *weeks))
    assert (again.hours, again.emptied, again.parts) == (5, 1, 5)
    assert again.repeats > 0
    metrics.run(log.engine, Metrics(log.root, *weeks, target_ms=TARGET_MS))
    assert digest() == before
