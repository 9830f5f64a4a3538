"""Batches of a queue: jobs whose common end makes another one.

with q.batch(on_complete=Next("report")) as batch:
    for page in pages:
        batch.enqueue(page)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..commit.effects import QueueFlow
from .flow_methods import FlowMethod

if TYPE_CHECKING:
    from ..model.batch import BatchStatus
    from ..model.follow_ups import Next
    from ..model.job import Enqueued
    from ..model.job_options import JobOptionArguments


class BatchWish(TypedDict, total=False):
    """What comes of the end of a batch."""

    on_complete: Next | Mapping[str, Any] | None
    on_success: Next | Mapping[str, Any] | None


class QueueBatches:
    """The part of a queue object that keeps batches."""

    if TYPE_CHECKING:

        @property
        def _steering(self) -> Any: ...

    def _open_batch(
        self,
        name: str | None = None,
        **wish: Unpack[BatchWish],
    ) -> QueueFlow[BatchStatus]:
        """Open a batch, whose jobs are enqueued with ``batch=`` its id. ``batch()`` does it, and seals it.

        ``on_complete`` comes when the batch is sealed and none of its jobs waits or runs; ``on_success`` only when all
        are completed. Raises Rejected, Throttled (too many are open), Timeout, Unavailable.
        """
        flow: QueueFlow[BatchStatus] = self._steering.open_batch(name, **wish)
        return flow

    def _seal_batch(self, batch: str) -> QueueFlow[BatchStatus]:
        """No more jobs of a batch come from outside; its own jobs may still add some. Raises NotFound."""
        flow: QueueFlow[BatchStatus] = self._steering.seal_batch(batch)
        return flow

    def _batch_status(self, batch: str) -> QueueFlow[BatchStatus]:
        """How far a batch is. Raises NotFound for one that is not there, or was over for a day."""
        flow: QueueFlow[BatchStatus] = self._steering.batch_status(batch)
        return flow

    def _batches(self) -> QueueFlow[list[BatchStatus]]:
        """The batches of the queue that are open, and those that were over not long ago; the oldest first."""
        flow: QueueFlow[list[BatchStatus]] = self._steering.batches()
        return flow

    open_batch = FlowMethod(_open_batch)
    seal_batch = FlowMethod(_seal_batch)
    batch_status = FlowMethod(_batch_status)
    batches = FlowMethod(_batches)


class _OpenBatch:
    def __init__(self, queue: Any, name: str | None, wish: BatchWish) -> None:
        self._queue = queue
        self._wish = {"name": name, **wish}
        self._id = ""

    @property
    def id(self) -> str:
        """What its jobs are enqueued with, ``batch=``. It has one once it is open."""
        if not self._id:
            raise RuntimeError("the batch is not open yet: use it in a with statement")
        return self._id

    def _items(self, items: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        for item in items:
            yield {**item, "batch": self.id}


class Batch(_OpenBatch):
    """A batch while jobs are put into it: opened by ``with``, sealed at the end of the block.

    Where the block ends with an exception, it is not sealed: its jobs run, and nothing comes of their end until
    ``seal_batch``.
    """

    def __enter__(self) -> Batch:
        self._id = self._queue.open_batch(**self._wish).batch_id
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._queue.seal_batch(self.id)

    def enqueue(self, payload: Any, **options: Unpack[JobOptionArguments]) -> Enqueued:
        """One job of the batch, as ``Queue.enqueue``."""
        options["batch"] = self.id
        done: Enqueued = self._queue.enqueue(payload, **options)
        return done

    def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Many, as ``Queue.enqueue_many``."""
        done: list[Enqueued] = self._queue.enqueue_many(list(self._items(items)))
        return done

    def status(self) -> BatchStatus:
        """How far it is."""
        found: BatchStatus = self._queue.batch_status(self.id)
        return found


class AsyncBatch(_OpenBatch):
    """The same of an AsyncQueue, with ``async with``."""

    async def __aenter__(self) -> AsyncBatch:
        self._id = (await self._queue.open_batch(**self._wish)).batch_id
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self._queue.seal_batch(self.id)

    async def enqueue(self, payload: Any, **options: Unpack[JobOptionArguments]) -> Enqueued:
        """One job of the batch, as ``AsyncQueue.enqueue``."""
        options["batch"] = self.id
        done: Enqueued = await self._queue.enqueue(payload, **options)
        return done

    async def enqueue_many(self, items: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Many, as ``AsyncQueue.enqueue_many``."""
        done: list[Enqueued] = await self._queue.enqueue_many(list(self._items(items)))
        return done

    async def status(self) -> BatchStatus:
        """How far it is."""
        found: BatchStatus = await self._queue.batch_status(self.id)
        return found
