"""The fault that a store of a test has now: switched on before a request or between two, and off again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from osqueue.clock import Machine
from osqueue.stores.faults import REQUEST_TIMEOUT_S


class FastMachine(Machine):
    """A machine whose sleeps take no real time: its clocks go on by them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chance = random.Random(7)
        self._slept_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._slept_s

    def now_ms(self) -> int:
        return super().now_ms() + round(self._slept_s * 1000)

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self._slept_s += seconds

    def uniform(self) -> float:
        with self._lock:
            return self._chance.random()


class FaultSwitch:
    """What fault the requests of a store meet. Each store of a test asks it once for each request."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.requests = 0  # that arrived so far
        self.met = 0  # requests that the fault has kept from a good reply
        self.ended = threading.Event()  # a request that hangs waits for it
        self.on_begin: Callable[[str], None] = lambda fault: None
        self.on_end: Callable[[str], None] = lambda fault: None
        self._lock = threading.RLock()
        self._own = threading.local()
        self._fault: str | None = None
        self._begins_at = 0  # the number of the request that meets the fault first
        self._begun = False

    @contextmanager
    def on(self, fault: str, after: int = 0) -> Iterator[None]:
        """Keep a fault up while the block lasts, from the request after so many others."""
        with self._lock:
            self.ended.clear()
            self.met = 0
            self._fault, self._begins_at, self._begun = fault, self.requests + after, False
            if not after:
                self._begin()
        try:
            yield
        finally:
            with self._lock:
                self._fault = None
                if self._begun:
                    self.on_end(fault)
                self.ended.set()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let the requests of this thread pass while the block lasts, uncounted."""
        self._own.aside = True
        try:
            yield
        finally:
            self._own.aside = False

    def draw(self) -> str | None:
        """The fault that the next request meets; None: it passes."""
        if getattr(self._own, "aside", False):
            return None
        with self._lock:
            self.requests += 1
            if self._fault is None or self.requests <= self._begins_at:
                return None
            if not self._begun:
                self._begin()
            self.met += 1
            return self._fault

    def hang(self) -> None:
        """Spend the time, by the machine's clock, that a client waits for a reply."""
        if isinstance(self.machine, FastMachine):
            self.machine.sleep(REQUEST_TIMEOUT_S)

    @property
    def fault(self) -> str | None:
        """The fault that is on, begun or not."""
        return self._fault

    def _begin(self) -> None:
        assert self._fault is not None
        self._begun = True
        self.on_begin(self._fault)
