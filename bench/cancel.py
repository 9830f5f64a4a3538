"""What it costs to cancel one of 1,000, 100,000 and 1,000,000 waiting jobs: requests and bytes, 200 cancels in a row.

Memory store; the jobs came in one bulk and are cancelled all over its second half. Queued jobs stand in the order of
their keys; delayed ones stand by due time, in any order of keys, so each of their segments has to be asked for a job.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bench.row import BenchOptions, Figure, at_most, ratio
from osqueue import Queue
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore

DEPTHS = (1_000, 100_000, 1_000_000)
CANCELS = 200
DEEP_OVER_SHALLOW = 1.3  # the two deeper queues: in the shallow one most jobs lie in the head itself
KB = 1024
WORST_READ_KB = 512
DELAY_SECONDS = (60, 100_000)


class Cost(Struct, frozen=True):
    """Of some cancels, each."""

    requests: list[int]
    read: list[int]  # bytes
    written: list[int]


def run(options: BenchOptions) -> Iterator[Figure]:
    depths = [max(DEPTHS[0], int(depth * options.scale)) for depth in DEPTHS]
    for state, late in (("queued", False), ("delayed", True)):
        costs = {depth: cancels(depth, late) for depth in depths}
        for depth, cost in costs.items():
            worst = f"the worst one: {max(cost.requests)}, {size(max(cost.read))}, {size(max(cost.written))}"
            what = f"one of {depth:,} {state} jobs"
            yield Figure(f"{what}, requests", mean(cost.requests), "requests", note=worst)
            yield Figure(f"{what}, read", mean(cost.read) / KB, "KB")
            yield Figure(f"{what}, written", mean(cost.written) / KB, "KB")
        deep, shallow = costs[depths[2]], costs[depths[1]]
        if not late:
            over = ratio(mean(deep.read) + mean(deep.written), mean(shallow.read) + mean(shallow.written))
            yield at_most(f"{state}, bytes, {depths[2]:,} over {depths[1]:,}", over, DEEP_OVER_SHALLOW)
        yield at_most(
            f"{state}, {depths[2]:,}, the worst one, read", max(deep.read) / KB, WORST_READ_KB, "KB"
        )


def cancels(depth: int, late: bool) -> Cost:
    """Cancel jobs of one bulk, one by one."""
    store = CountingStore(MemoryStore())
    queue: Queue[Any] = Queue(store, "emails")
    chance = random.Random(depth)
    jobs = [
        {"payload": at, **({"delay": chance.uniform(*DELAY_SECONDS)} if late else {})} for at in range(depth)
    ]
    told = queue.enqueue_many(jobs)
    cost = Cost([], [], [])
    for at in chance.sample(range(depth // 2, depth), CANCELS):
        before = sum(store.requests.values()), store.bytes_read, store.bytes_written
        if queue.cancel(str(told[at].job_id)) != "cancelled":
            raise RuntimeError("a waiting job could not be cancelled")
        after = sum(store.requests.values()), store.bytes_read, store.bytes_written
        for figures, old, new in zip((cost.requests, cost.read, cost.written), before, after, strict=True):
            figures.append(new - old)
    return cost


def mean(figures: list[int]) -> float:
    return sum(figures) / len(figures)


def size(count: int) -> str:
    return f"{count / KB:,.0f} KB"
