"""The commit layer for coroutines: a driver that awaits, and group commit among the tasks of one event loop.

A module of its own, so that a program without coroutines never loads asyncio.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from .. import forks
from ..clock import Machine
from ..core.ops import Op
from ..core.reduce import Told
from ..errors import OsqueueError, Rejected, Unavailable, is_of_handler, shown
from .driver import late, seconds_left
from .effects import All, Performer, Sleep
from .event_queue import ROOM_SECONDS, WAITING_MAX
from .group import (
    LINGER_SECONDS_MAX,
    LINGER_SHARE,
    CommitBatch,
    CommitWaiter,
    give_back,
    next_batch,
    start_of,
    window_of,
)
from .in_turn import give_up_turn
from .request_status import CommitResult
from .steps import RequestRefused
from .writer import ShardWriter

T = TypeVar("T")

OTHER_LOOP = (
    "another event loop uses this object, and an object for coroutines belongs to one loop at a time. Nothing was"
    " sent, so nothing was enqueued or changed. Make one object for each event loop, or call it on its own loop by"
    " asyncio.run_coroutine_threadsafe."
)
RESUMES_MAX = 3  # of one batch, each after an exception of other code
COMMIT_INTERRUPTED = (
    "an exception of other code interrupted the commit of this operation: {cause}. The event loop's exception handler"
    " received it. The operation may still be applied."
)


# None: told at once. A thread's future, and no task: the loop's end cancels all tasks, but ends no thread.
OnEventsAsync = Callable[[Sequence[Told]], asyncio.Future[None] | None]


class AsyncDriver:
    """Performs effects on the running event loop."""

    def __init__(self, store: Performer, machine: Machine) -> None:
        self.store = store
        self.machine = machine
        self.loop: asyncio.AbstractEventLoop | None = None  # that uses the object of this driver
        self._process = 0  # in which it does
        self._attaching = forks.lock()

    def attach(self, is_busy: Callable[[], bool] = lambda: False) -> None:
        """Bind this object to the running event loop. ``is_busy`` returns whether a commit is under way.

        Raises Rejected while another event loop uses it: one that runs, or one that was stopped during a commit.
        """
        loop = asyncio.get_running_loop()
        with self._attaching:
            before, process = self.loop, self.machine.process()
            changes = before is not None and before is not loop and process == self._process
            if changes and before and not before.is_closed() and (before.is_running() or is_busy()):
                raise Rejected(OTHER_LOOP)
            self.loop, self._process = loop, process

    async def perform(self, effect: Any, deadline: float = math.inf) -> Any:
        """Carry out one effect and return its reply. A request without a reply at ``deadline`` is Failed."""
        if isinstance(effect, Sleep):
            await asyncio.sleep(effect.seconds)
            return None
        if isinstance(effect, All):
            return tuple(await asyncio.gather(*[self._ask(each, deadline) for each in effect.requests]))
        return await self._ask(effect, deadline)

    def _ask(self, request: Any, deadline: float) -> Awaitable[Any]:
        left = seconds_left(self.store, self.machine, request, deadline)
        return self.store.perform_async(request) if left is None else self._ask_within(request, left)

    async def _ask_within(self, request: Any, seconds: float) -> Any:
        if not seconds:
            return late(seconds)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self.store.perform_async(request)
        except TimeoutError:
            if not limit.expired():
                raise
            return late(seconds)

    async def run(self, flow: Generator[Any, Any, T]) -> T:
        """Run a flow to its end. Raises Rejected while another event loop uses this object."""
        self.attach()
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            reply = await self.perform(effect)


class AsyncEventQueue:
    """The events of one queue object on their way to those who want to know, one commit after the other."""

    def __init__(self, tell: OnEventsAsync, machine: Machine) -> None:
        self._tell = tell
        self._machine = machine
        self._start_afresh()

    def _start_afresh(self) -> None:
        """At first, and in a fork's child, where what waits is told by the parent."""
        self._process = self._machine.process()
        self._events: deque[Sequence[Told]] = deque()
        self._telling: asyncio.Future[None] | None = None  # what takes its time

    def put(self, events: Sequence[Told]) -> None:
        """Tell the events of one commit: at once, or after those that are being told."""
        if self._machine.process() != self._process:
            self._start_afresh()
        self._events.append(events)
        self._go_on()

    def _go_on(self, told: asyncio.Future[None] | None = None) -> None:
        while self._events and not self._is_telling():
            self._telling = self._tell(self._events.popleft())
            if self._telling is not None:
                self._telling.add_done_callback(self._go_on)
        if told is not None:
            told.result()  # what goes through a listener goes through the loop

    def _is_telling(self) -> bool:
        return self._telling is not None and not self._telling.done()

    def change_loop(self) -> None:
        """Forget what a closed event loop was about to report: it never ends. The other events stay."""
        if self._is_telling():
            self._telling = None

    async def told(self, seconds: float) -> bool:
        """Wait until all that is here now is told, so long at most; answers whether it is."""
        self._go_on()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for _ in range(1 + len(self._events)):  # the commit that is being told, and those behind it
                    if self._telling is not None:
                        await asyncio.wait({self._telling})
                return True
        return False

    async def drain(self, seconds: float) -> int:
        """The same; answers how many events were not told in that time, and forgets them."""
        if await self.told(seconds):
            return 0
        left = sum(map(len, self._events))
        self._events.clear()
        return left

    async def room(self) -> None:
        """Wait a moment for listeners that are slower than the commits."""
        if len(self._events) > WAITING_MAX:
            await self.told(ROOM_SECONDS)


class AsyncGroup:
    """Group commit for coroutines: a batch runs in a task of its own, so a cancelled caller cannot end it."""

    def __init__(
        self, writer: ShardWriter, driver: AsyncDriver, event_queue: AsyncEventQueue, window: float = 0.0
    ) -> None:
        self.writer = writer
        self.driver = driver
        self.set_window(window)
        self.event_queue = event_queue
        self._start_afresh()

    def _start_afresh(self) -> None:
        """At first, and in a fork's child, where running batches belong to the parent."""
        self._process = self.driver.machine.process()
        self._waiting: list[CommitWaiter] = []
        self._task: asyncio.Task[None] | None = None
        self._hurry: asyncio.Event | None = None  # lets the task look again for how long it waits for others
        self._lingers_until = 0.0  # monotonic: for how long it does
        self._under_way = 0  # waiters of the running batch
        self._expected = 1  # waiters of the last batch: as many are likely to come again
        self._linger = 0.0  # seconds that the next one may wait for them

    def board(self, ops: tuple[Op, ...], deadline: float, look: bool = False) -> CommitWaiter:
        """Commit operations together with those of other callers; the waiter's ``wake`` brings this caller's answer.

        A caller that is cancelled while it awaits that has to ``leave``.
        """
        if self.driver.machine.process() != self._process:
            self._start_afresh()
        waiter = CommitWaiter(ops, deadline, asyncio.Future(), look)
        if self.window is not None:
            meets = self._under_way > 0 or any(each.waits() for each in self._waiting)
            waiter.start_by = self.window.start_by(ops, deadline, meets)
        self._waiting.append(waiter)
        self._look_again()
        if self._task is None or self._task.done():
            self._start_leader()
        return waiter

    def is_busy(self) -> bool:
        """Return whether a batch is under way."""
        return self._task is not None and not self._task.done()

    def change_loop(self) -> None:
        """Give up what a closed event loop left unfinished, and its callers with it."""
        if self.is_busy():
            give_up_turn(self.writer, self.driver.store)
        self._start_afresh()

    def set_window(self, seconds: float) -> None:
        """Let operations wait for others for this long; 0: not at all."""
        self.window = window_of(seconds, self.writer)

    def end_window(self) -> asyncio.Task[None] | None:
        """Commit now what waits for a window. Return the task that commits it, if there is one."""
        for waiter in self._waiting:
            waiter.start_by = 0.0
        self._look_again()
        return self._task if self._waiting else None

    def _look_again(self) -> None:
        """End or shorten the wait for other callers if what waits has to be committed sooner."""
        if self._hurry is not None and self._starts_at(math.inf) < self._lingers_until:
            self._hurry.set()

    def _starts_at(self, linger_until: float) -> float:
        """Return when the next batch stops waiting for other callers, on the monotonic clock."""
        if self.window is not None:
            return start_of(self._waiting)
        return 0.0 if len(self._waiting) >= self._expected else linger_until

    async def _await_others(self) -> None:
        """Wait a moment for as many as came last time, or for the window; or until the store takes another head."""
        seconds = self.writer.gather_seconds(max(waiter.deadline for waiter in self._waiting))
        if seconds > 0:
            await asyncio.sleep(seconds)
            return
        machine = self.driver.machine
        linger_until = machine.monotonic() + self._linger
        while True:
            self._lingers_until = self._starts_at(linger_until)
            seconds = self._lingers_until - machine.monotonic()
            if seconds <= 0:
                return
            self._hurry = asyncio.Event()
            try:
                async with asyncio.timeout(seconds):
                    await self._hurry.wait()
            except TimeoutError:
                return
            finally:
                self._hurry = None

    def leave(self, waiter: CommitWaiter) -> None:
        """Nobody awaits this waiter any more; leases that were just granted to it are given back."""
        waiter.gone = True
        self._look_again()
        if waiter.answer is not None and (chores := give_back(waiter.answer)):
            self._waiting.append(CommitWaiter(tuple(chores), waiter.deadline, None))
            if self._task is None or self._task.done():
                self._start_leader()

    def _start_leader(self) -> None:
        self._task = asyncio.create_task(self._lead())

    async def _lead(self) -> None:
        try:
            await self._run_batches()
        except asyncio.CancelledError:
            if (
                self._waiting
            ):  # those who came while all tasks were being cancelled, to tidy up after themselves
                self._start_leader()
            raise

    async def _run(self, batch: CommitBatch) -> CommitResult:
        """Run the protocol, and go on after an exception of other code, as of a signal handler, where that is possible.

        The event loop's exception handler receives such an exception, since no waiting task caused it. After
        ``RESUMES_MAX`` of them each waiter receives Unavailable, which names the last one. An OsqueueError that the
        store raises is raised as it is.
        """
        for resumable in (*[True] * RESUMES_MAX, False):
            try:
                return await batch.run_async(partial(self.driver.perform, deadline=batch.deadline))
            except Exception as error:
                if isinstance(error, OsqueueError) and not is_of_handler(error):
                    raise
                message = "an exception of other code interrupted a commit of a queue"
                asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
                if batch.torn or not resumable:
                    raise Unavailable(COMMIT_INTERRUPTED.format(cause=shown(error))) from error
        raise AssertionError("the last try returns or raises")

    async def _run_batches(self) -> None:
        while self._waiting:
            await self._await_others()
            waiters, self._waiting = next_batch(self._waiting)
            if not waiters:
                return
            batch = CommitBatch(self.writer, waiters)
            self._under_way = len(waiters)
            answer: CommitResult | None = None
            began = self.driver.machine.monotonic()
            try:
                answer = await self._run(batch)
            except OsqueueError as error:
                if not batch.torn:  # the store raised it
                    batch.flow.close()
                    give_up_turn(self.writer, self.driver.store)
                batch.crash(error)
                if (
                    isinstance(error, RequestRefused) and error.events
                ):  # of a commit that was made all the same
                    self.event_queue.put(error.events)
            except GeneratorExit:  # destroyed with its loop, and another leader may be at work
                raise
            except BaseException as error:
                batch.flow.close()  # nobody goes on with it
                give_up_turn(self.writer, self.driver.store)
                batch.crash(Unavailable("the event loop ended while the operation was under way"))
                _wake(batch.waiters)
                self._under_way = 0
                raise error
            else:
                chores = batch.distribute(answer)
                if chores:
                    self._waiting.append(CommitWaiter(tuple(chores), waiters[0].deadline, None))
            _wake(batch.waiters)
            self._under_way = 0
            self._expected = len(batch.waiters)
            self._linger = min(LINGER_SECONDS_MAX, (self.driver.machine.monotonic() - began) * LINGER_SHARE)
            if answer is not None and answer.events:
                self.event_queue.put(answer.events)
                await self.event_queue.room()
            # The callers of this batch have their turn first: their next requests then share the next batch.
            await asyncio.sleep(0)


def _wake(waiters: Sequence[CommitWaiter]) -> None:
    for waiter in waiters:
        wake = waiter.wake
        if wake is None or wake.done():
            continue
        if waiter.error is not None:
            wake.set_exception(waiter.error)
        else:
            wake.set_result(waiter.answer)
