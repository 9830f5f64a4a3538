"""Logs: a line of JSON for each request that did something. Of ids, numbers and codes, never of contents."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from aws_lambda_powertools import Logger

from ..clock import Machine
from ..server.app import ApiResponse

_IDLE = {"claim", "turn", "health", "heartbeat"}  # of no interest where no job was in it
FAULTS_OF_OURS = 500


class RequestLog:
    """The log of one function."""

    def __init__(self, machine: Machine) -> None:
        self.logger = Logger()
        self.machine = machine
        library = logging.getLogger("osqueue")  # what the library logs gets the same form
        library.handlers = [self.logger.registered_handler]
        library.setLevel(self.logger.log_level)
        library.propagate = False

    def begin(self, correlation_id: str) -> None:
        """A new invocation: all that is logged in its context has this id, and no other invocation's."""
        self.logger.thread_safe_append_keys(correlation_id=correlation_id)

    @property
    def writing(self) -> AbstractContextManager[Any]:
        """Held while lines of another kind are printed, so that none of them comes into the middle of one of these."""
        lock = self.logger.registered_handler.lock
        return nullcontext() if lock is None else lock

    def request(self, response: ApiResponse, seconds: float, requests: Mapping[str, int]) -> None:
        """Tell of a request that was answered, and how many of which kind the store was sent for it."""
        notes = response.notes
        level = logging.INFO
        if response.status >= FAULTS_OF_OURS:
            level = logging.ERROR if response.code == "internal" else logging.WARNING
        elif notes.get("operation") in _IDLE and not notes.get("job_count"):
            level = logging.DEBUG
        if level < self.logger.log_level:
            return
        told = {
            "status": response.status,
            "ms": round(seconds * 1000, 1),
            "requests": dict(requests),
            **notes,
        }
        if response.code:
            told["code"] = response.code
        says = {
            logging.DEBUG: self.logger.debug,
            logging.INFO: self.logger.info,
            logging.WARNING: self.logger.warning,
        }
        says.get(level, self.logger.error)(notes.get("operation", "no route"), extra=told)

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
