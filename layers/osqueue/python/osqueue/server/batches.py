"""Operations on batches."""

from __future__ import annotations

from ..contract.admin_schemas import BatchChange, Batches, NewBatch
from ..errors import Rejected
from ..model.batch import BatchStatus
from ..model.keys import is_key, key_of
from .request import RequestContext


def open_batch(request: RequestContext) -> BatchStatus:
    """Open one."""
    body: NewBatch = request.read()
    if body.batch_id is not None and not is_key(body.batch_id):
        raise Rejected(
            "batch_id: it is not a UUID of version 7 in lower case. Draw one for every batch, or leave it out.",
            field="batch_id",
        )
    key = None if body.batch_id is None else key_of(body.batch_id)
    flow = request.warm.steering.open_batch(body.name, body.on_complete, body.on_success, key)
    return request.run(flow)


def list_batches(request: RequestContext) -> Batches:
    """Those of a queue."""
    return Batches(batches=request.run(request.warm.steering.batches()))


def get_batch(request: RequestContext) -> BatchStatus:
    """One of them."""
    return request.run(request.warm.steering.batch_status(request.path["batch"]))


def change_batch(request: RequestContext) -> BatchStatus:
    """Seal one."""
    body: BatchChange = request.read()
    if not body.sealed:
        raise Rejected("sealed: a batch is sealed for good. Say true, or leave it as it is.", field="sealed")
    return request.run(request.warm.steering.seal_batch(request.path["batch"]))
