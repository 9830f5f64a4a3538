"""Machines whose time stands still until a test moves it."""

from __future__ import annotations

import random

from osqueue.clock import Machine

NOON_MS = 1_800_000_000_000


class VirtualMachine(Machine):
    """Time moves when a test says so, or when the code under test sleeps; chance comes from a seed."""

    def __init__(self, seed: int = 1, now_ms: int = NOON_MS) -> None:
        self.chance = random.Random(seed)
        self.time_ms = now_ms
        self.seconds = 1_000.0
        self.pid = 1
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)

    def uniform(self) -> float:
        return self.chance.random()

    def bits(self, count: int) -> int:
        return self.chance.getrandbits(count)

    def process(self) -> int:
        return self.pid

    def name(self) -> str:
        return "virtual"

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds
        self.time_ms += round(seconds * 1000)


class StoppedClock(Machine):
    """A machine whose wall clock stands still, and whose monotonic clock moves by sleeping only."""

    def __init__(self) -> None:
        self.slept = 0.0

    def now_ms(self) -> int:
        return 1_800_000_000_000

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
