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
        self._changed = threading.Condition(threading.Lock())
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
        with self._changed:
            self._events.append(events)
            self._put += 1

    def deliver(self) -> None:
        """Tell what waits, unless somebody is at it."""
        if not self._events:
            return
        self._check_process()
        me = threading.get_ident()
        with self._changed:
            if self._teller == me:
                return  # a listener's own call
            mine = self._put
            while self._teller is not None and len(self._events) > WAITING_MAX:
                if not self._stand() and self._teller is not None:
                    return  # without a teller it is our turn, though nobody called us: who told counts on us
            while self._events and self._teller is None:
                if self._told >= mine and self._standing:
                    return  # they go on, who add to it
                self._teller = me
                self._told += 1
                events = self._events.popleft()
                self._changed.release()
                try:
                    self._tell(events)
                finally:
                    self._changed.acquire()
                    self._teller = None
                    self._changed.notify()

    def _stand(self) -> bool:
        self._standing += 1
        try:
            return self._changed.wait(ROOM_SECONDS)
        finally:
            self._standing -= 1
