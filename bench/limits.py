"""What a running limit costs: claim and complete in tens by one caller, limits on and off in turn, 200 jobs in flight.

Memory store, so that nothing but the library takes time. The limits are wide: what is measured is that they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from bench.row import BenchOptions, Figure, at_least, ratio
from osqueue import Queue
from osqueue.model.settings import Kind
from osqueue.stores.memory import MemoryStore

JOBS = 2_000  # that wait at the beginning of a round
HELD = 200
BATCH = 10
WITH_LIMIT = 0.95
WIDE = 100_000
SIDES: dict[str, dict[str, Any]] = {
    "no limit": {},
    "of the queue": {"max_running": WIDE},
    "of two kinds": {"kinds": {"mail": Kind(max_running=WIDE), "other": Kind(max_running=WIDE)}},
}


def run(options: BenchOptions) -> Iterator[Figure]:
    seconds = dict.fromkeys(SIDES, 0.0)
    for _ in range(max(2, round(10 * options.rounds * options.scale))):
        for side, settings in SIDES.items():
            seconds[side] += work(settings)
    for side, took in seconds.items():
        rate = ratio(seconds["no limit"], took)
        yield Figure(f"limit {side}", took * 1000, "ms")
        if side != "no limit":
            yield at_least(f"limit {side}, jobs an hour over none", rate, WITH_LIMIT)


def work(settings: dict[str, Any]) -> float:
    """Seconds to work off a queue."""
    queue: Queue[Any] = Queue(MemoryStore(), "mail")
    queue.configure(backoff_base=2.0, **settings)
    queue.enqueue_many([{"payload": at, "kind": "mail"} for at in range(JOBS + HELD)])
    queue.claim(HELD)
    began = perf_counter()
    done = 0
    while done < JOBS:
        leases = queue.claim(BATCH)
        queue.complete_many(leases)
        done += len(leases)
    return perf_counter() - began
