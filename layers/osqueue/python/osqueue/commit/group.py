"""Group commit inside one process: callers of one Queue object share its batches.

The first caller is the leader: its thread runs the commit protocol for everything that waits. Callers that come
meanwhile are waiters of the next batch. The next leader waits a moment until as many have come as the last batch had.
With a *window* (``window``) the leader waits for longer: fewer commits, each for more callers. There is no background
thread and no timer: with one caller a batch carries one request and waits for no other.
A shard has at most one running batch of a Queue object, so its writer has at most one outstanding request.

A caller that leaves (its deadline passed, its thread was interrupted, its coroutine was cancelled) detaches only
itself. The batch goes on: a waiter takes it over from an interrupted thread, and the next batch gives back leases
that were granted to nobody.

An interruption is every exception that the commit protocol did not raise itself: a Ctrl-C, a time limit that a signal
handler raises, an error of a store's own code. It belongs to the thread where it was raised, and is raised there alone.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .. import forks
from ..clock import Machine
from ..core.job_ops import ClaimJobs, LeaseRef, ReleaseJobs
from ..core.ops import Op
from ..errors import NESTED_CALL, OsqueueError, Rejected, Timeout, Unavailable, copy_of
from ..stores.base import Failed
from .coalesce import coalesced, runs_of, split_outcomes
from .driver import BlockingDriver
from .effects import All, Effect, Flow, Sleep
from .event_queue import EventQueue
from .in_turn import give_up_turn
from .protocol import commit
from .request_status import CommitResult
from .steps import RequestRefused
from .writer import ShardWriter

if TYPE_CHECKING:  # loaded where it is used
    from .window import Window

ITEMS_PER_BATCH_MAX = 4_000
LEAVE_GRACE_SECONDS = 1.0  # that a waiter waits beyond its batch's own deadline

WINDOW_ITEMS_MAX = 1_000  # jobs that wait: then a window ends before its time
LINGER_SHARE = 0.5  # of the last batch's time that the next leader waits for the callers of the last batch
LINGER_SECONDS_MAX = 0.005

LEAVE_TRIES_MAX = 100  # of one caller, each ended by an interruption

LEADER_INTERRUPTED = "the thread that committed this operation was interrupted. It may still be applied."
LIBRARY = __name__.partition(".")[0]

_STARTING = forks.lock()  # held while a group starts afresh in a fork's child


class CommitWaiter(Struct, eq=False):
    """The operations of one caller, which waits for their outcomes."""

    ops: tuple[Op, ...]
    deadline: float  # monotonic seconds
    wake: Any  # a threading.Lock, held, or an asyncio.Future; None: nobody waits for this one
    look: bool = False  # take announced requests along
    start_by: float = 0.0  # monotonic: when its commit has to begin
    answer: CommitResult | None = None
    error: OsqueueError | None = None
    gone: bool = False

    def waits(self) -> bool:
        """Whether a caller still waits for it. Nobody waits for what is done after a caller that left."""
        return self.wake is not None and not self.gone and self.answer is None and self.error is None


class CommitBatch:
    """One run of the commit protocol for several waiters; another thread can resume it after an interruption."""

    def __init__(self, writer: ShardWriter, waiters: list[CommitWaiter]) -> None:
        self.waiters = waiters
        ops: list[Op] = []
        look, deadline = False, 0.0
        for waiter in waiters:
            ops.extend(waiter.ops)
            look = look or waiter.look
            deadline = max(deadline, waiter.deadline)
        self.deadline = deadline
        self.runs = runs_of(ops)
        self.flow: Flow[CommitResult] = commit(writer, [coalesced(run) for run in self.runs], deadline, look)
        self.pending: Effect | None = None
        self.answer: CommitResult | None = None
        self.told = False  # its events are in the event queue
        self.torn = (
            False  # interrupted outside an effect, inside the protocol or after it: nobody can resume it
        )

    def run(self, perform: Callable[[Effect], Any]) -> CommitResult:
        """Run the protocol, or resume it. An effect that was interrupted counts as one whose reply was lost."""
        reply = _lost(self.pending)
        while (effect := self._step(reply)) is not None:
            reply = perform(effect)
        return self._result()

    async def run_async(self, perform: Callable[[Effect], Awaitable[Any]]) -> CommitResult:
        """Run the protocol, or resume it, in a coroutine."""
        reply = _lost(self.pending)
        while (effect := self._step(reply)) is not None:
            reply = await perform(effect)
        return self._result()

    def _step(self, reply: Any) -> Effect | None:
        """Return the next effect of the protocol; None at its end."""
        self.torn = True
        try:
            self.pending = self.flow.send(reply)
        except StopIteration as stop:
            self.answer = stop.value
            return None
        self.torn = False
        return self.pending

    def _result(self) -> CommitResult:
        assert self.answer is not None
        return self.answer

    def distribute(self, answer: CommitResult) -> list[Op]:
        """Give every waiter its outcomes; returns the operations that undo what was granted to callers that left."""
        at = 0
        chores: list[Op] = []
        shared = map(split_outcomes, self.runs, answer.outcomes)
        outcomes, now_ms = tuple(chain.from_iterable(shared)), answer.now_ms
        for waiter in self.waiters:
            end = at + len(waiter.ops)
            waiter.answer = CommitResult(outcomes[at:end], now_ms)
            at = end
            if waiter.gone:
                chores.extend(give_back(waiter.answer))
        return chores

    def crash(self, error: OsqueueError) -> None:
        """Give every waiter without a result an error of its own, equal to ``error``."""
        for waiter in self.waiters:
            if waiter.answer is None:
                waiter.error = copy_of(error)


def belongs_to_batch(error: Exception) -> bool:
    """Return whether the library raised this error of a commit, so that each waiter of the batch may receive it.

    False for the errors of other code, and for errors of this library that passed through other code: a signal handler,
    a finaliser or a store may call a queue, too.
    """
    if not isinstance(error, OsqueueError):
        return False
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] != LIBRARY:
            return False
        trace = trace.tb_next
    return True


def give_back(answer: CommitResult) -> list[Op]:
    """What undoes an answer that nobody received: its leases are released."""
    leases = [lease for outcome in answer.outcomes for lease in outcome.leases]
    return [ReleaseJobs(tuple(LeaseRef(lease.job.key, lease.token) for lease in leases))] if leases else []


def _signal(waiters: Sequence[CommitWaiter]) -> None:
    """Let each go on. Its lock is what it waits for: an Event would take three of them, and be made for every call."""
    for waiter in waiters:
        if waiter.wake is not None and waiter.wake.locked():
            waiter.wake.release()


def _lost(effect: Effect | None) -> Any:
    if effect is None or isinstance(effect, Sleep):
        return None
    failed = Failed(Unavailable("the caller was interrupted while it waited for the store"))
    return tuple(failed for _ in effect.requests) if isinstance(effect, All) else failed


def next_batch(waiting: Sequence[CommitWaiter]) -> tuple[list[CommitWaiter], list[CommitWaiter]]:
    """The waiters of the next batch and of the one after it, up to a limit and without those that left."""
    waiters = [waiter for waiter in waiting if not waiter.gone]
    if len(waiters) < 2 or _items(waiters) <= ITEMS_PER_BATCH_MAX:
        return waiters, []
    items = accumulate([_items([waiter]) for waiter in waiters])
    count = max(1, sum([so_far <= ITEMS_PER_BATCH_MAX for so_far in items]))
    return waiters[:count], waiters[count:]


def window_of(seconds: float, writer: ShardWriter) -> Window | None:
    """Return the window of a writer; None if its operations wait for no others."""
    if not seconds:
        return None
    from .window import Window  # most processes have none

    return Window(seconds, writer)


def start_of(waiting: Sequence[CommitWaiter]) -> float:
    """Return when the commit of all that waits has to begin, on the monotonic clock."""
    waiters = [waiter for waiter in waiting if not waiter.gone]
    if not any(waiter.waits() for waiter in waiters) or _items(waiters) >= WINDOW_ITEMS_MAX:
        return 0.0
    return min([waiter.start_by for waiter in waiters])


def _items(waiters: Sequence[CommitWaiter]) -> int:
    """How much work they bring."""
    return sum(
        [op.limit if type(op) is ClaimJobs else op.codes_max() for waiter in waiters for op in waiter.ops]
    )


class _Call(threading.local):
    """The call that the current thread has under way."""

    waiter: CommitWaiter | None = None


class BlockingGroup:
    """Group commit for threads."""

    _leader: CommitWaiter | None
    _expected: int
    _lingering: CommitWaiter | None
    _running_batch: CommitBatch | None

    def __init__(
        self, writer: ShardWriter, driver: BlockingDriver, event_queue: EventQueue, window: float = 0.0
    ) -> None:
        self.writer = writer
        self.driver = driver
        self.set_window(window)
        self.event_queue = event_queue
        self._start_afresh(driver.machine)

    def submit(self, ops: tuple[Op, ...], deadline: float, look: bool = False) -> CommitResult:
        """Commit operations together with those of other callers; return this caller's part.

        ``look`` takes announced requests along even when nobody seems to collide. Raises Rejected at once where the
        call interrupts another one of the same thread, and what ``commit`` raises.
        """
        machine = self.driver.machine
        if machine.process() != self._process:
            with _STARTING:
                if machine.process() != self._process:  # else another thread of this child has done it
                    self._start_afresh(machine)
        self._end_last_call()
        waiter = CommitWaiter(ops, deadline, threading.Lock(), look)
        waiter.wake.acquire()
        try:
            self._call.waiter = waiter
            self._board(waiter)
            while waiter.answer is None and waiter.error is None:
                if self._leader is waiter:
                    self._lead(waiter)
                else:
                    self._wait(waiter, machine)
            if waiter.error is not None:
                raise waiter.error
            assert waiter.answer is not None
            self._call.waiter = None
            return waiter.answer
        except BaseException:
            waiter.gone = True
            self._leave_despite_interruptions(waiter)
            raise

    def _is_locked_here(self) -> bool:
        """Return whether this thread holds the lock."""
        return self._lock._is_owned()  # type: ignore[attr-defined,no-any-return]

    def _end_last_call(self) -> None:
        """Raise Rejected if this thread is inside a call already: only its own end could let this call go on.

        A call that was interrupted too often to leave ends here.
        """
        last = self._call.waiter
        if not self._is_locked_here() and (last is None or not (last.waits() or self._leader is last)):
            return
        frame = sys._getframe(2)
        while frame.f_back is not None:
            frame = frame.f_back
            if frame.f_code is BlockingGroup.submit.__code__:
                raise Rejected(NESTED_CALL)
        if last is not None:
            self._leave_despite_interruptions(last)

    def _board(self, waiter: CommitWaiter) -> None:
        with self._lock:
            self._waiting.append(waiter)
            if self._leader is not None and self._leader.gone:
                self._leave(self._leader)  # its thread was interrupted too often
            window = self.window  # another thread may suspend it
            if window is not None:
                waiter.start_by = window.start_by(waiter.ops, waiter.deadline, self._leader is not None)
            if self._leader is None:
                self._leader = waiter
            if self._lingering is not None and self._starts_at(math.inf) < self._lingers_until:
                self._end_linger()

    def set_window(self, seconds: float) -> None:
        """Let operations wait for others for this long; 0: not at all."""
        self.window = window_of(seconds, self.writer)

    def end_window(self) -> None:
        """Commit now what waits for a window."""
        with self._lock:
            for waiter in self._waiting:
                waiter.start_by = 0.0
            self._end_linger()

    def _end_linger(self) -> None:
        """Let the leader look again for how long it waits. Called with the lock held."""
        if self._lingering is not None:
            _signal((self._lingering,))
            self._lingering = None

    def _starts_at(self, linger_until: float) -> float:
        """Return when the leader stops waiting for other callers, on the monotonic clock."""
        if self.window is not None:
            return start_of(self._waiting)
        return 0.0 if len(self._waiting) >= self._expected else linger_until

    def _start_afresh(self, machine: Machine) -> None:
        """At first, and in a fork's child, where running batches belong to the parent."""
        self._lock = threading.RLock()
        self._call = _Call()
        self._lingering = None  # the leader, while it waits for others to come along
        self._lingers_until = 0.0  # monotonic: for how long it does
        self._waiting: list[CommitWaiter] = []
        self._leader = None  # the waiter that leads; None: nobody does
        self._running_batch = None
        self._interrupted: CommitBatch | None = None  # its leader was interrupted; another one resumes it
        self._expected = 1  # waiters of the last batch: as many are likely to come again
        self._linger = 0.0  # seconds that the next one may wait for them
        self._process = machine.process()  # at last: other threads use what they find then

    def _wait(self, waiter: CommitWaiter, machine: Machine) -> None:
        patience = max(0.0, waiter.deadline - machine.monotonic()) + LEAVE_GRACE_SECONDS
        woken = waiter.wake.acquire(timeout=patience)
        if not woken and waiter.waits() and self._leader is not waiter:
            raise Timeout("the queue was too busy to answer this operation in time. It may still be applied.")

    def _leave_despite_interruptions(self, waiter: CommitWaiter) -> None:
        """Leave; try again after an interruption, as by an impatient Ctrl-C. Each step of it may be repeated.

        An interruption right before the end of a ``with`` leaves the lock held, in Python 3.14 also one right after
        its beginning. This thread alone can release it then.
        """
        for _ in range(LEAVE_TRIES_MAX):
            try:
                forks.release_held()
                self._leave(waiter)
                while self._is_locked_here():
                    self._lock.release()
                self._call.waiter = None
                return
            except BaseException:  # noqa: BLE001, S112 - the caller raises the first interruption
                continue

    def _leave(self, waiter: CommitWaiter) -> None:
        """This caller gives up, or its thread was interrupted, wherever: the others go on.

        Another waiter resumes its batch, unless the protocol itself was torn. What it was granted is given back.
        """
        with self._lock:
            waiter.gone = True
            batch = self._running_batch if self._leader is waiter else None
            chores = give_back(waiter.answer) if waiter.answer is not None else []
            if batch is not None and batch.answer is not None:
                chores = batch.distribute(batch.answer)
                self._put_events(batch, batch.answer)
            elif batch is not None and batch.torn:
                batch.crash(Unavailable(LEADER_INTERRUPTED))
            elif batch is not None:
                self._interrupted = batch
            if chores:
                self._waiting.insert(0, CommitWaiter(tuple(chores), waiter.deadline, None))
            if batch is not None:
                _signal([each for each in batch.waiters if not each.waits()])
            if self._leader is waiter:
                give_up_turn(self.writer, self.driver.store)  # whoever resumes the batch does without
                self._running_batch = self._lingering = None
                heirs = batch or self._interrupted  # the latter when this one was to resume it
                self._pass_on(heirs.waiters if heirs is not None else ())
            elif self._leader is not None and self._running_batch is None:
                _signal((self._leader,))  # an interruption may have come before the signal

    def _lead(self, leader: CommitWaiter) -> None:
        """Run one batch on this thread. After an interruption ``_leave`` names the next leader."""
        began = self.driver.machine.monotonic()
        seconds = self.writer.gather_seconds(leader.deadline)
        if seconds > 0 and self._interrupted is None:
            leader.wake.acquire(timeout=seconds)  # nobody ends it: there is no use in haste
        elif self.window is not None or self._expected > len(self._waiting):
            self._await_others(leader)
        with self._lock:
            self._lingering = None
            batch, left = self._interrupted, self._waiting
            if batch is None:
                waiters, left = next_batch(self._waiting)
                batch = CommitBatch(self.writer, waiters)
            # In one step: an interruption before it leaves all of them waiting, and one after it leaves a batch.
            self._interrupted, self._running_batch, self._waiting[:] = None, batch, left
        try:
            answer = batch.run(partial(self.driver.perform, deadline=batch.deadline))
        except OsqueueError as error:
            if not belongs_to_batch(error):
                raise
            batch.crash(error)
            if isinstance(error, RequestRefused) and error.events:  # of a commit that was made all the same
                self.event_queue.put(error.events)
        else:
            self._distribute(batch, answer, leader)
        _signal(batch.waiters)
        with self._lock:
            self._running_batch = None
            self._expected = len(batch.waiters)
            self._linger = min(LINGER_SECONDS_MAX, (self.driver.machine.monotonic() - began) * LINGER_SHARE)
            self._pass_on()
        self.event_queue.deliver()

    def _distribute(self, batch: CommitBatch, answer: CommitResult, leader: CommitWaiter) -> None:
        chores = batch.distribute(answer)
        if chores:
            with self._lock:
                self._waiting.insert(0, CommitWaiter(tuple(chores), leader.deadline, None))
        self._put_events(batch, answer)

    def _put_events(self, batch: CommitBatch, answer: CommitResult) -> None:
        if answer.events and not batch.told:
            self.event_queue.put(answer.events)
            batch.told = True

    def _await_others(self, leader: CommitWaiter) -> None:
        """Wait a moment for as many as came last time, or for the window."""
        machine = self.driver.machine
        linger_until = machine.monotonic() + self._linger
        while True:
            with self._lock:
                self._lingers_until = self._starts_at(linger_until)
                seconds = self._lingers_until - machine.monotonic()
                if self._interrupted is not None or seconds <= 0:
                    return
                self._lingering = leader
            if not leader.wake.acquire(timeout=seconds) or self.window is None:
                return

    def _pass_on(self, waiters: Sequence[CommitWaiter] = ()) -> None:
        """Make a caller that still waits the leader, if there is one. Called with the lock held."""
        for waiter in (*waiters, *self._waiting):
            if waiter.waits():
                self._leader = waiter
                _signal((waiter,))
                return
        self._leader = None
