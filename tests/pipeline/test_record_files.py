"""``osqueue archive cat --format parquet``: the records with the columns and types of the archive."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from osqueue import Queue
from osqueue.cli import record_files
from osqueue.cli.app import app
from osqueue.core.archive_record import ArchiveRecord
from tests.support.commands import Run, answers

CAT = ("archive", "cat", "emails")
COLUMNS = [field.encode_name for field in msgspec.structs.fields(ArchiveRecord)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def invoke(*args: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, args, input=stdin, env={"OSQUEUE_ADDRESS": f"file://{tmp_path}/jobs"})

    return invoke


@pytest.fixture
def archived(tmp_path: Path) -> None:
    """Two records: one with all there is, one with hardly anything."""
    q: Queue[Any] = Queue.connect(f"file://{tmp_path}/jobs", "emails")
    q.configure(archive_payloads=True)
    q.enqueue({"to": "ada"}, id="order-7", headers={"a": "b"}, max_attempts=1)
    q.claim()[0].fail("row 1 is bad")
    q.enqueue(None)
    q.claim()[0].complete(["r"])
    q.reap()


def test_parquet_has_every_column_with_its_type(run: Run, archived: None, tmp_path: Path) -> None:
    plain = answers(run(*CAT))
    path = tmp_path / "records.parquet"
    assert run(*CAT, "--format", "parquet", "--output", str(path)).exit_code == 0
    table = pq.read_table(path)
    assert table.column_names == COLUMNS
    rows = table.to_pylist()
    assert [(row["job_id"], row["payload"], row["finished_ms"]) for row in rows] == [
        (each["job_id"], each["payload"], each["finished_ms"]) for each in plain
    ]
    assert [dict(row["headers"]) for row in rows] == [each.get("headers", {}) for each in plain]
    assert [[each["worker"] for each in row["attempts"]] for row in rows] == [
        [each["worker"] for each in record["attempts"]] for record in plain
    ]


def test_parquet_goes_to_standard_output_where_that_is_no_terminal(
    run: Run, archived: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run(*CAT, "--format", "parquet")
    assert pq.read_table(io.BytesIO(ended.stdout_bytes)).num_rows == len(answers(run(*CAT)))
    monkeypatch.setattr(record_files, "is_terminal", lambda stream: True)
    ended = run(*CAT, "--format", "parquet")
    assert ended.exit_code == 2
    assert "--output FILE" in ended.stderr


def test_row_groups_are_cut(run: Run, archived: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "ROWS_AT_ONCE", 1)
    data = run(*CAT, "--format", "parquet").stdout_bytes
    assert pq.ParquetFile(io.BytesIO(data)).num_row_groups == len(answers(run(*CAT)))
