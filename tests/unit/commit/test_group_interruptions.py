"""Threads that are interrupted while they commit for several, more than once or at an awkward moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue
from osqueue.commit import group, in_turn, protocol, steps, writer
from osqueue.core import encoding
from osqueue.errors import Rejected, Unavailable
from osqueue.objects.layout import root_of
from osqueue.stores.base import Get, PassTurn, PutIfMatch, StoreReply, StoreRequest, TakeTurn, Turn
from osqueue.stores.file import FileStore
from osqueue.stores.memory import MemoryStore
from tests.support.patience import PATIENCE


class BeforeSwaps:
    """A store that does what a test asks for before each swap of a head."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def perform(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, PutIfMatch):
            self.before()
        return super().perform(request)  # type: ignore[misc,no-any-return]

    def once(self, act: Callable[[], None]) -> None:
        """Do it before the next swap."""

        def acted() -> None:
            self.before = lambda: None
            act()

        self.before = acted


class Interrupting(BeforeSwaps, MemoryStore):
    """In memory."""


class InterruptingFolder(BeforeSwaps, FileStore):
    """In a folder, which offers turns."""


def interrupt() -> None:
    raise KeyboardInterrupt


def await_waiters(q: Queue[Any], count: int) -> None:
    """Wait until so many callers wait for the next batch."""
    while len(q._group(0)._waiting) < count:
        threading.Event().wait(0.001)


@pytest.fixture
def store(machine: Any) -> Interrupting:
    return Interrupting(machine)


@pytest.fixture
def q(store: Interrupting, machine: Any) -> Queue[Any]:
    made: Queue[Any] = Queue(store, "mail", machine=machine, timeout=5)
    made.enqueue("first")
    return made


def interrupted_at(line: int, work: Callable[[], Any], function: str = "") -> bool:
    """Run ``work``, interrupted before the ``line``-th line of the module or of one function; return whether it exists.

    The interruption of a ``with`` may come before the lock is released: Python 3.12 and later trace that line first.
    Lines inside the protocol are left out, since its waiters receive Unavailable.
    """
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != group.__file__:
            return None
        batch = frame.f_locals.get("self") if frame.f_code.co_name == "_step" else None
        inside = batch is not None and batch.torn
        asked = function in ("", frame.f_code.co_name)
        if event == "line" and asked and not inside:
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(None)
    return left < 0


def interrupted_inside(line: int, work: Callable[[], Any], *modules: Any) -> bool:
    """The same inside the protocol, in these modules."""
    left = line
    files = [module.__file__ for module in modules]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line" and frame.f_code.co_filename in files:
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(None)
    return left < 0


@pytest.mark.parametrize("call", ["enqueue", "claim"])
def test_an_interruption_at_any_line_leaves_the_queue_usable(machine: Any, call: str) -> None:
    """And nobody keeps a lease that nobody heard of."""
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine, timeout=1)
    q.enqueue_many([{"payload": at} for at in range(3)])
    line = 0
    work: Callable[[], Any] = partial(q.claim, 2) if call == "claim" else partial(q.enqueue, "x")
    while interrupted_at(line, work):
        line += 1
        # One call flies on with what was interrupted, another one carries what has to be given back.
        assert [q.enqueue("next").status for _ in range(2)] == ["queued"] * 2
        assert q.stats()["processing"] == 0, line
    assert line > 30


def test_an_interruption_at_any_line_leaves_nothing_half_remembered(machine: Any) -> None:
    """What a writer keeps from one commit to the next stays true, so the next head can be read."""
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine, timeout=1)
    line, there = 0, True
    while there:
        q.enqueue("x")
        (lease,) = q.claim()
        there = interrupted_inside(line, lease.complete, writer, encoding)
        line += 1
        q.enqueue("next")
        for each in q.claim(5):
            each.complete()
        known: Queue[Any] = Queue(q.store, "mail", machine=machine)
        assert known.stats()["counters"] == q.stats()["counters"], line
    assert line > 30


@pytest.mark.parametrize("function", ["_leave", "_pass_on"])
def test_another_interruption_while_the_first_is_tidied_up_leaves_the_queue_usable(
    store: Interrupting, q: Queue[Any], function: str
) -> None:
    """Both for the next call and for one that waits already."""

    def interrupted() -> None:
        waiting.append(pool.submit(q.enqueue, "waits"))
        await_waiters(q, 1)
        interrupt()

    def work() -> None:
        store.once(interrupted)
        with pytest.raises(KeyboardInterrupt):
            q.enqueue("interrupted")

    line = 0
    waiting: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as pool:
        while interrupted_at(line, work, function):
            line += 1
            assert waiting.pop().result(PATIENCE).status == "queued", line
            assert q.enqueue("next").status == "queued", line
    assert line > 5


def test_a_caller_that_is_interrupted_too_often_to_leave_holds_up_no_call(
    q: Queue[Any], store: Interrupting, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave, tries = group.BlockingGroup._leave, group.LEAVE_TRIES_MAX

    def interrupted(self: Any, waiter: Any) -> None:
        nonlocal left
        if left:
            left -= 1
            interrupt()
        leave(self, waiter)

    monkeypatch.setattr(group.BlockingGroup, "_leave", interrupted)
    with ThreadPoolExecutor(1) as pool:
        for submit in (q.enqueue, lambda payload: pool.submit(q.enqueue, payload).result(PATIENCE)):
            left = tries
            store.once(interrupt)
            with pytest.raises(KeyboardInterrupt):
                q.enqueue("interrupted")
            assert left == 0
            assert submit("next").status == "queued"


def test_riders_of_an_interrupted_flight_are_flown_on_when_its_heir_leaves_too(
    store: Interrupting, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_air, go_on = threading.Event(), threading.Event()
    fly = group.BlockingGroup._lead
    pilots: list[Any] = []

    def hold() -> None:
        in_the_air.set()
        assert go_on.wait(PATIENCE)
        store.once(interrupt)  # who flies next

    def flown(self: Any, leader: Any) -> None:
        pilots.append(leader)
        if len(pilots) == 3:
            raise KeyboardInterrupt  # the heir, before it has the controls
        fly(self, leader)

    monkeypatch.setattr(group.BlockingGroup, "_lead", flown)
    store.once(hold)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(q.enqueue, "a")
        assert in_the_air.wait(PATIENCE)
        others = [pool.submit(q.enqueue, name) for name in "bcd"]
        await_waiters(q, 3)
        go_on.set()
        assert first.result(PATIENCE).status == "queued"
        ended = [each.exception(PATIENCE) for each in others]
    assert [type(each) for each in ended].count(KeyboardInterrupt) == 2
    assert ended.count(None) == 1


# ── Exceptions of other code ─────────────────────────────────────────────────
class TimeLimit(Exception):
    """As signal handlers raise it."""


def refused(q: Queue[Any]) -> Rejected:
    """Call the queue where it cannot be called."""
    with pytest.raises(Rejected) as caught:
        q.enqueue("nested")
    return caught.value


@pytest.mark.parametrize(
    "error", [TimeLimit(), TimeoutError(), Unavailable("another store, asked by a handler")]
)
def test_an_exception_of_other_code_reaches_its_own_thread_alone(
    store: Interrupting, q: Queue[Any], error: Exception
) -> None:
    def prepare() -> None:
        waiting.extend(pool.submit(q.enqueue, name) for name in "ab")
        await_waiters(q, 2)
        store.once(raise_in_their_batch)

    def raise_in_their_batch() -> None:
        raise error

    waiting: list[Future[Any]] = []
    store.once(prepare)
    with ThreadPoolExecutor(2) as pool:
        q.enqueue("first")
        ended = [each.exception(PATIENCE) for each in waiting]
    assert sorted(map(repr, ended)) == sorted(map(repr, [error, None]))
    assert q.enqueue("next").status == "queued"


def test_an_exception_of_other_code_inside_the_protocol_reaches_its_own_thread_alone(
    store: Interrupting, q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its waiters receive Unavailable: the protocol cannot be resumed there."""
    reduce = steps.reduce

    def limited(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(steps, "reduce", reduce)
        raise TimeLimit

    def prepare() -> None:
        waiting.extend(pool.submit(q.enqueue, name) for name in "ab")
        await_waiters(q, 2)
        monkeypatch.setattr(steps, "reduce", limited)

    waiting: list[Future[Any]] = []
    store.once(prepare)
    with ThreadPoolExecutor(2) as pool:
        q.enqueue("first")
        ended = [each.exception(PATIENCE) for each in waiting]
    assert {type(each) for each in ended} == {TimeLimit, Unavailable}
    assert q.enqueue("next").status == "queued"


# ── Calls inside calls ───────────────────────────────────────────────────────
def test_a_call_inside_a_commit_of_the_same_thread_is_refused_at_once(
    store: Interrupting, q: Queue[Any]
) -> None:
    errors: list[Rejected] = []
    store.once(lambda: errors.append(refused(q)))
    assert q.enqueue("outer").status == "queued"
    assert "nothing was enqueued" in str(errors)
    assert [lease.payload for lease in q.claim(9)] == ["first", "outer"]


def test_a_call_by_a_finaliser_while_the_group_is_locked_is_refused_at_once(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Finalised:
        def __del__(self) -> None:
            errors.append(refused(q))

    def collect(*_: Any) -> None:
        monkeypatch.undo()
        Finalised()

    errors: list[Rejected] = []
    monkeypatch.setattr(group.BlockingGroup, "_pass_on", collect)
    q.enqueue("outer")
    assert len(errors) == 1


def test_a_call_by_a_signal_handler_while_its_thread_waits_is_refused_at_once(
    store: Interrupting, q: Queue[Any]
) -> None:
    def interrupt_the_waiter() -> None:
        leads.set()
        await_waiters(q, 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        assert handled.wait(PATIENCE)

    def handle(*_: Any) -> None:
        errors.append(refused(q))
        handled.set()

    leads, handled = threading.Event(), threading.Event()
    errors: list[Rejected] = []
    store.once(interrupt_the_waiter)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with ThreadPoolExecutor(1) as pool:
            leader = pool.submit(q.enqueue, "leads")
            assert leads.wait(PATIENCE)
            assert q.enqueue("waits").status == "queued"
            assert leader.result(PATIENCE).status == "queued"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(errors) == 1


def test_events_of_a_commit_are_told_although_its_pilot_was_interrupted(
    q: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    distribute = group.BlockingGroup._distribute
    q._observe(told.extend)

    def interrupted(*_: Any) -> None:
        monkeypatch.setattr(group.BlockingGroup, "_distribute", distribute)
        raise KeyboardInterrupt

    monkeypatch.setattr(group.BlockingGroup, "_distribute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        q.enqueue("second")
    q.enqueue("third")
    assert len(told) == 2


# ── Turns ────────────────────────────────────────────────────────────────────
@pytest.fixture
def stranger(tmp_path: Path) -> Queue[Any]:
    made: Queue[Any] = Queue(FileStore(tmp_path, fsync=False), "mail")
    made.enqueue("first")
    return made


def has_the_turn(q: Queue[Any]) -> bool:
    """Can this one have the turn at once? Then it is passed on."""
    reply = q.store.perform(TakeTurn(root_of("mail", 0) + writer.HEAD, b"", 0.0))
    if isinstance(reply, Turn):
        q.store.perform(PassTurn(reply))
    return isinstance(reply, Turn)


def among_others(q: Queue[Any]) -> Queue[Any]:
    """It takes turns, since it is not alone."""
    q._group(0).writer.shared = True
    return q


def test_whoever_is_interrupted_and_goes_on_keeps_no_turn(tmp_path: Path, stranger: Queue[Any]) -> None:
    """Not even while somebody looks at the traceback."""
    store = InterruptingFolder(tmp_path, fsync=False)
    q = among_others(Queue(store, "mail"))
    store.once(interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        q.enqueue("interrupted")
    assert caught.tb is not None
    assert has_the_turn(stranger)
    assert among_others(q).enqueue("next").status == "queued"
    assert [lease.payload for lease in stranger.claim(9)] == ["first", "interrupted", "next"]


def test_whoever_is_interrupted_inside_a_commit_in_turn_keeps_none(
    tmp_path: Path, stranger: Queue[Any]
) -> None:
    q = Queue[Any](FileStore(tmp_path, fsync=False), "mail")
    line, there = 0, True
    while there:
        among_others(q)._group(0)._start_afresh(q.machine)  # it goes on with nothing that was interrupted
        there = interrupted_inside(line, partial(q.enqueue, "x"), steps, in_turn, protocol, writer)
        assert has_the_turn(stranger), line
        line += 5
    assert line > 100


def test_the_child_of_a_fork_passes_no_turn_of_its_parent_on(tmp_path: Path, stranger: Queue[Any]) -> None:
    """It may be what leaves the call of its parent."""
    store = InterruptingFolder(tmp_path, fsync=False)
    q = among_others(Queue(store, "mail"))
    parent = os.getpid()
    taken: list[bool] = []
    kept: list[bool] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            interrupt()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        taken.append(q._group(0).writer.turn is not None)
        kept.append(not has_the_turn(stranger))

    store.once(fork)
    code = 1
    try:
        with suppress(KeyboardInterrupt):
            q.enqueue("next")
        code = 0
    except BaseException:
        traceback.print_exc()  # of a child, too: its parent sees the exit code alone
        raise
    finally:
        if os.getpid() != parent:
            sys.stderr.flush()
            os._exit(code)
    assert (taken, kept) == ([True], [True])


def test_a_loop_that_ends_keeps_no_turn(tmp_path: Path, stranger: Queue[Any]) -> None:
    class Hanging(FileStore):
        async def perform_async(self, request: StoreRequest) -> StoreReply:
            if isinstance(request, Get) and in_line:
                reached.set()
                await asyncio.Event().wait()
            return await super().perform_async(request)

    async def interrupted() -> None:
        await q.enqueue("first")
        q._group(0).writer.shared = True  # it is not alone
        in_line.append(True)
        call = asyncio.ensure_future(q.enqueue("second"))
        await reached.wait()
        leader = q._group(0)._task
        assert leader is not None
        leader.cancel()
        await asyncio.wait({call, leader})
        assert isinstance(call.exception(), Unavailable)
        assert has_the_turn(stranger)

    q: AsyncQueue[Any] = AsyncQueue(Hanging(tmp_path, fsync=False), "mail")
    in_line: list[bool] = []
    reached = asyncio.Event()
    asyncio.run(interrupted())
