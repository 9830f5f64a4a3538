"""The tables as others read them, by the snippets of docs/pipeline-tables.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from osqueue.pipeline import files, tables
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import run
from osqueue.pipeline.jobs.run import PipelineRun
from osqueue.pipeline.tables import JOBS, METRICS_HOURLY
from tests.pipeline.past import Archive, at, job, read
from tests.support.places import ROOT

PAGE = (ROOT / "docs/pipeline-tables.md").read_text(encoding="utf-8")


def snippet(name: str) -> str:
    """The example of a reader, as the page has it."""
    found = re.search(rf"<!-- reader {name} -->\n(?:<!-- not run -->\n)?```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, name
    return found[1]


def by_duckdb(root: Path) -> list[tuple[str, int, datetime]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    query = snippet("DuckDB").replace("/var/lib/tables", str(root)).rstrip(";\n")
    return [(queue, hour, found) for queue, hour, found in connection.sql(query).fetchall()]


def by_pandas(root: Path) -> list[tuple[str, int, datetime]]:
    names: dict[str, object] = {}
    exec(snippet("pandas").replace("/var/lib/tables", str(root)), names)  # noqa: S102 - it is ours
    found = names["jobs"]
    return list(found[["queue", "hour", "finished_at"]].itertuples(index=False, name=None))  # type: ignore[index]


def by_polars(root: Path) -> list[tuple[str, int, datetime]]:
    names: dict[str, object] = {}
    exec(snippet("Polars").replace("/var/lib/tables", str(root)), names)  # noqa: S102 - it is ours
    return list(names["jobs"].select("queue", "hour", "finished_at").rows())  # type: ignore[attr-defined]


@pytest.mark.parametrize("reader", [by_duckdb, by_pandas, by_polars])
def test_a_reader_sees_every_row_with_its_queue_and_its_moments_in_utc(
    engine: Engine, archive: Archive, reader: Callable[[Path], list[tuple[str, int, datetime]]]
) -> None:
    """A queue whose name is a number stays text."""
    archive.write(9, "00-a", [job(1, 8.9)], "2024")
    archive.write(23, "00-a", [job(2, 22.9)])
    run.run(engine, PipelineRun(str(archive.store), str(archive.tables), str(archive.store / "r.html")))
    wanted = [
        ("2024", 9, datetime.fromtimestamp((at(8.9) + 1000) / 1000, UTC)),
        ("emails", 23, datetime.fromtimestamp((at(22.9) + 1000) / 1000, UTC)),
    ]
    assert sorted(reader(archive.tables)) == wanted


@pytest.mark.parametrize("older", [5, 6])
def test_a_partition_that_is_older_than_a_column_has_null_in_it(
    engine: Engine, archive: Archive, older: int
) -> None:
    """Whatever reads it: the library, DuckDB by union_by_name, and Polars by missing_columns."""
    archive.write(9, "00-a", [job(1, 8.9)])
    archive.write(33, "00-a", [job(2, 32.9)])
    config = PipelineRun(str(archive.store), str(archive.tables), str(archive.store / "r.html"))
    first = run.run(engine, config)
    old = archive.tables / files.key_of(JOBS.name, f"queue=emails/date=2026-01-0{older}")
    pq.write_table(pq.ParquetFile(old).read().drop_columns(["clock_suspect", "units"]), old)
    told = {row.job_id: (row.units, row.clock_suspect) for row in read(archive.tables, JOBS)}
    assert sorted(told.values(), key=str) == [(1, None), (None, None)]
    assert len(by_duckdb(archive.tables)) == len(by_polars(archive.tables)) == 2
    metrics_before = read(archive.tables, METRICS_HOURLY)
    again = run.metrics.run(engine, run.metrics.Metrics(str(archive.tables)))
    assert (again, read(archive.tables, METRICS_HOURLY)) == (first.measured, metrics_before)


def test_a_column_of_milliseconds_says_so_in_its_name_or_its_meaning() -> None:
    """So that nobody has to guess a unit."""
    for table in tables.TABLES:
        for column in table.columns:
            if column.name.endswith("_ms"):
                assert pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
                assert "milliseconds" in column.comment, f"{table.name}.{column.name}"
            if pa.types.is_timestamp(column.type):
                assert (column.type.unit, column.type.tz) == ("us", "UTC")


def test_some_columns_of_a_table_are_read_with_those_of_its_folders(engine: Engine, archive: Archive) -> None:
    archive.write(9, "00-a", [job(1, 8.9)])
    run.run(engine, PipelineRun(str(archive.store), str(archive.tables), str(archive.store / "r.html")))
    found = tables.read(str(archive.tables), JOBS, columns=("state",)).to_pylist()
    assert found == [{"state": "completed", "queue": "emails", "date": date(2026, 1, 5)}]
