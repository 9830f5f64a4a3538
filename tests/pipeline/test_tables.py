"""Reading and writing tables, by both engines: of some queues, or from a day on, nothing else is looked into."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from osqueue.errors import Damaged
from osqueue.pipeline import files, tables
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.files import TableFileWriter
from osqueue.pipeline.tables import JOBS, METRICS_DAILY, PARTITIONS, TABLES
from osqueue.pipeline.view_columns import sql_type

pytestmark = pytest.mark.both_engines

DAYS = [("emails", "2025-12-31"), ("emails", "2026-01-05"), ("letters", "2026-01-05")]


def metrics(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of ``metrics_daily`` of which little is known."""
    return pa.Table.from_pylist(rows, METRICS_DAILY.schema)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A table of three days, and what others have left there."""
    rows = metrics([{"queue": queue, "date": date.fromisoformat(day)} for queue, day in DAYS])
    assert set(tables.write(rows, f"file://{tmp_path}", METRICS_DAILY).values()) == {1}
    for name in ("queue=emails/date=soon", "queue=emails/_temporary", "notes"):
        (tmp_path / METRICS_DAILY.name / name).mkdir(parents=True)
    return f"file://{tmp_path}"


def days(engine: Engine, root: str, *of: Any) -> list[tuple[str, str]]:
    found = engine.arrow(engine.read(root, METRICS_DAILY, *of)).to_pylist()
    return sorted((row["queue"], f"{row['date']}") for row in found)


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        ((), DAYS),
        (((), date(2026, 1, 1)), DAYS[1:]),
        (((), date(2026, 1, 5)), DAYS[1:]),
        (((), date(2026, 1, 6)), []),
        ((["emails"],), DAYS[:2]),
        ((["emails"], date(2026, 1, 1)), DAYS[1:2]),
        ((["nobody"],), []),
        (((), None, (), date(2026, 1, 5)), DAYS[:1]),
        (((), date(2025, 12, 31), (), date(2026, 1, 1)), DAYS[:1]),
    ],
    ids=[
        "all",
        "from a day on",
        "from that day on",
        "later",
        "one queue",
        "both",
        "no such queue",
        "before a day",
        "of one day",
    ],
)
def test_of_a_table_some_queues_and_days_are_read(
    engine: Engine, root: str, of: tuple[Any, ...], wanted: list[tuple[str, str]]
) -> None:
    assert days(engine, root, *of) == wanted


def test_what_is_not_asked_for_is_not_looked_into(engine: Engine, root: str) -> None:
    (damaged,) = Path(root.removeprefix("file://")).glob("*/queue=emails/date=2025-12-31/*.parquet")
    damaged.write_bytes(b"nothing")
    assert days(engine, root, (), date(2026, 1, 1)) == DAYS[1:]
    assert days(engine, root, ["letters"]) == DAYS[2:]
    told = {"local": (Damaged, "cannot be read"), "spark": (Py4JJavaError, "FAILED_READ_FILE")}
    error, words = told[engine.name]
    with pytest.raises(error, match=words):
        days(engine, root, ["emails"])


def test_a_column_that_a_file_is_too_old_to_have_is_null(engine: Engine, tmp_path: Path) -> None:
    draft = TableFileWriter(pa.schema([("job_id", pa.string())]))
    draft.add(pa.table({"job_id": ["a"]}))
    path = tmp_path / files.key_of(JOBS.name, "queue=2024/date=2026-01-05")
    path.parent.mkdir(parents=True)
    path.write_bytes(draft.finish() or b"")
    (row,) = engine.arrow(engine.read(f"file://{tmp_path}", JOBS)).to_pylist()
    known = {"job_id": "a", "queue": "2024", "date": date(2026, 1, 5)}
    assert row == {**dict.fromkeys(JOBS.schema.names), **known}


def test_a_table_that_nobody_has_written_has_no_rows_and_all_columns(engine: Engine, tmp_path: Path) -> None:
    for table in TABLES:
        found = engine.arrow(engine.read(f"file://{tmp_path}", table))
        assert (found.num_rows, found.schema) == (0, table.schema)


def test_partitions_are_the_folders_of_days_and_nothing_else(root: str) -> None:
    wanted = [f"queue={queue}/date={day}" for queue, day in DAYS]
    assert files.days(root, METRICS_DAILY.name) == wanted
    assert files.days(root, METRICS_DAILY.name, ["emails"], date(2026, 1, 1)) == wanted[1:2]


def test_rows_are_written_to_their_partitions_sorted_and_others_are_left_alone(
    engine: Engine, root: str
) -> None:
    before = {path: path.stat().st_ino for path in Path(root.removeprefix("file://")).rglob("*.parquet")}
    starts = [datetime(2026, 1, 5, hour, tzinfo=UTC) for hour in (7, 3, 5)]
    rows = metrics([{"queue": "emails", "date": date(2026, 1, 5), "start": start} for start in starts])
    for _ in range(2):
        assert tables.write(rows, root, METRICS_DAILY) == {"queue=emails/date=2026-01-05": 3}
    found = engine.arrow(engine.read(root, METRICS_DAILY, ["emails"], date(2026, 1, 1)))
    assert found.schema == METRICS_DAILY.schema
    assert found["start"].to_pylist() == sorted(starts)
    after = {path: path.stat().st_ino for path in Path(root.removeprefix("file://")).rglob("*.parquet")}
    (changed,) = (path for path in before if before[path] != after[path])
    assert (changed.parent.parent.name, changed.parent.name) == ("queue=emails", "date=2026-01-05")


def test_types_are_written_as_spark_writes_them() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.pandas.types import from_arrow_type

    for table in TABLES:
        for column in (*table.columns, *PARTITIONS):
            assert sql_type(column.type) == from_arrow_type(column.type).simpleString(), column.name
