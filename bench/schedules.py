"""What schedules cost: a queue with a hundred of them against one without, and to tell the next times of all.

Claim and complete in tens by one caller, in memory, so that nothing but the library takes time. None is due meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from bench.row import BenchOptions, Figure, at_least, at_most, ratio
from osqueue import Queue
from osqueue.core.encoding import encode_head
from osqueue.core.scheduling import schedule_weight
from osqueue.crontab import ticks
from osqueue.limits import DAY_MS, SCHEDULES_BYTES_MAX
from osqueue.stores.memory import MemoryStore

COUNT = 100
JOBS = 2_000
BATCH = 10
WITH_SCHEDULES = 0.9


def run(options: BenchOptions) -> Iterator[Figure]:
    took = {0: 0.0, COUNT: 0.0}
    for turn in range(max(2, round(10 * options.rounds * options.scale))):
        for count in sorted(took, reverse=bool(turn % 2)):
            took[count] += work(count)
    yield at_least(f"{COUNT} schedules, jobs an hour over none", ratio(took[0], took[COUNT]), WITH_SCHEDULES)
    state = queue_with(COUNT)._writers[0].head.state  # type: ignore[union-attr]
    size = len(encode_head(state))
    yield Figure(f"head of {COUNT} schedules", size / 1024, "KB")
    weight = sum(map(schedule_weight, state.schedules))
    yield at_most("their share of the budget", weight / SCHEDULES_BYTES_MAX, 1.0)
    began = perf_counter()
    for row in state.schedules:
        ticks(row.cron, row.zone, 0, row.last_ms, row.last_ms + DAY_MS, 1)
    yield Figure("next times of all of them", (perf_counter() - began) * 1000, "ms")


def queue_with(count: int) -> Queue[Any]:
    """A queue with so many schedules."""
    queue: Queue[Any] = Queue(MemoryStore(), "mail")
    queue.enqueue(0)
    queue.claim()
    for at in range(count):
        queue.schedule(f"s{at:02}", f"{at % 60} 3 * * *", at, tz="Europe/Berlin")
    return queue


def work(count: int) -> float:
    """Seconds to work off a queue."""
    queue = queue_with(count)
    queue.enqueue_many([{"payload": at} for at in range(JOBS)])
    began = perf_counter()
    done = 0
    while done < JOBS:
        leases = queue.claim(BATCH)
        queue.complete_many(leases)
        done += len(leases)
    return perf_counter() - began
