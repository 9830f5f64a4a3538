"""Operations on batches."""

from __future__ import annotations

from ..commit.effects import QueueFlow
from ..contract.admin_schemas import BatchChange, Batches, NewBatch
from ..errors import Rejected
from ..model.batch import BatchStatus
from ..model.keys import is_key, key_of
from .request import RequestContext


def open_batch(request: RequestContext) -> QueueFlow[BatchStatus]:
    """Open one."""
    body: NewBatch = request.read()
    if body.batch_id is not None and not is_key(body.batch_id):
        raise Rejected(
            "batch_id: it is not a UUID of version 7 in lower case. Draw one for every batch, or leave it out.",
            field="batch_id",
        )
    key = None if body.batch_id is None else key_of(body.batch_id)
    flows = request.warm.steering
    return (yield from flows.open_batch(body.name, body.on_complete, body.on_success, key))


def list_batches(request: RequestContext) -> QueueFlow[Batches]:
    """Those of a queue."""
    return Batches(batches=(yield from request.warm.steering.batches()))


def get_batch(request: RequestContext) -> QueueFlow[BatchStatus]:
    """One of them."""
    return (yield from request.warm.steering.batch_status(request.path["batch"]))


def change_batch(request: RequestContext) -> QueueFlow[BatchStatus]:
    """Seal one."""
    body: BatchChange = request.read()
    if not body.sealed:
        raise Rejected("sealed: a batch is sealed for good. Say true, or leave it as it is.", field="sealed")
    return (yield from request.warm.steering.seal_batch(request.path["batch"]))
