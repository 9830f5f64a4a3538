"""Time that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import datetime
from typing import Any

from .. import limits
from ..clock import MACHINE, Machine
from ..commit.async_group import AsyncDriver
from ..commit.effects import Effect, Sleep
from ..errors import Rejected
from ..model import validation
from ..model.fields import moment

GOLDEN = 0.6180339887498949  # its multiples, modulo 1, are spread evenly


class Clock(Machine):
    """A machine whose time stands still until it is told to move: ``clock.advance(60)``.

    It begins at ``start`` (an aware datetime), by default at the real time, so that ``at=`` keeps its sense.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._start_ms = (
            MACHINE.now_ms() if start is None else validation.moment_ms(start, "start", limits.AT_MS_MAX)
        )
        self._passed = 0.0  # seconds
        self._draws = 0
        self._lock = threading.Lock()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if not 0 <= seconds < math.inf:
            raise Rejected("seconds: time does not go back, and does not end.", field="seconds")
        with self._lock:
            self._passed += seconds

    @property
    def now(self) -> datetime:
        """The time it shows."""
        return moment(self.now_ms())

    def now_ms(self) -> int:
        """The time it shows, milliseconds since the Unix epoch."""
        return self._start_ms + round(self._passed * 1000)

    def monotonic(self) -> float:
        """Seconds that have passed."""
        return self._passed

    def sleep(self, seconds: float) -> None:
        """Time passes, and nobody waits."""
        self.advance(seconds)

    def uniform(self) -> float:
        """The same numbers in every run: jitter does not make a test flicker."""
        with self._lock:
            self._draws += 1
            return self._draws * GOLDEN % 1

    def name(self) -> str:
        """Who claims."""
        return "test"


class VirtualDriver(AsyncDriver):
    """Sleeps by moving the clock."""

    async def perform(self, effect: Effect, deadline: float = math.inf) -> Any:
        if isinstance(effect, Sleep):
            self.machine.sleep(effect.seconds)
            return await asyncio.sleep(0)
        return await super().perform(effect, deadline)
