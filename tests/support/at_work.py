"""A worker at work in a thread, on a machine whose time passes when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from osqueue.clock import Machine
from osqueue.worker.loop import Worker
from tests.support.patience import PATIENCE

Result = TypeVar("Result")


class Still(Machine):
    """A machine on which time passes when a test says so, however long anything takes."""

    def __init__(self) -> None:
        self.passed = 0.0  # seconds
        self.loops: list[asyncio.AbstractEventLoop] = []

    def monotonic(self) -> float:
        return self.passed

    def now_ms(self) -> int:
        return 1_800_000_000_000 + round(self.passed * 1000)

    def set_time(self, passed: float) -> None:
        """Let time pass. Event loops of this machine look at once for what is due now."""
        self.passed = passed
        for each in self.loops:
            with contextlib.suppress(RuntimeError):  # it is closed
                each.call_soon_threadsafe(lambda: None)

    def advance(self, seconds: float) -> None:
        self.set_time(self.passed + seconds)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Like ``asyncio.run``, with timers that are due when this machine's time has come."""
        with asyncio.Runner(loop_factory=lambda: LoopOf(self)) as runner:
            return runner.run(work)


class LoopOf(asyncio.SelectorEventLoop):
    """Its time is what passes on a machine, and real time besides: a pause ends at the earlier of the two."""

    def __init__(self, machine: Still) -> None:
        self.machine = machine
        super().__init__()
        machine.loops.append(self)

    def time(self) -> float:
        return super().time() + self.machine.passed


@contextlib.contextmanager
def working(q: Any, **options: Any) -> Iterator[Worker]:
    """A worker in a thread for as long as the block lasts."""
    worker = Worker(q, signals=False, **options)
    on = q.machine
    run = (lambda: on.run(worker.serve())) if isinstance(on, Still) else worker.run
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def until(happened: Callable[[], object]) -> None:
    """Wait for what must come."""
    for _ in range(100 * PATIENCE):
        if happened():
            return
        threading.Event().wait(0.01)
    pytest.fail("it did not come")
