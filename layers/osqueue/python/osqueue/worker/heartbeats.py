"""Keeping the leases of the jobs in hand: heartbeats in one commit for all, and an end to trust in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from ..commit.effects import QueueFlow
from .job import WorkerJob
from .outcomes import log_text
from .reporter import ShardChoice, WorkerReporter

BEATS_PER_LEASE = 3
LEASE_MARGIN = 0.1  # of a lease: that long before its end the worker stops trusting it

log = logging.getLogger("osqueue.worker")
Running = Collection[WorkerJob[Any]]
FlowRunner = Callable[[QueueFlow[Any]], Coroutine[Any, Any, Any]]


async def keep_leases(running: Running, reporter: WorkerReporter, call: FlowRunner) -> None:
    """Beat for every job in hand at a third of its lease; give up those whose lease ends unheard. Never returns."""
    interval = reporter.lease / BEATS_PER_LEASE
    margin = reporter.lease * LEASE_MARGIN
    beating: dict[ShardChoice, asyncio.Task[None]] = {}
    again_at: dict[ShardChoice, float] = {}  # monotonic: no heartbeat before, as the last one may have failed
    unheard: set[ShardChoice] = set()  # where the last heartbeat failed
    while True:
        held = [job for job in running if not job.lease_lost]
        for job in held:
            if job.seconds_left <= margin:
                log.warning("job %s: its lease ends and no heartbeat got through", job.job_id)
                job.lease_lost.set()
        now = reporter.machine.monotonic()
        waits = [interval]
        for place in {reporter.place(job) for job in held}:
            here = [job for job in held if reporter.place(job) == place]
            free = place not in beating or beating[place].done()
            if free and now >= again_at.get(place, 0.0) and any(job.beat_age >= interval for job in here):
                # Those halfway to their own turn come along, so that all soon beat together.
                due = [job for job in here if job.beat_age >= interval / 2]
                beating[place] = asyncio.create_task(_beat(due, place, unheard, reporter, call))
                again_at[place] = now + interval / 4
            for job in here:
                waits.append(job.seconds_left - margin)
                waits.append(max(interval - job.beat_age, again_at.get(place, 0.0) - now))
        await asyncio.sleep(max(min(waits), interval / 20))


async def _beat(
    jobs: list[WorkerJob[Any]],
    place: ShardChoice,
    unheard: set[ShardChoice],
    reporter: WorkerReporter,
    call: FlowRunner,
) -> None:
    try:
        lost = await call(reporter.beat(jobs))
    except Exception as error:  # noqa: BLE001 - whatever the store does, the worker goes on
        log.warning("a heartbeat of %d jobs failed (%s)", len(jobs), log_text(error))
        unheard.add(place)
        return
    if place in unheard:
        unheard.remove(place)
        log.warning("heartbeats get through again")
    for job in lost:
        job.lease_lost.set()  # to no effect on one that ended meanwhile, which is why it lost
