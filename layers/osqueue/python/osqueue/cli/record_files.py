"""Records of the archive as JSON lines, CSV or Parquet: on standard output, or in a file that is there once whole."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import click
import msgspec

from ..core.archive_record import ArchiveRecord
from ..errors import NotInstalled
from ..model.printable import as_json
from .output import OutputFailed, is_terminal, printing_answer

JSON_LINES, CSV, PARQUET = FORMATS = ("jsonl", "csv", "parquet")
ROWS_AT_ONCE = 1_000  # of Parquet: one row group, with their payloads
FIELDS = [field.encode_name for field in msgspec.structs.fields(ArchiveRecord)]


class RecordFile:
    """Where records go, and how. Raises NotInstalled, and UsageError for what a terminal cannot show."""

    def __init__(self, form: str, path: str | None) -> None:
        self._form = form
        self._path = None if path == "-" else path
        if form == PARQUET:
            if self._path is None and is_terminal(sys.stdout):
                raise click.UsageError(
                    "--format parquet: a terminal cannot show it. Name a file: --output FILE."
                )
            try:
                import pyarrow  # noqa: F401
            except ImportError:
                raise NotInstalled(
                    "format: PyArrow is missing, which writes Parquet. Remedy: pip install 'osqueue[duckdb]'.",
                    field="format",
                ) from None

    def write(self, records: Iterable[ArchiveRecord]) -> int:
        """Write all records; answers how many there were."""
        with self._opened() as stream:
            return {JSON_LINES: _json_lines, CSV: _csv, PARQUET: _parquet}[self._form](stream, records)

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        if self._path is None:
            with printing_answer():
                yield _Unclosed(sys.stdout.buffer)  # type: ignore[misc]
                sys.stdout.buffer.flush()
            return
        part = f"{self._path}.part"
        try:
            with open(part, "wb") as file:
                yield file
            os.replace(part, self._path)
        except OSError as error:
            raise OutputFailed(f"{self._path}: {error.strerror or error}.") from None
        finally:
            with suppress(OSError):
                os.remove(part)


class _Unclosed(io.RawIOBase):
    """A stream that its writer may close, and that stays open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        return len(data)


def _json_lines(stream: IO[bytes], records: Iterable[ArchiveRecord]) -> int:
    count = 0
    for record in records:
        stream.write(as_json(record).encode() + b"\n")
        count += 1
    return count


def _csv(stream: IO[bytes], records: Iterable[ArchiveRecord]) -> int:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    rows = csv.writer(text)
    rows.writerow(FIELDS)
    count = 0
    for record in records:
        rows.writerow([_cell(value) for value in msgspec.structs.astuple(record)])
        count += 1
    text.detach()
    return count


def _cell(value: Any) -> Any:
    """A value of a CSV file: what has parts is JSON."""
    return as_json(value) if isinstance(value, tuple | dict) else value


def _parquet(stream: IO[bytes], records: Iterable[ArchiveRecord]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..pipeline.catalog import archive_columns

    schema = pa.schema([(column.name, column.type) for column in archive_columns()])
    count = 0
    rows: list[dict[str, Any]] = []
    with pq.ParquetWriter(stream, schema, compression="zstd") as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(rows, schema))
            rows.clear()

        for record in records:
            rows.append(_parquet_row(record))
            count += 1
            if len(rows) == ROWS_AT_ONCE:
                flush()
        if rows:
            flush()
    return count


def _parquet_row(record: ArchiveRecord) -> dict[str, Any]:
    values = dict(zip(FIELDS, msgspec.structs.astuple(record), strict=True))
    values["attempts"] = [msgspec.structs.asdict(each) for each in record.attempts]
    for name in ("headers", "left_out"):
        values[name] = list(values[name].items())
    return values
