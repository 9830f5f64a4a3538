"""Queue: the public face, with methods that block.

from osqueue import Queue

q = Queue.connect("file://jobs", "emails")
q.enqueue({"to": "ada@example.com"})
for lease in q.claim(limit=10):
    send(lease.payload)
    lease.complete()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from .. import limits
from ..commit.driver import BlockingDriver
from ..commit.effects import AwaitNews, QueueEffect, QueueFlow, Submit
from ..commit.event_queue import EventQueue
from ..commit.group import BlockingGroup
from ..errors import OsqueueError
from ..model.job import Job
from ..stores.base import Store
from ..worker.outcomes import Tally
from .base import QueueBase
from .flow_methods import blocking
from .lease import Lease

if TYPE_CHECKING:
    from ..client.transports.base import Transport
    from ..events import Sink
    from ..model.codecs import Serializer

R = TypeVar("R")
T = TypeVar("T")


class Queue(QueueBase[T]):
    """A queue, with methods that block. One object may be used by many threads; they share its commits."""

    _lease_class = Lease

    if TYPE_CHECKING:  # what callers get; how it is made is written once, in QueueBase

        @classmethod
        def connect(
            cls,
            address: str,
            queue: str,
            *,
            serializer: str | Serializer = "json",
            type: Any = Any,
            timeout: float = limits.REQUEST_TIMEOUT_S,
            sinks: Iterable[Sink] = (),
        ) -> Queue[Any]: ...

    def __init__(self, store: Store | Transport, queue: str, **options: Any) -> None:
        super().__init__(store, queue, **options)
        self._driver = BlockingDriver(self._place, self.machine)
        self._event_queue = EventQueue(self._tell, self.machine)
        self._groups: dict[int, BlockingGroup] = {}

    def _group(self, shard: int) -> BlockingGroup:
        if shard not in self._groups:
            made = BlockingGroup(self._writers[shard], self._driver, self._event_queue)
            self._groups.setdefault(shard, made)  # one step, so two threads get the same one
        return self._groups[shard]

    def _run(self, flow: QueueFlow[R]) -> R:
        reply: Any = None
        go_on: Callable[[Any], QueueEffect] = flow.send
        try:
            while True:
                try:
                    effect = go_on(reply)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                go_on = flow.send
                if isinstance(effect, AwaitNews):
                    self._await(effect)
                    reply = None
                    continue
                if not isinstance(effect, Submit):
                    reply = self._driver.perform(effect)
                    continue
                group = self._groups.get(effect.shard) or self._group(effect.shard)
                try:
                    reply = group.submit(effect.ops, self._deadline(effect), effect.look)
                except OsqueueError as failure:
                    go_on, reply = flow.throw, failure
        finally:
            flow.close()  # now: left to the collector, what it does at its end could come at any moment

    def _await(self, effect: AwaitNews) -> None:
        asleep = threading.Lock()  # an Event would take three of them, and many a sleep is short
        asleep.acquire()

        def wake() -> None:
            with suppress(RuntimeError):  # woken twice
                asleep.release()

        with effect.sleeper.waking(wake):
            asleep.acquire(timeout=effect.seconds)

    def run(self, **options: Any) -> Tally:
        """Claim jobs and run their handlers until SIGTERM or SIGINT; returns what was done.

        ``concurrency=8, name=None, lease=30, poll=1, drain=30, until_empty=False, signals=True``, as in
        ``osqueue.worker.loop.Worker``. Raises Rejected when there is no handler or an option is wrong.
        """
        from ..worker.loop import Worker

        return Worker(self, **options).run()

    def history(
        self, since: datetime | float | None = None, until: datetime | float | None = None
    ) -> Iterator[Job]:
        """Archived jobs that finished between two moments (aware datetimes or Unix seconds), in order of the archive.

        A job that failed, was redriven and finished again comes once for each ending. Raises Damaged for a part
        that cannot be read.
        """
        pages = self._steering.history(since, until)
        while (jobs := self._run(pages.page())) is not None:
            yield from jobs

    def close(self) -> None:
        """Release connections. The object may be used again."""
        self._place.close()

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    enqueue = blocking(QueueBase._enqueue)
    enqueue_and_wait = blocking(QueueBase._enqueue_and_wait)
    enqueue_many = blocking(QueueBase._enqueue_many)
    claim = blocking(QueueBase._claim)
    complete_many = blocking(QueueBase._complete_many)
    heartbeat_many = blocking(QueueBase._heartbeat_many)
    fail_many = blocking(QueueBase._fail_many)
    release_many = blocking(QueueBase._release_many)
    status = blocking(QueueBase._status)
    result = blocking(QueueBase._result)
    update_result_ttl = blocking(QueueBase._update_result_ttl)
    cancel = blocking(QueueBase._cancel)
    jobs = blocking(QueueBase._jobs)
    stats = blocking(QueueBase._stats)
    pause = blocking(QueueBase._pause)
    resume = blocking(QueueBase._resume)
    configure = blocking(QueueBase._configure)
    redrive = blocking(QueueBase._redrive)
    dead_letters = blocking(QueueBase._dead_letters)
    dead_letter_groups = blocking(QueueBase._dead_letter_groups)
    why = blocking(QueueBase._why)
    story = blocking(QueueBase._story)
    purge = blocking(QueueBase._purge)
    reap = blocking(QueueBase._reap)
