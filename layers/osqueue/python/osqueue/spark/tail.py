"""``spark.readStream``: finished jobs, as their records are archived. Read-only: nothing is acknowledged.

A queue's head is overwritten by every commit, so transitions as such cannot be followed and replayed. The parts of the
archive can: they are written once, never change, and hold every ending with its whole timeline. An offset tells which
parts have been read:

    {"before": "2026-11-21T07", "parts": ["2026-11-21T07/00-00000000002a-0123456789ab.jsonl.gz", …]}

namely all those of earlier hours than ``before``, and of later ones those that are listed. A part is written into the
hour of its writing, so the last few hours are listed by name, and a part that a slow reap brings late is not missed.
The same two offsets always mean the same parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..clock import MACHINE
from ..commit.driver import BlockingDriver
from ..commit.effects import Flow
from ..objects import archive
from ..objects.archive import HOURS_REMEMBERED, PARTS_AT_ONCE
from .columns import BATCH_ROWS, ArrowBatcher, wanted
from .options import TailOptions

PARTITIONS_MAX = 64  # of one micro-batch
HOUR = "%Y-%m-%dT%H"


class TailPartition(InputPartition):
    """Some parts of the archive, by their keys."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{len(names)} parts from {names[0]}")
        self.names = tuple(names)


class TailReader(DataSourceStreamReader):
    """Follows the archive of one queue."""

    def __init__(self, options: TailOptions, schema: StructType) -> None:
        wanted(schema)
        self._options = options
        self._schema = schema
        self._folder = archive.folder_of(options.place.queue)
        self._at = self.initialOffset()  # up to where Spark has asked for rows

    # ── Offsets ──────────────────────────────────────────────────────────────
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a stream begins that has no checkpoint."""
        since = self._options.since_ms
        hour = "" if since is None else archive.hour_of(self._options.place.queue, since)
        return {"before": self._hour(hour), "parts": []}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """All parts there are; or with ``parts_per_batch`` so many more than Spark has asked for, the oldest first.

        In chronological order, so that all parts of hours before ``before`` have been read, as an offset says.
        """
        at = self._at
        listed = self._listed(at["before"])
        read = set(at["parts"])
        fresh = [name for name in listed if self._short(name) not in read][: self._options.parts_per_batch]
        if not fresh:
            return at
        read.update(map(self._short, fresh))
        have = [name for name in listed if self._short(name) in read]
        newest = datetime.fromisoformat(f"{max(map(self._hour, have))}:00+00:00")
        before = max(at["before"], (newest - timedelta(hours=HOURS_REMEMBERED)).strftime(HOUR))
        return {"before": before, "parts": [self._short(name) for name in have if self._hour(name) >= before]}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TailPartition]:
        """The parts that one offset has and the other has not.

        Spark also asks for those between an offset and itself, to tell a restarted stream where it stands.
        """
        self._at = end
        if start == end:
            return []
        read, there = set(start["parts"]), set(end["parts"])
        names = [
            name
            for name in self._listed(start["before"])
            if self._short(name) not in read
            and (self._hour(name) < end["before"] or self._short(name) in there)
        ]
        size = max(1, -(-len(names) // PARTITIONS_MAX))
        return [TailPartition(names[at : at + size]) for at in range(0, len(names), size)]

    def _listed(self, hour: str) -> list[str]:
        """The keys of all parts of an hour and later ones."""
        store = self._options.place.open()
        try:
            return BlockingDriver(store, MACHINE).run(self._list(hour))
        finally:
            store.close()

    def _list(self, hour: str) -> Flow[list[str]]:
        queue = self._options.place.queue
        after = f"{self._folder}date={hour[:10]}/hour={hour[11:]}/" if hour else ""
        found: list[str] = []
        while names := (yield from archive.parts(queue, None, after)):
            found.extend(names)
            after = names[-1]
        return found

    def _short(self, name: str) -> str:
        """A part's name in an offset: its hour, and what it is called there."""
        return f"{self._hour(name)}/{name.rpartition('/')[2]}"

    def _hour(self, name: str) -> str:
        """The hour of a part or of a folder: it sorts as time does."""
        _, found, rest = name.partition(f"{self._folder}date=")
        return f"{rest[:10]}T{rest[16:18]}" if found else ""

    # ── Reading ──────────────────────────────────────────────────────────────
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read some parts, on a worker. Raises Damaged for one that cannot be read."""
        assert isinstance(partition, TailPartition)
        store = self._options.place.open()
        try:
            driver = BlockingDriver(store, MACHINE)
            batches = ArrowBatcher(self._schema)
            for at in range(0, len(partition.names), PARTS_AT_ONCE):
                parts = driver.run(archive.read(partition.names[at : at + PARTS_AT_ONCE]))
                records = [record for part in parts for record in part]
                for start in range(0, len(records), BATCH_ROWS):
                    yield batches.of_finished(records[start : start + BATCH_ROWS])
        finally:
            store.close()
