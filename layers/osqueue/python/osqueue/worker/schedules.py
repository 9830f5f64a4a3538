"""The schedules of a worker's handlers: added when it starts, and again until the queue answers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..errors import OsqueueError, Rejected
from .heartbeats import FlowRunner

AGAIN_SECONDS = 10.0  # after which a queue that did not answer is asked again

log = logging.getLogger("osqueue.worker")


async def add_schedules(queue: Any, call: FlowRunner) -> None:
    """Add what the handlers wish for. What is there already, in the same words, is left as it is."""
    for wish in queue.handlers.schedules:
        name, failed = wish["name"], False
        while True:
            try:
                await call(queue._steering.schedule(**wish))
            except Rejected as error:
                log.error("schedule %s: it was rejected: %s", name, error)
            except OsqueueError as error:
                if not failed:
                    log.warning("schedule %s: it could not be added yet: %s", name, error)
                failed = True
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            break
