"""The schedule: functions that have one are invoked again and again, one invocation after the other."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

from ..clock import MACHINE
from .invocation import Invocation
from .log import ProcessLog
from .pool import NoInstance, Pool

SOURCE = "osqueue.schedule"


def schedule_event(now_ms: int) -> bytes:
    """What a function gets from the schedule."""
    at = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({"source": SOURCE, "scheduled_at": at}).encode()


class InvocationSchedule:
    """Invokes one function every so many seconds. While an invocation runs there is no other."""

    def __init__(self, pool: Pool, seconds: float, log: ProcessLog) -> None:
        self._pool = pool
        self._seconds = seconds
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, name=f"{pool.function.name} schedule", daemon=True)

    def start(self) -> None:
        """Begin; the first invocation comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Invoke it no more."""
        self._stop.set()

    def _tick(self) -> None:
        name = self._pool.function.name
        while not self._stop.wait(self._seconds):
            invocation = Invocation(schedule_event(MACHINE.now_ms()))
            try:
                self._pool.invoke(invocation)
            except NoInstance:
                self._log.write("stack", f"{name}: no free instance for the schedule; it comes again")
                continue
            outcome = invocation.wait()
            if outcome.failed and not self._stop.is_set():
                self._log.write(
                    "stack", f"{name}: the schedule's invocation failed: {outcome.payload.decode()}"
                )
