"""Operations on the registry of workers."""

from __future__ import annotations

from ..commit.effects import QueueFlow
from ..contract.admin_schemas import Workers
from ..contract.schemas import NewWorkerEntry
from ..errors import NotFound
from .answers import StatusAnswer, fitted
from .request import RequestContext


def list_workers(request: RequestContext) -> QueueFlow[bytes]:
    """Who works on a queue."""
    found = yield from request.warm.steering.workers()
    return fitted(len(found), lambda most: Workers(workers=found[:most], more=most < len(found)))


def put_worker(request: RequestContext) -> QueueFlow[StatusAnswer]:
    """Hear that a worker is there."""
    entry: NewWorkerEntry = request.read()
    if not (yield from request.warm.flows.put_worker(request.path["worker"], entry)):
        raise NotFound(
            f"queue {request.name}: there is none of this name. Its first job or setting makes it; say it again then."
        )
    return StatusAnswer(204)


def delete_worker(request: RequestContext) -> QueueFlow[StatusAnswer]:
    """Hear that a worker ends."""
    yield from request.warm.flows.delete_worker(request.path["worker"])
    return StatusAnswer(204)
