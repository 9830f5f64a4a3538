"""Batches: who opens them, seals them and looks how far they are. Each has its row in the shard of its jobs."""

from __future__ import annotations

from typing import Any

from .. import limits
from ..commit.effects import QueueFlow, Submit, together
from ..core.follow_ups import encode_follow_ups
from ..core.job_ops import JobSpec
from ..core.ops import Code
from ..core.queue_ops import ChangeBatch
from ..core.rows import BatchRow
from ..errors import Throttled
from ..model.batch import BatchStatus, batch_key, batch_row, batch_view, no_batch
from ..model.follow_ups import spec_of
from ..model.keys import KeySource
from ..objects.layout import read_state
from .placing import has_groups, placed_in
from .results import ResultFlows


class BatchFlows(ResultFlows):
    """The flows of those who keep batches."""

    def open_batch(
        self,
        name: str | None = None,
        on_complete: Any = None,
        on_success: Any = None,
        key: bytes | None = None,
    ) -> QueueFlow[BatchStatus]:
        """Open a batch, under a key that a client drew or one of its own."""
        row = batch_row(name, on_complete, on_success)
        count = yield from self.shards()
        if key is None:
            (key,) = KeySource(self.machine).draw(self.next_of(count))
        specs = tuple([spec_of(each) for each in (on_complete, on_success) if each is not None])
        whole = JobSpec(key, b"", then=encode_follow_ups(specs))  # of a shard, as a job and what follows it
        spread = (yield from self.group_shards()) if has_groups((whole,)) else 0
        key = placed_in(whole, spread, key[15] % count).key
        yield from self.known_queue()
        answer = yield Submit(key[15], (ChangeBatch(key, row),))
        if answer.outcomes[0].code == Code.CROWDED:
            raise Throttled(
                f"batch: those of a shard that are open have {limits.BATCHES_BYTES_MAX // limits.KB} KB together, about"
                " two hundred of them, and these are used. Wait for one to end, seal those that are left open, or add"
                " shards."
            )
        return (yield from self._status(key))

    def seal_batch(self, batch: str) -> QueueFlow[BatchStatus]:
        """No more jobs of it come from outside. Raises NotFound."""
        key = batch_key(batch)
        yield from self._batch(key)
        answer = yield Submit(key[15], (ChangeBatch(key),))
        if answer.outcomes[0].code == Code.NOT_FOUND:
            raise no_batch(key)
        return (yield from self._status(key))

    def batch_status(self, batch: str) -> QueueFlow[BatchStatus]:
        """How far it is. Raises NotFound."""
        return (yield from self._status(batch_key(batch)))

    def batches(self) -> QueueFlow[list[BatchStatus]]:
        """Those that are there, the oldest first."""
        count = (yield from self.shards()) or 1
        states = yield from together([read_state(self.queue, shard) for shard in range(count)])
        rows = [item for state in states if state is not None for item in state.batches.items()]
        return [batch_view(*item) for item in sorted(rows, key=lambda item: (item[1].created_ms, item[0]))]

    def _status(self, key: bytes) -> QueueFlow[BatchStatus]:
        return batch_view(key, (yield from self._batch(key)))

    def _batch(self, key: bytes) -> QueueFlow[BatchRow]:
        state = yield from read_state(self.queue, key[15])
        row = None if state is None else state.batches.get(key)
        if row is None:
            raise no_batch(key)
        return row
