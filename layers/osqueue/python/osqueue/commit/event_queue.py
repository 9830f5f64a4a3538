"""What was committed, on its way to those who want to know: in order, and after everybody has gone on.

A leader puts the events of its batch here while it still leads, which fixes their order, and delivers them once
another one leads. So a listener may call its own queue: that call puts its events behind those
being told and returns.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from .. import forks
from ..clock import Machine
from ..core.reduce import Told

OnEvents = Callable[[Sequence[Told]], None]

WAITING_MAX = 100  # commits that wait to be told; whoever adds one more waits for a slow listener …
ROOM_SECONDS = 1.0  # … so long, since that listener may be waiting for this very caller

_STARTING = forks.lock()  # held while one starts afresh in a fork's child


class EventQueue:
    """The events of one queue object, told by one thread at a time."""

    def __init__(self, tell: OnEvents, machine: Machine) -> None:
        self._tell = tell
        self._machine = machine
        self._start_afresh()

    def _start_afresh(self) -> None:
        """At first, and in a fork's child, where what waits is told by the parent."""
        self._lock = (
            forks.lock()
        )  # entered itself: the condition's own methods are Python, and can be interrupted
        self._changed = threading.Condition(self._lock)
        self._events: deque[Sequence[Told]] = deque()
        self._teller: int | None = None  # the thread that is telling
        self._put = 0
        self._told = 0
        self._standing = 0  # threads that wait for room, and can take over
        self._process = self._machine.process()  # at last: other threads use what they find then

    def _check_process(self) -> None:
        if self._machine.process() != self._process:
            with _STARTING:
                if self._machine.process() != self._process:  # else another thread of this child has done it
                    self._start_afresh()

    def put(self, events: Sequence[Told]) -> None:
        """Add the events of one commit."""
        self._check_process()
        with self._lock:
            self._events.append(events)
            self._put += 1

    def deliver(self) -> None:
        """Pass on what waits, unless another thread does it. What an interruption cuts off is passed on again."""
        if not self._events:
            return
        self._check_process()
        mine, thread = self._put, threading.get_ident()
        if not self._may_tell():
            return
        while True:
            waiting = self._events  # a child that a listener forks begins others
            try:
                if not self._take_place(mine):
                    return
                self._tell(waiting[0])
                self._told += 1
                waiting.popleft()
            finally:
                if self._teller == thread:
                    self._teller = (
                        None  # at first, and without a call or a lock, so that no interruption prevents it
                    )
                    with self._lock:
                        self._changed.notify()

    def _may_tell(self) -> bool:
        """Wait for room where too much waits. Return False if a listener's own call, or the waiting, has to end."""
        with self._lock:
            if self._teller == threading.get_ident():
                return False
            while self._teller is not None and len(self._events) - 1 > WAITING_MAX:  # one is being told
                if not self._stand() and self._teller is not None:
                    return False  # without a teller this thread is the next one, even if nothing woke it
        return True

    def _take_place(self, mine: int) -> bool:
        """Become the teller. Return False if other threads tell the rest, or nothing is left."""
        with self._lock:
            if not self._events or self._teller is not None or (self._told >= mine and self._standing):
                return False
            self._teller = threading.get_ident()
        return True

    def _stand(self) -> bool:
        self._standing += 1
        try:
            return self._changed.wait(ROOM_SECONDS)
        finally:
            self._standing -= 1
