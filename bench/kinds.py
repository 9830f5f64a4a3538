"""What it takes to find one job behind a million others: of a rare kind, of another group, and of many in turn.

Jobs lie as bulks put them. A request is a read or a write of the store, in memory, so that their number and the
library's own time are what is measured; the process that claims has seen nothing before.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from bench.row import BenchOptions, Figure, at_most, ratio
from osqueue import Queue
from osqueue.stores.base import StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

JOBS = 1_000_000
KINDS = 5_000
CLAIM_SECONDS = 1.0
GROUP_SECONDS = 2.0
REQUESTS = 10
HELD = 1_000  # groups that wait for a job of theirs
CLAIMS = 200
TENANTS = 1_000  # behind one that has all but a few of the jobs


class RequestCount(WrappedStore):
    """How often the store was asked."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner)
        self.requests = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        self.requests += 1
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


def run(options: BenchOptions) -> Iterator[Figure]:
    jobs = max(KINDS, round(JOBS * options.scale))
    yield from first_of(
        "a rare kind", "rare", jobs, [{"kind": f"kind-{at}"} for at in range(KINDS)], {"kind": "rare"}
    )
    yield from first_of("another group", None, jobs, [{"group": "large"}], {"group": "small"})
    yield from with_held_groups(options)
    yield from in_turn(jobs, options)


def first_of(
    what: str, kind: str | None, jobs: int, others: list[dict[str, str]], last: dict[str, str]
) -> Iterator[Figure]:
    """Claim the last one of so many."""
    store = MemoryStore()
    queue: Queue[Any] = Queue(store, "q")
    queue.enqueue_many({"payload": at, **others[at % len(others)]} for at in range(jobs))
    queue.enqueue("last", **last)  # type: ignore[arg-type]
    if kind is None:
        queue.claim(1)  # one of the large group runs
    counted = RequestCount(store)
    fresh: Queue[Any] = Queue(counted, "q")
    began = perf_counter()
    (lease,) = fresh.claim(1, kinds=None if kind is None else [kind])
    took = perf_counter() - began
    if lease.payload != "last":
        raise AssertionError("another job was claimed")
    goal = CLAIM_SECONDS if kind else GROUP_SECONDS
    yield at_most(f"{jobs:,} jobs before the first of {what}: its claim", took, goal, "s")
    yield at_most(f"{jobs:,} jobs before the first of {what}: requests", counted.requests, REQUESTS, "")


def with_held_groups(options: BenchOptions) -> Iterator[Figure]:
    """Claims of a head that has many groups waiting, and of one that has none."""
    seconds = {0: 0.0, HELD: 0.0}
    for turn in range(max(2, round(6 * options.rounds * options.scale))):
        for held in sorted(seconds, reverse=bool(turn % 2)):
            queue: Queue[Any] = Queue(MemoryStore(), "q")
            queue.enqueue_many([{"payload": at, "group": f"g{at}"} for at in range(CLAIMS)])
            queue.configure(groups={f"held-{at}": {"paused": True} for at in range(held - 1)})
            began = perf_counter()
            for _ in range(CLAIMS):
                queue.complete_many(queue.claim())
            seconds[held] += perf_counter() - began
    yield at_most(f"claims with {HELD:,} groups that wait, over none", ratio(seconds[HELD], seconds[0]), 1.3)


def in_turn(jobs: int, options: BenchOptions) -> Iterator[Figure]:
    """One tenant has a million jobs, and behind them a thousand have two each; claims of one, fair and not."""
    seconds = {False: 0.0, True: 0.0}
    requests = 0
    served: list[str] = []
    turns = TENANTS + 1
    for fair in (False, True):
        store = MemoryStore()
        queue: Queue[Any] = Queue(store, "q")
        queue.configure(fair=fair, group_running=0)
        queue.enqueue_many({"payload": at, "group": "large"} for at in range(jobs))
        queue.enqueue_many({"payload": at, "group": f"small-{at % TENANTS}"} for at in range(2 * TENANTS))
        counted = RequestCount(store)
        fresh: Queue[Any] = Queue(counted, "q")
        fresh.complete_many(fresh.claim())
        counted.requests = 0
        for _ in range(turns):
            began = perf_counter()
            (lease,) = fresh.claim()
            seconds[fair] += perf_counter() - began
            if fair:
                served.append(lease.group or "")
            lease.complete()
        if fair:
            requests = counted.requests
    name = f"{TENANTS:,} tenants behind {jobs:,} jobs of one"
    yield Figure(f"{name}: served in the first {turns:,} starts", len(set(served)), "", "all: 1,001")
    yield Figure(f"{name}: requests a start and its end", requests / turns, "")
    yield Figure(f"{name}: a fair claim over one in order", ratio(seconds[True], seconds[False]), "x")
