"""A client's machine in virtual time: clocks that are wrong on purpose, and entropy that replays."""

from __future__ import annotations

import random
from typing import Protocol, Self

from osqueue.clock import Machine, Moment


class HasTime(Protocol):
    """Whatever says what time it truly is."""

    now: float  # seconds since the run began


def source(*parts: object) -> random.Random:
    """A seeded generator of its own for one purpose, so that no purpose disturbs another."""
    return random.Random("/".join(map(str, parts)))


MOMENTS_KEPT = 1_000
HIDDEN_SECONDS_MAX = 5.0  # more than clocks drift apart in hours
EPOCH_MS = 1_700_000_000_000  # when every run begins, ms since the Unix epoch, UTC


class VirtualMachine(Machine):
    """Clocks with an error and entropy from a seed."""

    def __init__(self, world: HasTime, name: str, seed: object, skew_ms: int = 0, drift: float = 0.0) -> None:
        self.world = world
        self.skew_ms = skew_ms  # the wall clock's error at the beginning
        self.drift = drift  # and how much faster than time both clocks run (0.0001: 100 ppm)
        self._random = source(seed, "machine", name)
        self._up_seconds = self._random.random() * 1e6  # nobody's monotonic clock starts with another's
        self.blind = (
            False  # did both clocks hide how much time had passed, which nothing on the machine can tell?
        )
        self._true: dict[Moment, float] = {}  # when moments were, seconds of virtual time

    def now_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(self.world.now * 1000 * (1 + self.drift))

    def monotonic(self) -> float:
        return self._up_seconds + self.world.now * (1 + self.drift)

    def moment(self) -> Moment:
        now = super().moment()
        self._true[now] = self.world.now
        if len(self._true) > MOMENTS_KEPT:
            del self._true[next(iter(self._true))]
        return now

    def ms_since(self, moment: Moment) -> float:
        told = max((self.monotonic() - moment.monotonic) * 1000, self.now_ms() - moment.wall_ms)
        true = self.world.now - self._true.get(moment, self.world.now)
        self.blind |= told < (true - HIDDEN_SECONDS_MAX) * 1000
        return super().ms_since(moment)

    def step(self, ms: int) -> None:
        """Somebody sets the wall clock."""
        self.skew_ms += ms

    def suspend(self, seconds: float, *, wall: bool) -> None:
        """Stand still for a while: the monotonic clock does not count it; ``wall``: nor does the wall clock."""
        self._up_seconds -= seconds
        if wall:
            self.skew_ms -= int(seconds * 1000)
            self.blind = True

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody blocks in the simulator: a flow yields Sleep")

    def uniform(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)

    def process(self) -> int:
        return 1

    def clone(self, name: str, seed: object) -> Self:
        """The machine of a restored snapshot: the same clocks, other entropy."""
        twin = type(self)(self.world, name, seed, self.skew_ms, self.drift)
        twin._up_seconds = self._up_seconds
        twin.blind = self.blind
        return twin
