"""AsyncQueue: the same queue for coroutines.

from osqueue import AsyncQueue

q = AsyncQueue.connect("file://jobs", "emails")
await q.enqueue({"to": "ada@example.com"})
for lease in await q.claim(limit=10):
    await send(lease.payload)
    await lease.complete()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ..clock import Machine
from ..commit.async_group import AsyncDriver, AsyncEventQueue, AsyncGroup
from ..commit.effects import (
    AwaitNews,
    Effect,
    HeadPlace,
    Pause,
    QueueEffect,
    QueueFlow,
    RemoteRequest,
    Sleep,
    Submit,
)
from ..commit.group import CommitWaiter, give_back
from ..commit.retry import Patience
from ..core.consumers import Wake
from ..core.reduce import Told
from ..errors import OsqueueError, pass_on_interruption
from ..model.job import Job
from ..model.payload_type import T
from ..operations.context import Writers
from ..operations.waiting import POLL_SECONDS
from ..worker.outcomes import Tally
from .base import QueueBase
from .batches import AsyncBatch, BatchWish
from .events import wait_seconds
from .flow_methods import Awaiting, with_options_of
from .lease import AsyncLease
from .opening import Windowed
from .options import QueueOptions, WorkerOptions, worker_class
from .watch import POLL_SECONDS_DEFAULT, JobWatch

if TYPE_CHECKING:  # loaded where somebody listens
    from ..model.event import Event
    from .events import AnyReader

M = TypeVar("M")
R = TypeVar("R")


class AsyncRunner(Windowed, Awaiting):
    """Runs flows that commit: each in the task of its caller, who shares the commits of the others."""

    machine: Machine
    _place: Any
    _writers: Writers
    _tell_async: Any
    timeout: float
    _deadline: Callable[..., float]

    def _make_driver(self) -> None:
        self._driver = AsyncDriver(self._place, self.machine)
        self._event_queue = AsyncEventQueue(self._tell_async, self.machine)
        self._commit_groups: dict[HeadPlace, AsyncGroup] = {}

    def _group(self, shard: HeadPlace) -> AsyncGroup:
        if shard not in self._commit_groups:
            self._commit_groups[shard] = AsyncGroup(
                self._writers[shard], self._driver, self._event_queue, self._window_s
            )
        return self._commit_groups[shard]

    def _attach(self) -> None:
        """Bind this object to the running event loop. Raises Rejected while another one uses it."""
        before, groups = self._driver.loop, list(self._commit_groups.values())
        self._driver.attach(lambda: any(group.is_busy() for group in groups))
        if before is not None:
            self._event_queue.change_loop()
            for group in groups:
                group.change_loop()

    async def _run(self, flow: QueueFlow[R]) -> R:
        reply: Any = None
        go_on: Callable[[Any], QueueEffect] = flow.send
        patience = Patience(self.machine, self.timeout)
        boarded: list[tuple[AsyncGroup, CommitWaiter]] = []
        try:
            if self._driver.loop is not asyncio.get_running_loop():
                self._attach()
            while True:
                try:
                    effect = go_on(reply)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                go_on = flow.send
                if isinstance(effect, Pause):
                    if reply := (seconds := patience.spend(effect.seconds)) > 0:
                        await self._driver.perform(Sleep(seconds))
                    continue
                if not isinstance(effect, Submit):
                    reply = await self._perform(effect, patience.note(effect))
                    if isinstance(effect, AwaitNews):
                        patience.renew()
                    continue
                group = self._commit_groups.get(effect.shard) or self._group(effect.shard)
                waiter = group.board(effect.ops, self._deadline(effect, patience.left), effect.look)
                boarded.append((group, waiter))
                try:
                    reply = await waiter.wake
                    patience.renew()
                except OsqueueError as failure:
                    go_on, reply = flow.throw, failure
                if waiter.answer is None or not give_back(waiter.answer):
                    boarded.pop()  # a call may ask for a day, and only leases would have to be given back
        except OsqueueError:
            raise
        except BaseException:  # cancelled, or interrupted: the caller never receives what it was granted
            for group, waiter in boarded:
                group.leave(waiter)
            raise
        finally:
            flow.close()  # now: left to the collector, what it does at its end could come at any moment

    async def _perform(self, effect: Effect | AwaitNews | RemoteRequest, deadline: float) -> Any:
        if isinstance(effect, AwaitNews):
            return await self._await(effect)
        return await self._driver.perform(effect, deadline)

    async def _await(self, effect: AwaitNews) -> None:
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = loop.call_later(effect.seconds, end)
        try:
            with effect.sleeper.waking(lambda: loop.call_soon_threadsafe(end)):
                await woken
        finally:
            timer.cancel()


class AsyncQueue(AsyncRunner, QueueBase[AsyncLease[T], T]):
    """The same queue for coroutines. One object belongs to one event loop; its tasks share its commits."""

    _lease_class = AsyncLease
    _blocks = False

    if TYPE_CHECKING:  # what callers get; how it is made is written once, in QueueBase

        @overload
        @classmethod
        def connect(
            cls, address: str, queue: str, *, type: type[M], **options: Unpack[QueueOptions]
        ) -> AsyncQueue[M]: ...
        @overload
        @classmethod
        def connect(
            cls, address: str, queue: str, *, type: Any = Any, **options: Unpack[QueueOptions]
        ) -> AsyncQueue[Any]: ...
        @classmethod
        def connect(cls, address: str, queue: str, **options: Any) -> Any: ...

    def batch(self, name: str | None = None, **wish: Unpack[BatchWish]) -> AsyncBatch:
        """Jobs whose common end makes another one: ``async with q.batch(on_complete=Next("report")) as batch:``.

        ``wish`` is ``on_complete`` and ``on_success``, as of ``open_batch``.
        """
        return AsyncBatch(self, name, wish)

    def _tell_async(self, told: Sequence[Told]) -> asyncio.Future[None] | None:
        """Whatever waits for another machine is called on a thread: it must not hold up the event loop."""
        slow = self._outlet is not None and self._outlet.slow
        if not slow and not any(isinstance(each, Wake) for each in told):
            self._tell(told)
            return None
        try:
            return asyncio.get_running_loop().run_in_executor(None, self._tell, told)
        except RuntimeError:  # the loop is ending, and has no threads any more
            if self._outlet is not None:
                self._outlet.lose(sum(not isinstance(each, Wake) for each in told))
            return None

    @with_options_of(worker_class)
    async def run(self, **options: Unpack[WorkerOptions]) -> Tally:
        """Work on this event loop; the same as ``Queue.run``."""
        return await worker_class()(self, **options).serve()

    async def history(
        self, since: datetime | float | None = None, until: datetime | float | None = None
    ) -> AsyncIterator[Job]:
        """Archived jobs that finished between two moments (aware datetimes or Unix seconds), in order of the archive.

        A job that failed, was redriven and finished again comes once for each ending. Raises Damaged for a part
        that cannot be read.
        """
        pages = self._steering.history(since, until)
        while (jobs := await self._run(pages.page())) is not None:
            for job in jobs:
                yield job

    async def watch(self, job_id: str, poll: float = POLL_SECONDS_DEFAULT) -> AsyncIterator[Job]:
        """The job, and again whenever it has changed, until it is over: looked at every ``poll`` seconds.

        Heartbeats alone are no change, what they tell of its progress is. Raises NotFound when there is no such job.
        """
        watch = JobWatch(job_id, poll)
        while not watch.over:
            job = watch.news(await self.status(job_id))
            if job is not None:
                yield job
            if not watch.over:
                await asyncio.sleep(watch.poll_seconds)

    async def events(
        self,
        since: str | datetime | float | None = None,
        wait: float | None = None,
        poll: float = POLL_SECONDS,
    ) -> AsyncIterator[Event]:
        """The same as ``Queue.events``; what comes from now on comes from the first step on."""
        async for event in self._events(self._flows.event_reader(since, poll), wait_seconds(wait)):
            yield event

    async def _events(self, reader: AnyReader, wait: float) -> AsyncIterator[Event]:
        while page := await self._run(reader.page(wait=wait)):
            for event in page:
                yield event

    async def listen(
        self,
        since: str | datetime | float | None = None,
        wait: float | None = None,
        poll: float = POLL_SECONDS,
    ) -> str:
        """The same as ``Queue.listen``; functions and coroutine functions are called one after the other."""
        callbacks = self._listeners()
        reader = self._flows.event_reader(since, poll)
        async for event in self._events(reader, wait_seconds(wait)):
            for each in callbacks:
                if each.wants(event):
                    try:
                        answer = each.function(event)
                        if isawaitable(answer):
                            await answer
                    except Exception as error:  # noqa: BLE001 - it is the caller's code
                        pass_on_interruption(error)
                        each.failed(self.name, event, error)
        return reader.cursor

    async def close(self) -> None:
        """Send slow sinks what is still unsent, for ``timeout`` seconds at most, and release connections.

        What waits for a window is committed before. The object may be used again.
        """
        if self._driver.loop is not asyncio.get_running_loop():
            self._attach()
        if ended := self._end_windows():
            await asyncio.wait(ended, timeout=self.timeout)
        left = await self._event_queue.drain(self.timeout)
        if left and self._outlet is not None:
            self._outlet.lose(left)
        self._place.close()

    async def __aenter__(self) -> AsyncQueue[T]:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
