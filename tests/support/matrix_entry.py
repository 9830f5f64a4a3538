"""What the entries of the fault matrix share: a place, a rival that commits around the fault, and an account."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from osqueue import Queue
from osqueue.clock import Machine
from osqueue.stores.address import open_store
from osqueue.testing.clock import VirtualDriver
from tests.support.matrix_stores import Place

NAME = "mail"
TIMEOUT_S = 4.0  # of one call, by the clock of a machine whose sleeps take no time
PASSES_MAX = (
    60  # of the reaper, a second apart: leases and tickets of an invocation that failed have ended by then
)
PADDING = "." * 1500  # so that a payload is an object of its own


class Entry:
    """An entry at a place. ``call`` does its work once, and raises what the entry reports."""

    name: ClassVar[str]
    covers: ClassVar[tuple[str, ...]]  # the modules of the library that open a store for it
    absent: ClassVar[Mapping[str, str]] = {}  # by kind of store: the reason why it does not open one
    unhurt: ClassVar[Mapping[str, str]] = {}  # by fault that may leave a call unhurt: the reason
    only_reads: ClassVar[bool] = False  # a call does, so faults that no read meets leave it unhurt
    real_time: ClassVar[bool] = False  # it waits by the machine's own clock

    def __init__(self, place: Place, patch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.patch = patch
        self.machine: Machine = place.switch.machine
        self.rival: Queue[Any] = Queue(open_store(place.direct, self.machine), NAME, machine=self.machine)
        self.sent: list[str] = []  # payloads that were given to the entry
        self.acknowledged: list[str] = []  # those that it has acknowledged
        self.by_rival = 0
        self.moment = ""  # one of the matrix
        self.begin()

    def begin(self) -> None:
        """Open what is tried."""

    def prepare(self) -> None:
        """Let another writer commit, so that what the entry knows of the queue is old."""
        self.by_rival += 1
        self.rival.enqueue(f"rival {self.by_rival}")

    def call(self, payload: str) -> None:
        """Work once."""
        raise NotImplementedError

    def middle(self, requests: int) -> int:
        """Return after how many requests a fault begins during a call that takes so many."""
        return max(1, requests // 2)

    def recover(self, payload: str) -> None:
        """Work once after a fault: the first call succeeds."""
        self.call(payload)

    def check(self) -> None:
        """Compare what the store has with what was acknowledged."""
        found = Counter(self.found())
        lost = [each for each in self.acknowledged if not found[each]]
        twice = [each for each, count in found.items() if count > 1]
        unknown = found.keys() - set(self.sent) - {f"rival {n + 1}" for n in range(self.by_rival)}
        assert not lost, f"acknowledged and lost: {lost}"
        assert not twice, f"applied twice: {twice}"
        assert not unknown, f"never sent: {unknown}"

    def found(self) -> list[str]:
        """The payloads in the queue, by a reader of its own."""
        with Queue(self.rival.store, NAME, machine=self.machine) as reader:
            payloads = []
            while leases := reader.claim(1000):
                payloads += [lease.payload.rstrip(".") for lease in leases]
            return payloads

    def completed(self) -> int:
        """Return how many jobs of the queue have completed."""
        count: int = self.rival.stats()["counters"]["completed"]
        return count

    def close(self) -> None:
        """Release what it has opened."""
        self.rival.close()

    def give(self, payload: str, call: Callable[[str], Any]) -> None:
        """Make a call with a payload, and note that it was acknowledged."""
        self.sent.append(payload)
        call(payload + PADDING)
        self.acknowledged.append(payload)


class Awaiting(Entry):
    """An entry for coroutines, and the loop that runs it."""

    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.opened = self.open()
        if hasattr(self.opened, "_driver"):
            self.opened._driver = VirtualDriver(self.opened._driver.store, self.machine)

    def open(self) -> Any:
        """What is tried."""
        raise NotImplementedError

    def close(self) -> None:
        self.runner.close()
        super().close()
