"""``df.write``: a DataFrame's rows become jobs, all of them in one commit of each shard, or none.

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
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from osqueue import limits
from osqueue.bulk import BulkWriter, Staged
from osqueue.errors import NotSupported

from .options import WriteOptions
from .rows import Reader, Where, shape_of

log = logging.getLogger("osqueue")


class StagedRows(WriterCommitMessage):
    """What one task staged, and what that cost."""

    def __init__(self, staged: Staged | None, requests: dict[str, int]) -> None:
        self.staged = staged
        self.requests = requests


class BulkDataSourceWriter(DataSourceArrowWriter):
    """Writes one bulk."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise NotSupported(
                "mode: jobs are only ever added. Use mode('append'), and Queue.purge or cancel to remove some.",
                field="mode",
            )
        self._options = options
        self._shape = shape_of(schema, options.serializer)
        store = options.place.open()
        try:
            bulks = BulkWriter(store, options.place.queue)
            self._plan = bulks.plan()
            self._decided = options.batch_id is not None and bulks.is_decided(options.batch_id)
        finally:
            store.close()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one partition, in a task."""
        if self._decided:  # an earlier run has staged what the batch is
            for _ in iterator:
                pass
            return StagedRows(None, {})
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        store = self._options.place.open()
        try:
            shard = partition % len(self._plan.born)
            stager = BulkWriter(store, self._options.place.queue).stager(self._plan, shard)
            reader = Reader(self._shape)
            before = 0
            for whole in iterator:
                for start in range(0, whole.num_rows, limits.ITEMS_PER_REQUEST_MAX):
                    batch = whole.slice(start, limits.ITEMS_PER_REQUEST_MAX)
                    where = Where(partition, before + start)
                    stager.add(reader.jobs(batch, stager.keys(batch.num_rows), where))
                before += whole.num_rows
            return StagedRows(stager.finish(), store.requests)
        finally:
            store.close()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Attach what the tasks staged, on the driver."""
        self.attach(messages)

    def attach(self, messages: Sequence[WriterCommitMessage | None]) -> dict[str, int]:
        """The same; answers how many requests the write took, those of the tasks included."""
        options = self._options
        rows = [each for each in messages if isinstance(each, StagedRows)]
        store = options.place.open()
        try:
            bulks = BulkWriter(store, options.place.queue)
            if self._decided and options.batch_id is not None:
                done = bulks.resume(options.batch_id)
            else:
                done = bulks.attach([each.staged for each in rows if each.staged], options.batch_id)
            requests = dict(store.requests)
        finally:
            store.close()
        for each in rows:
            for name, count in each.requests.items():
                requests[name] = requests.get(name, 0) + count
        log.info(
            "%s: %d jobs%s, %d requests",
            options.place.queue,
            done.jobs,
            " of an earlier run of this batch" if done.repeated else "",
            sum(requests.values()),
        )
        return requests

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What is not attached nobody sees; it is collected by its age."""
        log.warning("%s: the write was given up", self._options.place.queue)
