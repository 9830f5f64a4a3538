"""``spark.read``: the live jobs of a queue, as of one commit of each shard.

The driver reads each head once and cuts what it names into partitions; the workers read immutable segments. What
others commit meanwhile is not seen. A snapshot can be read for a day, after which the collector may take its segments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..clock import MACHINE
from ..commit.driver import BlockingDriver
from ..core.encoding import cut_by_weight
from ..core.state import content_bytes
from ..objects import snapshot
from ..objects.layout import root_of
from ..objects.segments import read_bodies
from ..objects.snapshot import LiveJob, Piece
from .columns import BATCH_ROWS, ArrowBatcher, PayloadJob, wanted
from .options import ReadOptions

BATCH_PAYLOAD_BYTES = 32 * 1024 * 1024  # payloads of one Arrow batch, unless a single one is larger


class LivePartition(InputPartition):
    """One piece of a snapshot."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(f"shard {piece.shard} at commit {piece.seq}")
        self.piece = piece


class LiveReader(DataSourceReader):
    """Reads one snapshot."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._payload = options.payload and any(column.name == "payload" for column in wanted(schema))

    def partitions(self) -> list[LivePartition]:
        """Take the snapshot, on the driver."""
        place = self._options.place
        store = place.open()
        try:
            pieces = BlockingDriver(store, MACHINE).run(snapshot.pieces(place.queue, self._options.states))
            return [LivePartition(each) for each in pieces]
        finally:
            store.close()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read one piece, on a worker. An empty queue has none."""
        if not isinstance(partition, LivePartition):
            return
        place = self._options.place
        store = place.open()
        try:
            driver = BlockingDriver(store, MACHINE)
            batches = ArrowBatcher(self._schema)
            jobs = driver.run(snapshot.read(place.queue, partition.piece))
            for rows in cut(jobs, BATCH_PAYLOAD_BYTES if self._payload else None):
                yield batches.of_live(self._seen(driver, partition.piece, rows))
        finally:
            store.close()

    def _seen(self, driver: BlockingDriver, piece: Piece, jobs: Sequence[LiveJob]) -> list[PayloadJob]:
        if not self._payload:
            return [PayloadJob(live) for live in jobs]
        root = root_of(self._options.place.queue, piece.shard)
        contents = driver.run(read_bodies(root, [live.job.payload for live in jobs]))
        return [PayloadJob(live, content) for live, content in zip(jobs, contents, strict=True)]


def cut(jobs: Sequence[LiveJob], payload_bytes: int | None) -> Iterator[list[LiveJob]]:
    """Runs of jobs for one Arrow batch each: so many at most, and so many bytes of payload."""
    most = math.inf if payload_bytes is None else payload_bytes
    return cut_by_weight(jobs, lambda live: content_bytes(live.job.payload), most, BATCH_ROWS)
