"""The blocking driver: runs a flow of effects against a real store on the calling thread.

A driver adds nothing to the protocol: it performs what is yielded and sends the replies back. The simulator's
driver (``simulation``) and the one for coroutines (``commit.asynchronous``) are its siblings.
"""

from __future__ import annotations

from collections.abc import Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from .. import forks
from ..clock import Machine
from .effects import All, Performer, Sleep

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

REQUESTS_AT_ONCE_MAX = 32  # of one process, for all its queues

T = TypeVar("T")


class _Threads:
    """The threads that carry simultaneous requests; made when first needed, and again in a fork's child."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._process = 0
        self._pool: ThreadPoolExecutor | None = None

    def of(self, process: int) -> ThreadPoolExecutor:
        """The pool of this process."""
        with self._lock:
            if self._pool is None or self._process != process:
                from concurrent.futures import ThreadPoolExecutor  # where it is used: few callers need it

                self._pool = ThreadPoolExecutor(REQUESTS_AT_ONCE_MAX, "osqueue-io")
                self._process = process
            return self._pool


_THREADS = _Threads()


class BlockingDriver:
    """Performs effects on the calling thread."""

    def __init__(self, store: Performer, machine: Machine) -> None:
        self.store = store
        self.machine = machine

    def perform(self, effect: Any) -> Any:
        """Carry out one effect and answer its reply."""
        if isinstance(effect, Sleep):
            self.machine.sleep(effect.seconds)
            return None
        if isinstance(effect, All):
            return self._together(effect.requests)
        return self.store.perform(effect)

    def _together(self, requests: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(requests) < 2 or not self.store.remote:
            return tuple(map(self.store.perform, requests))
        pool = _THREADS.of(self.machine.process())
        # The first runs here: one thread fewer to wake, and no dead end should the pool be full of callers.
        # Each of the others has the context of its caller: whoever counts there counts them as well.
        others = [pool.submit(copy_context().run, self.store.perform, each) for each in requests[1:]]
        return (self.store.perform(requests[0]), *(other.result() for other in others))

    def run(self, flow: Generator[Any, Any, T]) -> T:
        """Run a flow to its end."""
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            reply = self.perform(effect)
