"""``osqueue archive cat --format``: the records as JSON lines and CSV, on standard output and in a file."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from osqueue import Queue
from osqueue.core.archive_record import ArchiveRecord
from tests.support.commands import Run, answers

CAT = ("archive", "cat", "emails")
COLUMNS = [field.encode_name for field in msgspec.structs.fields(ArchiveRecord)]


@pytest.fixture
def archived(q: Queue[Any]) -> None:
    """Two records: one with all there is, one with hardly anything."""
    q.configure(archive_payloads=True)
    q.enqueue({"to": 'ada "x",\n\u00e9'}, id="order-7", headers={"a": "b"}, max_attempts=1)
    q.claim()[0].fail("row 1 is bad")
    q.enqueue(None)
    q.claim()[0].complete(["r"])
    q.reap()


def test_json_lines_are_the_same_as_without_a_format(run: Run, archived: None, tmp_path: Path) -> None:
    plain = answers(run(*CAT))
    assert plain
    assert answers(run(*CAT, "--format", "jsonl")) == plain
    run(*CAT, "--format", "jsonl", "--output", str(tmp_path / "records"))
    assert [json.loads(line) for line in (tmp_path / "records").read_text().splitlines()] == plain
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("records")] == ["records"]


def test_csv_has_every_column_and_json_where_a_value_has_parts(run: Run, archived: None) -> None:
    plain = answers(run(*CAT))
    rows = list(csv.DictReader(io.StringIO(run(*CAT, "--format", "csv").stdout, newline="")))
    assert list(rows[0]) == COLUMNS
    assert [row["job_id"] for row in rows] == [each["job_id"] for each in plain]
    for row, record in zip(rows, plain, strict=True):
        assert row["payload"] == record["payload"]
        assert json.loads(row["headers"]) == record.get("headers", {})
        assert [each["run"] for each in json.loads(row["attempts"])] == [
            each["run"] for each in record["attempts"]
        ]


def test_limit_and_filters_hold_and_nothing_is_a_file_with_columns_alone(run: Run, archived: None) -> None:
    assert len(run(*CAT, "--format", "csv", "--limit", "1").stdout.splitlines()) >= 2
    ended = run(*CAT, "--format", "csv", "--since", "4000000000")
    assert ended.stdout.splitlines() == [",".join(COLUMNS)]
    assert "nothing in the archive matches" in ended.stderr


def test_without_pyarrow_the_extra_is_named(
    run: Run, archived: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended = run(*CAT, "--format", "parquet")
    assert ended.exit_code == 2
    assert "pip install 'osqueue[duckdb]'" in ended.stderr
    assert run(*CAT, "--format", "csv").exit_code == 0


def test_a_file_that_cannot_be_written_is_named_and_one_needs_a_format(
    run: Run, archived: None, tmp_path: Path
) -> None:
    ended = run(*CAT, "--format", "csv", "--output", str(tmp_path / "nowhere" / "x"))
    assert ended.exit_code == 4
    assert "nowhere" in ended.stderr
    assert run(*CAT, "--output", str(tmp_path / "x")).exit_code == 2
