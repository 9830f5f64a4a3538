"""AsyncQueue: the same queue for coroutines.

from osqueue import AsyncQueue

q = AsyncQueue.connect("file://jobs", "emails")
await q.enqueue({"to": "ada@example.com"})
for lease in await q.claim(limit=10):
    await send(lease.payload)
    await lease.complete()
"""

from __future__ import annotations

from typing import Any, TypeVar

from .commit.asynchronous import AsyncDriver, AsyncGroup
from .errors import OsqueueError
from .lease import AsyncLease
from .methods import awaiting
from .queue_base import QueueBase
from .shards import QueueFlow, Submit
from .stores.base import Store
from .worker.endings import Tally

R = TypeVar("R")
T = TypeVar("T")


class AsyncQueue(QueueBase[T]):
    """The same queue for coroutines. One object belongs to one event loop; its tasks share its commits."""

    _lease_class = AsyncLease

    def __init__(self, store: Store, queue: str, **options: Any) -> None:
        super().__init__(store, queue, **options)
        self._driver = AsyncDriver(self.store, self.machine)
        self._groups: dict[int, AsyncGroup] = {}

    def _group(self, shard: int) -> AsyncGroup:
        group = self._groups.get(shard)
        if group is None:
            group = self._groups[shard] = AsyncGroup(self._writers[shard], self._driver, self._tell)
        return group

    async def _run(self, flow: QueueFlow[R]) -> R:
        reply: Any = None
        error: OsqueueError | None = None
        while True:
            try:
                effect = flow.throw(error) if error is not None else flow.send(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            error = None
            if not isinstance(effect, Submit):
                reply = await self._driver.perform(effect)
                continue
            try:
                reply = await self._group(effect.shard).submit(
                    effect.ops, self._deadline(effect), look=effect.look
                )
            except OsqueueError as failure:
                error = failure

    async def run(self, **options: Any) -> Tally:
        """Work on this event loop; the same as ``Queue.run``."""
        from .worker.loop import Worker

        return await Worker(self, **options).serve()

    async def close(self) -> None:
        """Release connections. The object may be used again."""
        self.store.close()

    async def __aenter__(self) -> AsyncQueue[T]:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    enqueue = awaiting(QueueBase._enqueue)
    enqueue_many = awaiting(QueueBase._enqueue_many)
    claim = awaiting(QueueBase._claim)
    complete_many = awaiting(QueueBase._complete_many)
    heartbeat_many = awaiting(QueueBase._heartbeat_many)
    fail_many = awaiting(QueueBase._fail_many)
    release_many = awaiting(QueueBase._release_many)
    status = awaiting(QueueBase._status)
    cancel = awaiting(QueueBase._cancel)
    jobs = awaiting(QueueBase._jobs)
    stats = awaiting(QueueBase._stats)
    pause = awaiting(QueueBase._pause)
    resume = awaiting(QueueBase._resume)
    configure = awaiting(QueueBase._configure)
    redrive = awaiting(QueueBase._redrive)
    reap = awaiting(QueueBase._reap)
