"""``df.write`` and ``df.writeStream``: the rows become jobs, all of them in one commit of each shard, or none.

    driver    plans: what time it is, and when what is staged now was born
    tasks     stage their rows as segments nobody refers to, and answer where these are
    driver    attaches what the tasks that count have staged

A task that fails, is repeated, or runs twice leaves segments that nobody attaches; they are collected a day later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from .. import limits
from ..bulk.writer import BulkResult, BulkWriter, StagedJobs
from ..clock import MACHINE
from ..errors import NotSupported
from .options import QueueLocation, WriteOptions
from .rows import BatchPosition, RowReader, shape_of

log = logging.getLogger("osqueue")

QUERY = "sql.streaming.queryId"  # where Spark tells tasks the id that a stream's checkpoint has


class StagedRows(WriterCommitMessage):
    """What one task staged, and what that cost."""

    def __init__(self, staged: StagedJobs | None, requests: dict[str, int], query: str | None = None) -> None:
        self.staged = staged
        self.requests = requests
        self.query = query  # the id of the stream that this is a micro-batch of, the same over restarts


class RowStager(DataSourceArrowWriter):
    """What batch writes and streams do alike: stage the rows of one partition, in a task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._shape = shape_of(schema, options.serializer)
        store = options.place.open()
        try:
            bulks = BulkWriter(store, options.place.queue)
            self._plan = bulks.plan()
            self._decided = options.batch_id is not None and bulks.is_decided(options.batch_id)
        finally:
            store.close()
        # Where the first partition goes: at random, because many writes have no other. It is drawn on the driver, so
        # that every attempt of a task goes to the same shard.
        self._first = int(MACHINE.uniform() * len(self._plan.born))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one partition, in a task."""
        if self._decided:  # an earlier run has staged what the batch is
            for _ in iterator:
                pass
            return StagedRows(None, {})
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        query = context.getLocalProperty(QUERY) if context is not None else None
        store = self._options.place.open()
        try:
            shard = (self._first + partition) % len(self._plan.born)
            stager = BulkWriter(store, self._options.place.queue).stager(self._plan, shard)
            reader = RowReader(self._shape)
            before = 0
            for whole in iterator:
                for start in range(0, whole.num_rows, limits.ITEMS_PER_REQUEST_MAX):
                    batch = whole.slice(start, limits.ITEMS_PER_REQUEST_MAX)
                    where = BatchPosition(partition, before + start)
                    stager.add(reader.jobs(batch, stager.keys(batch.num_rows), where))
                before += whole.num_rows
            return StagedRows(stager.finish(), store.requests, query)
        finally:
            store.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None], *_: int) -> None:
        """What is not attached nobody sees; it is collected by its age.

        Not here: Spark also gives up a write whose commit had no answer, and it may be in the queue.
        """
        log.warning("%s: the write was given up", self._options.place.queue)


class BulkDataSourceWriter(RowStager):
    """Writes one bulk."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise NotSupported(
                "mode: jobs are only ever added. Use mode('append'), and Queue.purge or cancel to remove some.",
                field="mode",
            )
        super().__init__(options, schema)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Attach what the tasks staged, on the driver."""
        self.attach(messages)

    def attach(self, messages: Sequence[WriterCommitMessage | None]) -> dict[str, int]:
        """The same; answers how many requests the write took, those of the tasks included."""
        rows = [each for each in messages if isinstance(each, StagedRows)]
        return attach(self._options.place, rows, self._options.batch_id, resume=self._decided)


class StreamDataSourceWriter(RowStager, DataSourceStreamWriter):
    """Writes the micro-batches of a stream, each as one bulk.

    It is a ``DataSourceArrowWriter`` as well, so that Spark hands it Arrow batches, and made anew for each micro-batch.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise NotSupported(
                "outputMode: jobs are only ever added. Use outputMode('append').", field="outputMode"
            )
        super().__init__(options, schema)

    def commit(  # type: ignore[override]  # a stream's has one argument more
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Attach a micro-batch, on the driver. A replayed one has the same id, and is the same batch."""
        rows = [
            each for each in messages if isinstance(each, StagedRows) and each.staged and each.staged.jobs
        ]
        if not rows:
            return
        (query,) = {each.query for each in rows}
        if query is None:
            raise NotSupported(
                "writeStream: this Spark does not tell tasks the id of their stream, by which a replay is known. Write"
                " in foreachBatch, with a batch_id."
            )
        attach(self._options.place, rows, f"{query}/{batchId}")


def attach(
    place: QueueLocation, rows: Sequence[StagedRows], batch_id: str | None, *, resume: bool = False
) -> dict[str, int]:
    """Attach what tasks staged; answers how many requests the write took, those of the tasks included."""
    staged = [each.staged for each in rows if each.staged and each.staged.jobs]
    store = place.open()
    try:
        bulks = BulkWriter(store, place.queue)
        if batch_id is not None and (resume or (not staged and bulks.is_decided(batch_id))):
            done = bulks.resume(batch_id)
        elif staged:
            done = bulks.attach(staged, batch_id)
        else:  # it decides nothing: a later run of the batch may have rows
            done = BulkResult(0)
        requests = dict(store.requests)
    finally:
        store.close()
    for each in rows:
        for name, count in each.requests.items():
            requests[name] = requests.get(name, 0) + count
    log.info(
        "%s: %d jobs%s, %d requests",
        place.queue,
        done.jobs,
        " of an earlier run of this batch" if done.repeated else "",
        sum(requests.values()),
    )
    return requests
