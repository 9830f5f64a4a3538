"""The writer of a pacer's head: one who tells the time more closely, since nothing there ends by it.

A queue's time is the earliest that the store's clock may show, so that no lease ends early. On S3, which tells whole
seconds, that of two machines may be a second apart. Slots are for many machines, so here the machine's own wall clock
counts, as far as the store's clock, measured, does not say otherwise. Machines with a time service then agree to
milliseconds, and one whose clock is wrong is off by a second and a request at most.
"""

from __future__ import annotations

from typing import Any

from ..core.state import State
from ..errors import Unknown
from .writer import CLOCK_DRIFT_MAX, ShardWriter


class PacerWriter(ShardWriter):
    """The memory of one writer of a pacer between its commits."""

    def __init__(self, root: str, pacer: str, *more: Any) -> None:
        super().__init__(root, pacer, *more)
        self.observed = False  # no job has its transitions here

    def time_ms(self) -> int | None:
        """What the store's clock shows, as well as this machine can tell; None: it was not measured yet."""
        earliest, measured = self.earliest_ms(), self.measured
        if earliest is None or measured is None or self.store_clock() is not None:
            return earliest
        passed_ms = (self.machine.monotonic() - measured.since.monotonic) * 1000
        latest = measured.store_ms + self.tick_ms + int(passed_ms * (1 + CLOCK_DRIFT_MAX))
        return min(max(self.machine.now_ms(), earliest), latest)

    def now_ms(self, state: State) -> int:
        """The time of a commit on this head. Without a measurement time stands still."""
        now = self.time_ms()
        return state.now_ms if now is None else max(now, state.now_ms)

    def gone(self) -> Unknown:
        """The error of a call whose head is not there any more."""
        return Unknown(
            f"pacer {self.queue}: its head is gone, with everything that was reserved. Stop those who use it, then"
            f" make it again: 'osqueue pacer create ADDRESS {self.queue} --interval …'."
        )
