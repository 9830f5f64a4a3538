"""The blocking driver: runs a flow of effects against a real store on the calling thread.

A driver adds nothing to the protocol: it performs what is yielded and sends the replies back. The simulator's
driver (``simulation``) and the one for coroutines (``commit.asynchronous``) are its siblings.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from ..clock import Machine
from ..errors import Timeout
from ..stores.base import Failed, PassTurn, TakeTurn
from .effects import All, Performer, Sleep

if TYPE_CHECKING:
    from ..threads import DaemonThreads, TimedCaller

REQUESTS_AT_ONCE_MAX = 32  # of one process, for all its queues
REQUEST_SECONDS_MIN = 0.1  # for a request of a call that has any time left

T = TypeVar("T")


@functools.cache
def _threads() -> DaemonThreads:
    """Return the threads that carry simultaneous requests."""
    from ..threads import DaemonThreads  # where it is used: few callers need it

    return DaemonThreads("osqueue-io", REQUESTS_AT_ONCE_MAX, awaited=True)


@functools.cache
def _timed() -> TimedCaller[Any]:
    """Return the threads that carry requests which may take longer than their call has time."""
    from ..threads import TimedCaller  # where it is used: few calls are late

    return TimedCaller()


def seconds_left(store: Performer, machine: Machine, request: Any, deadline: float) -> float | None:
    """Return the seconds in which a request has to be over; 0 if its call has no time left.

    Return None if the store's own time-outs are shorter, or if the request waits for a turn: that wait has its own
    end, and a turn that came after a shorter one would be lost.
    """
    if not store.reply_s_max or deadline == math.inf or isinstance(request, TakeTurn | PassTurn):
        return None
    left = deadline - machine.monotonic()
    if left >= store.reply_s_max:
        return None
    return max(left, REQUEST_SECONDS_MIN) if left > 0 else 0.0


def late(seconds: float) -> Failed:
    """Return the reply to a request that was not over in the ``seconds`` that its call had left."""
    text = f"no answer in time: the store sent no reply in the {seconds:.3g} s that the call had left."
    return Failed(Timeout(text), late=True)


class BlockingDriver:
    """Performs effects on the calling thread."""

    def __init__(self, store: Performer, machine: Machine) -> None:
        self.store = store
        self.machine = machine

    def perform(self, effect: Any, deadline: float = math.inf) -> Any:
        """Carry out one effect and return its reply. A request without a reply at ``deadline`` is Failed.

        ``deadline`` is in seconds on the machine's monotonic clock. Such a request may still take effect.
        """
        if isinstance(effect, Sleep):
            self.machine.sleep(effect.seconds)
            return None
        if isinstance(effect, All):
            return self._together(effect.requests, deadline)
        return self._ask(effect, deadline)

    def _ask(self, request: Any, deadline: float) -> Any:
        left = seconds_left(self.store, self.machine, request, deadline)
        if left is None:
            return self.store.perform(request)
        reply = _timed().call(lambda: self.store.perform(request), left) if left else None
        return late(left) if reply is None else reply

    def _together(self, requests: tuple[Any, ...], deadline: float) -> tuple[Any, ...]:
        if len(requests) < 2 or not self.store.remote:
            return tuple([self._ask(each, deadline) for each in requests])
        pool = _threads()
        # The first runs here: one thread fewer to wake, and no dead end should the pool be full of callers.
        # Each of the others has the context of its caller: whoever counts there counts them as well.
        others = [pool.submit(copy_context().run, self._ask, each, deadline) for each in requests[1:]]
        return (self._ask(requests[0], deadline), *(other.result() for other in others))

    def run(self, flow: Generator[Any, Any, T]) -> T:
        """Run a flow to its end."""
        reply: Any = None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            reply = self.perform(effect)
