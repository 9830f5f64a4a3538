"""The log: of an invocation one line, with its request, what came of it and what was counted while it ran.

The line is JSON. It tells of ids, numbers and codes, never of contents, and it is one of metrics as well
(``metering.lines``), so these are searched beside what they count. What the library says by itself goes through
``logging`` to the runtime's handler, which writes JSON too where the function's log format says so.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from ..clock import Machine
from ..contract import functions, metrics
from ..errors import Rejected
from ..metering.lines import print_lines
from ..metering.store import InvocationCounts
from ..server.app import ApiResponse

_IDLE = {"claim", "turn", "health", "heartbeat"}  # of no interest where no job was in it
REFUSALS, FAULTS_OF_OURS = 400, 500  # statuses, from
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


# Where lines come from: the deployment, the invocation, and the request that it was made for. A process may serve
# several requests at once, each in a context of its own.
_ORIGIN: ContextVar[Mapping[str, str]] = ContextVar("osqueue_origin", default={})  # noqa: B039 - nobody writes it


class _OriginFilter(logging.Filter):
    """Says on lines of ``logging`` where they come from."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.__dict__.update(_ORIGIN.get())
        return True


_FILTER = _OriginFilter()


class RequestLog:
    """The log of one function. Finds the handlers that the runtime has made by then. Raises Rejected."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._service = os.environ.get(functions.SERVICE) or "osqueue"
        self.logger = logging.getLogger("osqueue")
        self.logger.setLevel(_level())
        # The runtime lets everybody log as much as Lambda would take, and botocore would log what it signs.
        logging.getLogger().setLevel(logging.WARNING)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_FILTER)

    def begin(self, correlation_id: str, request_id: str) -> None:
        """A new invocation: all that is logged in its context has these ids, and no other invocation's."""
        # "requestId" is what Lambda calls it on its own lines.
        _ORIGIN.set(
            {metrics.SERVICE: self._service, "correlation_id": correlation_id, "requestId": request_id}
        )

    def request(self, counts: InvocationCounts, response: ApiResponse, seconds: float) -> None:
        """Note what a request was and what came of it, where the log's level wants to know."""
        notes = dict(response.notes)
        operation = notes.pop("operation", "no route")
        level = logging.INFO
        if response.status >= FAULTS_OF_OURS:
            level = logging.ERROR if response.code == "internal" else logging.WARNING
        elif response.status < REFUSALS and operation in _IDLE and not notes.get("job_count"):
            level = logging.DEBUG
        if not self.logger.isEnabledFor(level):
            return
        counts.told = {
            "level": logging.getLevelName(level),
            "message": operation,
            "status": response.status,
            "ms": round(seconds * 1000, 1),
            "requests": counts.requests,
            **notes,
        }
        if response.code:
            counts.told["code"] = response.code

    def end(self, counts: InvocationCounts) -> None:
        """Print what was noted and counted: the request's line, and one for each other queue; of nothing none."""
        now_ms, told = self._machine.now_ms(), counts.told or {}
        if told:
            told = {"timestamp": rfc3339(now_ms), **told, **_ORIGIN.get()}
        print_lines(counts, self._service, now_ms, told)

    def pass_over(self, queue: str, found: dict[str, Any]) -> None:
        """Tell of a reaper's pass over a queue in which there was something to do."""
        self.logger.info("reaped", extra={"queue": queue, **found})

    def trouble(self, queue: str, code: str, message: str) -> None:
        """Tell of a queue that upkeep could not be done for."""
        self.logger.error("upkeep failed", extra={"queue": queue, "code": code, "reason": message})

    def late(self, left: int) -> None:
        """Tell of a pass that had no time for all queues."""
        self.logger.warning(
            "upkeep ran out of time; the next pass begins elsewhere", extra={"queues_left": left}
        )


def _level() -> str:
    wished = os.environ.get(functions.LOG_LEVEL, "INFO")
    if wished.upper() not in LEVELS:
        raise Rejected(
            f"{functions.LOG_LEVEL}: {wished[:80]!r} is none of {', '.join(LEVELS)}.",
            field=functions.LOG_LEVEL,
        )
    return wished.upper()


def rfc3339(ms: int) -> str:
    """A time as Lambda wants it in a line that has a level; a line without one it takes for INFO."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ms // 1000))}.{ms % 1000:03d}Z"
