"""Time, randomness and waiting: the only module that may touch the machine's own.

Everything else takes a ``Machine`` and can therefore be replayed. Stored times are integer milliseconds
since the Unix epoch, UTC.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import NamedTuple

from . import forks

CLOCKS_APART_MS_MAX = 1_000  # by which the two clocks of a machine may drift apart between two moments

_HOST = os.uname().nodename[:100]  # as socket.gethostname, without loading sockets
_CHANCE = random.Random()  # noqa: S311 - for jitter
forks.at_beginning(_CHANCE.seed)  # else all children would wait for the same pauses


class Moment(NamedTuple):
    """One moment by both clocks of a machine."""

    monotonic: float  # seconds
    wall_ms: int


def clocks_disagree(earlier: Moment, later: Moment) -> bool:
    """Return whether a machine's clocks disagree on the time between two moments.

    Then the machine was suspended, which stops one of them, or a clock was set.
    """
    passed_ms = (later.monotonic - earlier.monotonic) * 1000
    return abs(later.wall_ms - earlier.wall_ms - passed_ms) > CLOCKS_APART_MS_MAX


class Machine:
    """The machine's wall clock, its monotonic clock and its entropy."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """Seconds on a clock that never goes back; only differences mean something."""

    def moment(self) -> Moment:
        """Now, by both clocks."""
        return Moment(self.monotonic(), self.now_ms())

    def ms_since(self, moment: Moment) -> float:
        """How long ago that was, by the clock that says more: each may have stood still, or have been set back."""
        return max((self.monotonic() - moment.monotonic) * 1000, self.now_ms() - moment.wall_ms)

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)

    def uniform(self) -> float:
        """A number in [0, 1), for jitter and for choices that need no secrecy."""
        return _CHANCE.random()

    def bits(self, count: int) -> int:
        """``count`` unpredictable bits (a multiple of 8), fit for identities and lease tokens."""
        return int.from_bytes(os.urandom(count // 8), "big")

    def process(self) -> int:
        """Which process this is; different in a fork's child."""
        return forks.process()

    def host(self) -> str:
        """The machine's name."""
        return _HOST

    def name(self) -> str:
        """A name for this process that a person can find: host and process id."""
        return f"{_HOST}-{forks.process()}"


MACHINE = Machine()


class IdleTime:
    """The time between two uses of something, by both clocks of a machine."""

    def __init__(self, machine: Machine = MACHINE) -> None:
        self._machine = machine
        self._used = machine.moment()

    def use(self) -> float:
        """Note a use and return the milliseconds since the one before it, or since this object was made."""
        since, self._used = self._used, self._machine.moment()
        return self._machine.ms_since(since)
