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
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from .. import forks
from ..clock import Machine
from ..commit.driver import BlockingDriver
from ..commit.effects import AwaitNews, HeadPlace, Pause, QueueEffect, QueueFlow, Sleep, Submit
from ..commit.event_queue import EventQueue
from ..commit.group import BlockingGroup
from ..commit.retry import Patience
from ..errors import OsqueueError, pass_on_interruption
from ..model.job import Job
from ..model.payload_type import T
from ..operations.context import Writers
from ..operations.waiting import POLL_SECONDS
from ..worker.outcomes import Tally
from .base import QueueBase
from .batches import Batch, BatchWish
from .events import wait_seconds
from .flow_methods import Blocking, with_options_of
from .lease import Lease
from .opening import Windowed
from .options import QueueOptions, WorkerOptions, worker_class
from .watch import POLL_SECONDS_DEFAULT, JobWatch

if TYPE_CHECKING:  # loaded where somebody listens
    from ..model.event import Event
    from .events import AnyReader

M = TypeVar("M")
R = TypeVar("R")


class BlockingRunner(Windowed, Blocking):
    """Runs flows that commit: each on the thread of its caller, who shares the commits of the others."""

    machine: Machine
    _place: Any
    _writers: Writers
    _tell: Any
    timeout: float
    _deadline: Callable[..., float]

    def _make_driver(self) -> None:
        self._driver = BlockingDriver(self._place, self.machine)
        self._event_queue = EventQueue(self._tell, self.machine)
        self._commit_groups: dict[HeadPlace, BlockingGroup] = {}

    def _group(self, shard: HeadPlace) -> BlockingGroup:
        if shard not in self._commit_groups:
            made = BlockingGroup(self._writers[shard], self._driver, self._event_queue, self._window_s)
            self._commit_groups.setdefault(shard, made)  # one step, so two threads get the same one
        return self._commit_groups[shard]

    def _run(self, flow: QueueFlow[R]) -> R:
        forks.refuse_nested_call()
        reply: Any = None
        go_on: Callable[[Any], QueueEffect] = flow.send
        patience = Patience(self.machine, self.timeout)
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
                    patience.renew()
                    continue
                if isinstance(effect, Pause):
                    if reply := (seconds := patience.spend(effect.seconds)) > 0:
                        self._driver.perform(Sleep(seconds))
                    continue
                if not isinstance(effect, Submit):
                    reply = self._driver.perform(effect, patience.note(effect))
                    continue
                group = self._commit_groups.get(effect.shard) or self._group(effect.shard)
                try:
                    reply = group.submit(effect.ops, self._deadline(effect, patience.left), effect.look)
                    patience.renew()
                except OsqueueError as failure:
                    go_on, reply = flow.throw, failure
        except BaseException:
            forks.release_held()
            raise
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


class Queue(BlockingRunner, QueueBase[Lease[T], T]):
    """A queue, with methods that block. One object may be used by many threads; they share its commits."""

    _lease_class = Lease

    if TYPE_CHECKING:  # what callers get; how it is made is written once, in QueueBase

        @overload
        @classmethod
        def connect(
            cls, address: str, queue: str, *, type: type[M], **options: Unpack[QueueOptions]
        ) -> Queue[M]: ...
        @overload
        @classmethod
        def connect(
            cls, address: str, queue: str, *, type: Any = Any, **options: Unpack[QueueOptions]
        ) -> Queue[Any]: ...
        @classmethod
        def connect(cls, address: str, queue: str, **options: Any) -> Any: ...

    def batch(self, name: str | None = None, **wish: Unpack[BatchWish]) -> Batch:
        """Jobs whose common end makes another one: ``with q.batch(on_complete=Next("report")) as batch:``.

        ``wish`` is ``on_complete`` and ``on_success``, as of ``open_batch``.
        """
        return Batch(self, name, wish)

    def watch(self, job_id: str, poll: float = POLL_SECONDS_DEFAULT) -> Iterator[Job]:
        """The job, and again whenever it has changed, until it is over: looked at every ``poll`` seconds.

        Heartbeats alone are no change, what they tell of its progress is. Raises NotFound when there is no such job.
        """
        watch = JobWatch(job_id, poll)
        while not watch.over:
            job = watch.news(self.status(job_id))
            if job is not None:
                yield job
            if not watch.over:
                self.machine.sleep(watch.poll_seconds)

    def events(
        self,
        since: str | datetime | float | None = None,
        wait: float | None = None,
        poll: float = POLL_SECONDS,
    ) -> Iterator[Event]:
        """Every committed transition of the queue, whoever commits it, from this call on.

        ``since`` is the ``cursor`` of an event, to go on behind it, or a time (an aware datetime or Unix seconds).
        Ends when no more came for ``wait`` seconds: 0 reads what there is, None goes on for ever. An event comes at
        most ``poll`` seconds and one read after its commit, at once where this process commits it; those of one shard
        in the order of their commits. Transitions are recorded while somebody listens and a day longer, and kept for
        a day: a cursor that is older raises Expired. Raises Rejected, Unavailable.
        """
        reader = self._flows.event_reader(since, poll)
        seconds = wait_seconds(wait)
        self._run(reader.begin())
        return self._events(reader, seconds)

    def _events(self, reader: AnyReader, wait: float) -> Iterator[Event]:
        while page := self._run(reader.page(wait=wait)):
            yield from page

    def listen(
        self,
        since: str | datetime | float | None = None,
        wait: float | None = None,
        poll: float = POLL_SECONDS,
    ) -> str:
        """Call what ``on`` has registered with every event, one after the other; see ``events``.

        Returns the cursor to go on with, once no more came for ``wait`` seconds. A callback that raises is logged, and
        keeps no other from its event. Raises Rejected where nothing is registered.
        """
        callbacks, seconds = self._listeners(), wait_seconds(wait)
        reader = self._flows.event_reader(since, poll)
        self._run(reader.begin())
        for event in self._events(reader, seconds):
            for each in callbacks:
                if each.wants(event):
                    try:
                        each.function(event)
                    except Exception as error:  # noqa: BLE001 - it is the caller's code
                        pass_on_interruption(error)
                        each.failed(self.name, event, error)
        return reader.cursor

    @with_options_of(worker_class)
    def run(self, **options: Unpack[WorkerOptions]) -> Tally:
        """Claim jobs and run their handlers until SIGTERM, SIGINT or SIGHUP; returns what was done.

        ``concurrency=8, name=None, lease=30, poll=1, drain=30, until_empty=False, signals=True,
        traceback=False``, as in ``osqueue.worker.loop.Worker``. Raises Rejected when there is no handler or
        an option is wrong.
        """
        return worker_class()(self, **options).run()

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
        """Release connections. What waits for a window is committed now. The object may be used again."""
        self._end_windows()
        self._place.close()

    def __enter__(self) -> Queue[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
