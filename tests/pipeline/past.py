"""Pasts of jobs in small archives, written with the library's own encoder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from osqueue.core.archive_record import RECORD_FORMAT, ArchiveRecord, AttemptRecord, encode_part
from osqueue.pipeline import tables
from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.jobs import compact
from osqueue.pipeline.jobs.compact import Compaction
from osqueue.pipeline.stretch import Compacted
from osqueue.pipeline.tables import JOBS, TableSpec

MIDNIGHT_MS = round(datetime(2026, 1, 5, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000
PART = "archive/queue=emails/date=2026-01-05/hour=10/00-a"


def key(number: int) -> str:
    """The id of a job that stands out in a failing test."""
    return f"01890a5d-ac96-774b-bcce-{number:012x}"


def at(hour: float) -> int:
    """So many hours after midnight of the day of the tests, UTC, in milliseconds."""
    return MIDNIGHT_MS + round(hour * HOUR_MS)


def lease(run: int, start_ms: int, end_ms: int, outcome: str = "completed", **more: Any) -> AttemptRecord:
    """A lease of worker ``w1`` unless another is given."""
    return AttemptRecord(run, more.pop("worker", "w1"), start_ms, end_ms, outcome, **more)


def done(number: int, enqueued_ms: int, *attempts: AttemptRecord, **more: Any) -> ArchiveRecord:
    """The record of a job that ended with its last lease, as the library would write it."""
    last = attempts[-1] if attempts else None
    state = more.pop("state", last.outcome if last and last.outcome != "stalled" else "failed")
    used = sum(each.outcome != "released" for each in attempts)
    return ArchiveRecord(
        RECORD_FORMAT,
        key(number),
        more.pop("run", last.run if last else 0),
        state,
        enqueued_ms,
        more.pop("finished_ms", last.ended_ms if last else enqueued_ms),
        more.pop("attempt", used),
        more.pop("payload_bytes", 100),
        attempts=attempts,
        **more,
    )


def hour(number: int) -> datetime:
    return datetime.fromtimestamp(at(number) / 1000, UTC)


def job(number: int, start: float, **more: object) -> ArchiveRecord:
    """One that ran for a second, at a time in hours after midnight."""
    return done(number, at(start) - 500, lease(1, at(start), at(start) + 1000), **more)


class Row(dict[str, Any]):
    """A row whose columns are also attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def read(root: Path | str, table: TableSpec) -> list[Row]:
    """A table's rows, whatever has written it."""
    return [Row(each) for each in tables.read(str(root), table).to_pylist()]


class Archive:
    """A store's folder with an archive in it, and one for the tables beside it."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.tables = folder / "tables"
        self.store.mkdir()

    def path(self, hour: int, name: str, queue: str = "emails") -> Path:
        """Where a part of an hour lies; hours after the 23rd are those of the next days."""
        moment = datetime.fromtimestamp(at(hour) / 1000, UTC)
        return self.store / f"archive/queue={queue}/{moment:date=%Y-%m-%d/hour=%H}/{name}.jsonl.gz"

    def write(self, hour: int, name: str, records: Sequence[ArchiveRecord], queue: str = "emails") -> Path:
        """A part, through the library's encoder."""
        return self.put(hour, name, encode_part(records), queue)

    def put(self, hour: int, name: str, data: bytes, queue: str = "emails") -> Path:
        """A part of any bytes."""
        path = self.path(hour, name, queue)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


# ── Compaction of them ───────────────────────────────────────────────────────
def run(engine: Engine, archive: Archive, since: int | None = None, until: int | None = None) -> Compacted:
    config = Compaction(
        str(archive.store),
        str(archive.tables),
        None if since is None else hour(since),
        None if until is None else hour(until),
    )
    return compact.run(engine, config)


def jobs(archive: Archive) -> list[tuple[int, int, str, int]]:
    """The jobs in the table: number, run, queue and hour of the archive."""
    rows = read(archive.tables, JOBS)
    return sorted(
        (int(row.job_id[-12:], 16), row.run, row.queue, row.date.day * 24 - 120 + row.hour) for row in rows
    )


def marks(archive: Archive) -> list[Path]:
    """What runs have left unfinished."""
    return [path for path in archive.tables.glob("_unfinished/*/*") if path.is_file()]
