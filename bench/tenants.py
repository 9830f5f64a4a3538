"""Many queues in one process: GETs a second while nothing happens, and how soon a job starts, with and without news.

One process waits at all queues of an address on S3, in virtual time. Another one enqueues a job into one of them, a
minute after the last. "Without news" each head is looked at once in each poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from msgspec import Struct

from bench.contention import decoded_once
from bench.embedded_wake import percentile
from bench.few_writers import DOLLARS
from bench.row import BenchOptions, Figure, at_most, ratio
from osqueue.operations.waiting import WaitFlows
from osqueue.queue.asynchronous import AsyncQueue
from osqueue.stores.base import StoreRequest
from osqueue.stores.wrapped import PerformingStore
from simulation.conditions import Clients, Profile
from simulation.resting import RestingRun

QUEUES = (1, 40, 200)
JOBS = 60
JOBS_MIN = 5
WARM_SECONDS = 90.0
IDLE_SECONDS = 300.0
PAUSE_SECONDS = 60.0  # between two jobs
GETS_MAX = 2.0  # a second
OVER_LOOKS = 1.3  # the wake-up with news over the one without
ENQUEUE_OVER = (
    1.15  # an enqueue that writes news over one that does not: the slower one of two writes at once
)
MONTH_SECONDS = 730 * 3_600


class TenantTally(Struct, frozen=True):
    """What one run came to."""

    gets: float  # a second, of the idle process
    dollars: float  # a month, for them
    waits: list[float]  # seconds from the call of each enqueue to the claim of its job
    enqueues: list[float]  # seconds that each enqueue took
    writes: int  # of the news


def run(options: BenchOptions) -> Iterator[Figure]:
    jobs = max(JOBS_MIN, round(JOBS * options.scale))
    with decoded_once():
        for count in QUEUES:
            with patch.object(WaitFlows, "news_board", lambda *_: None):
                before = measured(count, jobs)
            after = measured(count, jobs)
            note = (
                f"{before.gets:.2f} without news; ${after.dollars:.2f} a month, ${before.dollars:.2f} without"
            )
            yield at_most(f"{count} queues, GETs while idle", after.gets, GETS_MAX, "a second", note)
            for percent in (50, 99):
                new, old = percentile(after.waits, percent), percentile(before.waits, percent)
                note = f"{new:.2f} s, {old:.2f} s without news; {after.writes} writes of it for {jobs} jobs"
                yield at_most(
                    f"{count} queues, job starts, p{percent}", ratio(new, old), OVER_LOOKS, "x", note
                )
            new, old = percentile(after.enqueues, 50), percentile(before.enqueues, 50)
            note = f"{new * 1_000:.0f} ms, {old * 1_000:.0f} ms without news"
            yield at_most(
                f"{count} queues, an enqueue that ends a rest, p50", ratio(new, old), 1.1, "x", note
            )


class Tenants(RestingRun):
    """One producer with long pauses, and a process that waits at all queues."""

    def __init__(self, count: int, jobs: int) -> None:
        super().__init__(1, Profile("tenants", clients=Clients(resting=count)))
        self.jobs = jobs
        self.warm_at = float("inf")
        self.waits: list[float] = []
        self.enqueues: list[float] = []

    def watch(self, request: StoreRequest, key: str, body: bytes) -> None:
        before = dict(self.claimable)
        super().watch(request, key, body)
        self.waits += [self.world.now - before[each] for each in before.keys() - self.claimable.keys()]

    async def visit(self, store: PerformingStore, machine: Any) -> None:
        """Use each queue once, be silent for a time, then enqueue one job after the other."""
        queues = [AsyncQueue[Any](store, name, machine=machine) for name in self.queues]
        for queue in queues:
            await queue.enqueue(0)
        self.warm_at = self.world.now
        await asyncio.sleep(WARM_SECONDS + IDLE_SECONDS)
        self.waits.clear()
        for _ in range(self.jobs):
            began = self.world.now
            await self.dice.choice(queues).enqueue(1)
            self.enqueues.append(self.world.now - began)
            await asyncio.sleep(PAUSE_SECONDS * (0.5 + self.dice.random()))


def measured(count: int, jobs: int) -> TenantTally:
    """Measure a process that waits at some queues."""
    side = Tenants(count, jobs)
    side.enter("worker", side.wait_at_all)
    side.enter("producer", side.visit)
    begin = WARM_SECONDS + count  # the producer uses each queue once in less than a second
    side.world.run(lambda: side.world.now > side.warm_at + WARM_SECONDS, begin * 2)
    gets, written, began = side.network.requests["Get"], side.asked["news"], side.world.now
    side.world.run(lambda: False, IDLE_SECONDS - 10.0)
    gets_second = (side.network.requests["Get"] - gets) / (side.world.now - began)
    side.world.run(
        lambda: len(side.waits) == jobs and len(side.enqueues) == jobs, (jobs + 2) * 2 * PAUSE_SECONDS
    )
    dollars = gets_second * MONTH_SECONDS * DOLLARS["Get"]
    return TenantTally(gets_second, dollars, side.waits, side.enqueues, side.asked["news"] - written)
