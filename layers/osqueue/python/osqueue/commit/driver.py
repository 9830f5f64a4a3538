"""The blocking driver: runs a flow of effects against a real store on the calling thread.

A driver adds nothing to the protocol: it performs what is yielded and sends the replies back. The simulator's
driver (``simulation``) and the one for coroutines (``commit.asynchronous``) are its siblings.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ..clock import Machine
from .effects import All, Performer, Sleep

if TYPE_CHECKING:
    from ..threads import DaemonThreads

REQUESTS_AT_ONCE_MAX = 32  # of one process, for all its queues

T = TypeVar("T")


@functools.cache
def _threads() -> DaemonThreads:
    """Return the threads that carry simultaneous requests."""
    from ..threads import DaemonThreads  # where it is used: few callers need it

    return DaemonThreads("osqueue-io", REQUESTS_AT_ONCE_MAX, awaited=True)


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
        pool = _threads()
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
