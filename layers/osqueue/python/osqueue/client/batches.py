"""Batches, over an API."""

from __future__ import annotations

from typing import Any

from .. import limits
from ..contract.admin_schemas import BatchChange, Batches, NewBatch
from ..model.batch import BatchStatus, batch_key, batch_row
from ..model.follow_ups import told_next
from ..model.keys import KeySource, job_id
from .call import ApiClient, RemoteFlow


class RemoteBatches(ApiClient):
    """The flows of those who keep batches."""

    def open_batch(
        self, name: str | None = None, on_complete: Any = None, on_success: Any = None
    ) -> RemoteFlow[BatchStatus]:
        """Open a batch, under a key that is drawn here: a repeated call opens the same."""
        row = batch_row(name, on_complete, on_success)
        (key,) = KeySource(self.machine).draw(int(self.machine.uniform() * limits.SHARDS_MAX))
        body = NewBatch(
            batch_id=job_id(key),
            name=row.name or None,
            on_complete=told_next(row.on_complete),
            on_success=told_next(row.on_success),
        )
        found: BatchStatus = yield from self.ask("open_batch", body=body)
        return found

    def seal_batch(self, batch: str) -> RemoteFlow[BatchStatus]:
        """No more jobs of it come from outside. Raises NotFound."""
        body = BatchChange(sealed=True)
        found: BatchStatus = yield from self.ask("change_batch", batch=job_id(batch_key(batch)), body=body)
        return found

    def batch_status(self, batch: str) -> RemoteFlow[BatchStatus]:
        """How far it is. Raises NotFound."""
        found: BatchStatus = yield from self.ask("get_batch", batch=job_id(batch_key(batch)))
        return found

    def batches(self) -> RemoteFlow[list[BatchStatus]]:
        """Those that are there, the oldest first."""
        found: Batches = yield from self.ask("list_batches")
        return found.batches
