"""Queue: the public face, with methods that block.

from osqueue import Queue

q = Queue.connect("file://jobs", "emails")
q.enqueue({"to": "ada@example.com"})
for lease in q.claim(limit=10):
    send(lease.payload)
    lease.complete()
"""

from __future__ import annotations

from typing import Any, TypeVar

from .commit.driver import BlockingDriver
from .commit.group import BlockingGroup
from .errors import OsqueueError
from .lease import Lease
from .methods import blocking
from .queue_base import QueueBase
from .shards import QueueFlow, Submit
from .stores.base import Store
from .worker.endings import Tally

R = TypeVar("R")
T = TypeVar("T")


class Queue(QueueBase[T]):
    """A queue, with methods that block. One object may be used by many threads; they share its commits."""

    _lease_class = Lease

    def __init__(self, store: Store, queue: str, **options: Any) -> None:
        super().__init__(store, queue, **options)
        self._driver = BlockingDriver(self.store, self.machine)
        self._groups: dict[int, BlockingGroup] = {}

    def _group(self, shard: int) -> BlockingGroup:
        group = self._groups.get(shard)
        if group is None:
            made = BlockingGroup(self._writers[shard], self._driver, self._tell)
            group = self._groups.setdefault(shard, made)  # one step, so two threads get the same one
        return group

    def _run(self, flow: QueueFlow[R]) -> R:
        reply: Any = None
        error: OsqueueError | None = None
        while True:
            try:
                effect = flow.throw(error) if error is not None else flow.send(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            error = None
            if not isinstance(effect, Submit):
                reply = self._driver.perform(effect)
                continue
            try:
                reply = self._group(effect.shard).submit(effect.ops, self._deadline(effect), look=effect.look)
            except OsqueueError as failure:
                error = failure

    def run(self, **options: Any) -> Tally:
        """Work: claim jobs and run their handlers until SIGTERM or SIGINT; answers what was done.

        ``concurrency=8, name=None, lease=30, poll=1, drain=30, until_empty=False, signals=True``, as in
        ``osqueue.worker.loop.Worker``. Raises Rejected when there is no handler or an option is wrong.
        """
        from .worker.loop import Worker

        return Worker(self, **options).run()

    def close(self) -> None:
        """Release connections. The object may be used again."""
        self.store.close()

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    enqueue = blocking(QueueBase._enqueue)
    enqueue_many = blocking(QueueBase._enqueue_many)
    claim = blocking(QueueBase._claim)
    complete_many = blocking(QueueBase._complete_many)
    heartbeat_many = blocking(QueueBase._heartbeat_many)
    fail_many = blocking(QueueBase._fail_many)
    release_many = blocking(QueueBase._release_many)
    status = blocking(QueueBase._status)
    cancel = blocking(QueueBase._cancel)
    jobs = blocking(QueueBase._jobs)
    stats = blocking(QueueBase._stats)
    pause = blocking(QueueBase._pause)
    resume = blocking(QueueBase._resume)
    configure = blocking(QueueBase._configure)
    redrive = blocking(QueueBase._redrive)
    reap = blocking(QueueBase._reap)
