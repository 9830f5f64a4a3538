"""A worker's word to the registry: that it is there, how much it has in hand, that it drains; and that it ends.

It has nothing to do with jobs and leases. The first word comes a moment after the start, so a run that is over at once
says nothing, and costs nothing. Where the word does not get through the work goes on, and it is said again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from typing import Any

from .. import limits
from ..commit.retry import WORD
from ..model.worker import WorkerEntry
from .heartbeats import FlowRunner
from .outcomes import log_text

FIRST_SECONDS = 1.0  # from the start to the first word
EVERY_SECONDS = 60.0  # from one word to the next
ID_BITS = 64

log = logging.getLogger("osqueue.worker")


class WorkerRegistration:
    """The entry of one worker in its queue's registry."""

    def __init__(
        self, queue: Any, name: str | None, concurrency: int, running: Collection[Any], call: FlowRunner
    ) -> None:
        self._flows = queue._flows
        self._machine = queue.machine
        self._name = name or self._machine.name()
        self._concurrency = concurrency
        kinds = queue.handlers.kinds
        self._kinds = None if kinds is None else list(kinds[: limits.WORKER_KINDS_TOLD_MAX])
        self._running = running  # jobs in hand
        self._call = call
        self._news = asyncio.Event()
        self._draining = self._ending = False
        self._told = False  # may there be an entry?
        self._failures = 0  # in a row: no queue, or no answer
        self._complained = False

    async def run(self) -> None:
        """Say it again and again until ``end``; then take it back."""
        began = self._machine.monotonic()
        entry_id = f"{self._machine.bits(ID_BITS):016x}"
        pause = FIRST_SECONDS
        while not await self._ends_within(pause):
            if await self._say(entry_id, self._machine.monotonic() - began):
                pause, self._failures = EVERY_SECONDS, 0
            else:
                self._failures += 1
                pause = WORD.pause_after(self._failures)
        if self._told:
            try:
                await self._call(self._flows.delete_worker(entry_id))
            except Exception as error:  # noqa: BLE001 - whatever the store does, the worker ends
                log.info("the worker's entry stays, and will be shown as lost (%s)", log_text(error))

    def drain(self) -> None:
        """It claims no more. Said at once only where jobs are in hand: else it ends at once."""
        self._draining = True
        if self._told and self._running:
            self._news.set()

    def end(self) -> None:
        """It has nothing in hand any more."""
        self._ending = True
        self._news.set()

    async def _ends_within(self, seconds: float) -> bool:
        """Wait for the next word's time, or for news; does the worker end?"""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        return self._ending

    async def _say(self, entry_id: str, uptime: float) -> bool:
        """Say it once; was it put down?"""
        entry = WorkerEntry(
            name=self._name,
            host=self._machine.host(),
            pid=self._machine.process(),
            version=_version(),
            concurrency=self._concurrency,
            busy=len(self._running),
            kinds=self._kinds,
            draining=self._draining,
            uptime=uptime,
            every=EVERY_SECONDS,
        )
        self._told = True  # perhaps: the answer may be lost
        try:
            there: bool = await self._call(self._flows.put_worker(entry_id, entry))
        except Exception as error:  # noqa: BLE001 - whatever the store does, the worker goes on
            if not self._complained:
                log.warning("the worker cannot say that it is there (%s); it works on", log_text(error))
            self._complained = True
            return False
        if self._complained:
            log.warning("the worker can say again that it is there")
        self._told, self._complained = there, False
        return there


def _version() -> str:
    from .. import __version__  # here, because it is not there yet while the package is loaded

    return __version__
