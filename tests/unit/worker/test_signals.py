"""The worker and signals: all workers of a loop hear each one, and what the program set up stays."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from osqueue import AsyncQueue, Queue
from osqueue.worker import Signal
from osqueue.worker.loop import Worker
from tests.support.patience import PATIENCE


def test_a_signal_stops_every_worker_of_a_loop() -> None:
    async def main() -> None:
        queues = [AsyncQueue.connect("memory://", name) for name in ("a", "b", "c")]
        for q in queues:
            q.handler(lambda job: None)
        runs = [asyncio.create_task(q.run()) for q in queues]
        await asyncio.sleep(0.05)
        runs[1].cancel()  # one of them goes before
        await asyncio.wait({runs[1]})
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(runs[0], runs[2]), PATIENCE)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    after = [signal.getsignal(number) for number in numbers]
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    assert after == before


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
Loop = Callable[[], asyncio.AbstractEventLoop]


class Program:
    """A program that handles signals with ``signal.signal``, as web servers do."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.received: list[int] = []
        self.called = asyncio.Event()
        self.before = {number: signal.signal(number, self.handle) for number in numbers}

    def handle(self, number: int, frame: object) -> None:
        self.received.append(number)
        self.called.set()

    def end(self) -> None:
        for number, handler in self.before.items():
            assert signal.getsignal(number) == self.handle
            signal.signal(number, handler)


def run_worker(loop: Loop, act: Callable[[Worker], Awaitable[None]]) -> None:
    """Run a worker until it ends, while ``act`` goes on beside it."""

    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        q.handler(lambda job: None)
        worker = Worker(q)
        run = asyncio.create_task(worker.serve())
        await asyncio.sleep(0.05)
        await act(worker)
        await asyncio.wait_for(run, PATIENCE)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@LOOPS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_worker_and_the_handler_that_the_program_had_set(
    loop: Loop, number: signal.Signals
) -> None:
    program = Program(number)

    async def act(worker: Worker) -> None:
        os.kill(os.getpid(), number)

    run_worker(loop, act)
    assert program.received == [number]
    os.kill(os.getpid(), number)  # after the worker the program alone receives it
    assert program.received == [number, number]
    program.end()


@LOOPS
def test_a_second_signal_reaches_the_program_as_well(loop: Loop) -> None:
    program = Program(signal.SIGTERM)
    signalled: list[bool] = []

    async def act(worker: Worker) -> None:
        worker.stop = lambda *, now=False: signalled.append(now)  # type: ignore[method-assign]
        worker._stop_at = 1e12  # as if it drained
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(program.called.wait(), PATIENCE)
            program.called.clear()
            assert len(program.received) == count
        Worker.stop(worker, now=True)

    run_worker(loop, act)
    assert signalled == [True, True]
    program.end()


@LOOPS
def test_a_hang_up_drains_a_worker(loop: Loop) -> None:
    async def act(worker: Worker) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    run_worker(loop, act)


@LOOPS
def test_a_second_hang_up_has_no_effect_on_a_worker(loop: Loop) -> None:
    signalled: list[bool] = []

    async def act(worker: Worker) -> None:
        stopped = asyncio.Event()

        def stop(now: bool = False) -> None:
            signalled.append(now)
            stopped.set()

        worker.stop = stop  # type: ignore[method-assign]
        worker._stop_at = 1e12  # as if it drained
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(stopped.wait(), PATIENCE)
        Worker.stop(worker, now=True)

    run_worker(loop, act)
    assert signalled == [True]  # by SIGTERM alone


@LOOPS
@pytest.mark.parametrize("ignored", [True, False])
def test_a_hang_up_that_is_ignored_or_the_programs_own_stays_so(loop: Loop, ignored: bool) -> None:
    handler: Any = signal.SIG_IGN if ignored else lambda *_: None
    before = signal.signal(signal.SIGHUP, handler)

    async def act(worker: Worker) -> None:
        assert signal.getsignal(signal.SIGHUP) is handler
        worker.stop()

    run_worker(loop, act)
    assert signal.signal(signal.SIGHUP, before) is handler


@LOOPS
def test_a_hang_up_still_ends_a_program_that_handles_sigterm_itself(loop: Loop) -> None:
    program = Program(signal.SIGTERM)

    async def act(worker: Worker) -> None:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        worker.stop()

    run_worker(loop, act)
    program.end()


@LOOPS
def test_a_handler_that_the_program_sets_later_is_called_and_stays(loop: Loop) -> None:
    old, later = Program(signal.SIGTERM), list[Program]()

    async def act(worker: Worker) -> None:
        later.append(Program(signal.SIGTERM))
        os.kill(os.getpid(), signal.SIGTERM)

    run_worker(loop, act)
    assert (old.received, later[0].received) == ([], [signal.SIGTERM])
    assert signal.getsignal(signal.SIGTERM) == later[0].handle
    signal.signal(signal.SIGTERM, old.handle)
    old.end()


def test_a_handler_that_the_program_gives_its_loop_later_stays() -> None:
    received: list[int] = []

    async def main() -> None:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        q.handler(lambda job: None)
        worker = Worker(q)
        run = asyncio.create_task(worker.serve())
        await asyncio.sleep(0.05)
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, told.set)
        worker.stop()
        await asyncio.wait_for(run, PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(told.wait(), PATIENCE)
        received.append(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGTERM)

    asyncio.run(main())
    assert received == [signal.SIGTERM]


def test_a_handler_that_the_program_gave_its_loop_stays() -> None:
    async def main() -> None:
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails")
        q.handler(lambda job: None)
        worker = Worker(q)
        run = asyncio.create_task(worker.serve())
        for _ in range(2):
            await asyncio.sleep(0.05)
            told.clear()
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(told.wait(), PATIENCE)
            worker.stop()
            await asyncio.wait_for(run, PATIENCE)

    asyncio.run(main())


def test_a_signal_wakes_those_who_wait_and_those_who_come_later() -> None:
    happened = Signal()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(happened.wait(PATIENCE)))
    thread.start()
    assert not happened

    async def main() -> None:
        waiting = asyncio.ensure_future(asyncio.wait_for(happened, PATIENCE))
        await asyncio.sleep(0)
        await asyncio.to_thread(happened.set)
        await waiting
        await happened  # and at once when it has happened

    asyncio.run(main())
    thread.join(PATIENCE)
    assert woken == [True]
    assert happened.is_set()


# ── A program's handler that raises ──────────────────────────────────────────
ERRORS = pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])


@contextmanager
def raising(error: type[BaseException]) -> Iterator[None]:
    """Have the program's handler of SIGTERM raise."""

    def handle(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
        assert signal.getsignal(signal.SIGTERM) is handle
    finally:
        signal.signal(signal.SIGTERM, before)


@ERRORS
def test_a_blocking_worker_drains_before_it_raises_what_a_handler_raised(error: type[BaseException]) -> None:
    q: Queue[int] = Queue.connect("memory://", "emails")

    @q.handler
    def send(job: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert job.stopping.wait(PATIENCE)
        assert not job.lease_lost.wait(0.1)

    q.enqueue(1)
    with raising(error), pytest.raises(error):
        q.run()
    assert [(job.state, job.attempt) for job in q.jobs()[0]] == [("completed", 1)]


@LOOPS
@ERRORS
def test_an_async_worker_drains_before_it_raises_what_a_handler_raised(
    loop: Loop, error: type[BaseException]
) -> None:
    q: AsyncQueue[int] = AsyncQueue.connect("memory://", "emails")

    @q.handler
    async def send(job: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await job.stopping

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(q.enqueue(1))
        with raising(error), pytest.raises(error):
            runner.run(q.run())
        (job,) = runner.run(q.jobs())[0]
    assert (job.state, job.attempt) == ("completed", 1)


def test_the_last_of_several_workers_raises_what_a_handler_raised() -> None:
    async def main() -> None:
        idle, busy = [AsyncQueue[int].connect("memory://", name) for name in ("idle", "busy")]
        idle.handler(lambda job: None)

        @busy.handler
        async def send(job: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait({runs[0]})

        await busy.enqueue(1)
        runs = [asyncio.create_task(q.run()) for q in (idle, busy)]
        await asyncio.wait(runs, timeout=PATIENCE)
        assert (runs[0].exception(), type(runs[1].exception())) == (None, ValueError)

    with raising(ValueError):
        asyncio.run(main())
