"""What limits cost, and what a rate gives.

What they cost: claim and complete in tens by one caller, limits on and off in turn, 200 jobs in flight. Memory store,
so that nothing but the library takes time. The limits are wide: what is measured is that they are asked.

What a rate gives: 50 starts a second over 8 shards of one folder, claimed by 8 processes that do nothing else. One
machine has one clock, by which the heads tell when each job started.

What a limiter gives beside that: the same rate where nearly all jobs are in one shard, by processes whose clocks differ
by up to 0.4 s, once divided among the shards and once lent to them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

from bench.fleet import run_together
from bench.row import BenchOptions, Figure, at_least, at_most, ratio
from osqueue import Pacer, Queue
from osqueue.core.lending import LIFE_US_MIN
from osqueue.core.rates import burst_of
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
    "a rate": {"rate": (WIDE, 1)},
    "a rate of two kinds": {"kinds": {"mail": Kind(rate=(WIDE, 1)), "other": Kind(rate=(WIDE, 1))}},
    "ageing": {"ageing": 60},
}

RATE = 50
SHARDS = 8
PROCESSES = 8
DELAYS_MS = (0, 30)  # added to every request: the second stands for S3
GOAL_USED = 0.95
SKEWED_DELAY_MS = 30
LENT_BURST = 10  # of the limiter: a fifth of a second, in which a borrower may be late
SKEW_MS = 200  # by which the clocks of processes are wrong, at most, either way
WAY_S = 0.5  # that answers are on their way: starts are noted when they are heard of


def run(options: BenchOptions) -> Iterator[Figure]:
    seconds = dict.fromkeys(SIDES, 0.0)
    sides = list(SIDES)
    for turn in range(max(2, round(10 * options.rounds * options.scale))):
        for side in (*sides[turn % len(sides) :], *sides[: turn % len(sides)]):  # none is always the first
            seconds[side] += work(SIDES[side])
    for side, took in seconds.items():
        rate = ratio(seconds["no limit"], took)
        yield Figure(f"limit {side}", took * 1000, "ms")
        if side != "no limit":
            yield at_least(f"limit {side}, jobs an hour over none", rate, WITH_LIMIT)
    for delay_ms in DELAYS_MS:
        yield from paced(options, delay_ms)
    for side in ("divided", "lent"):
        yield from skewed(options, side)


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


def paced(options: BenchOptions, delay_ms: int) -> Iterator[Figure]:
    """A rate over shards, with more jobs than may start."""
    seconds = max(2.0, options.seconds)
    with tempfile.TemporaryDirectory(prefix="osqueue-bench-") as folder:
        queue: Queue[Any] = Queue.connect(f"file://{folder}?fsync=off", "calls")
        queue.configure(shards=SHARDS, rate=(RATE, 1))
        for at in range(SHARDS):
            queue.enqueue_many([{"payload": at} for at in range(round(RATE * (seconds + 10) / SHARDS) + 50)])
        address = f"file://{folder}?fsync=off&latency_ms={delay_ms}"
        worker = [sys.executable, "-m", "bench.limits_worker", address, "calls", str(seconds)]
        answers = run_together([worker] * PROCESSES)
    starts = sorted(start for answer in answers for start in answer["starts"])
    asked = sum(answer["requests"] for answer in answers)
    burst = max(burst_of((RATE, 1_000), 0), SHARDS)
    name = f"{RATE} a second over {SHARDS} shards, {delay_ms} ms a request"
    yield at_most(f"{name}: worst second", worst(starts, 1.0), RATE + burst, "starts", "goal: the bound")
    yield at_most(f"{name}: worst 5 s", worst(starts, 5.0), 5 * RATE + burst, "starts", "goal: the bound")
    there, beyond = seconds * RATE, len(starts) - burst
    yield at_least(
        f"{name}: used", beyond / there, GOAL_USED, "", f"{beyond} of {there:,.0f} beyond the burst"
    )
    yield Figure(f"{name}: requests a start", asked / max(1, len(starts)), "")


def skewed(options: BenchOptions, side: str) -> Iterator[Figure]:
    """The same rate where nearly all jobs are in one shard and clocks differ: shares, or slots of a limiter."""
    seconds = max(2.0, options.seconds)
    many, few = round(RATE * (seconds + 10)), round(RATE * seconds / SHARDS / 4)
    with tempfile.TemporaryDirectory(prefix="osqueue-bench-") as folder:
        queue: Queue[Any] = Queue.connect(f"file://{folder}?fsync=off", "calls")
        if side == "lent":
            with Pacer.connect(f"file://{folder}?fsync=off", "api") as pacer:
                pacer.create(1 / RATE, burst=LENT_BURST)
        queue.configure(shards=SHARDS, **({"limiter": "api"} if side == "lent" else {"rate": (RATE, 1)}))
        for at in range(SHARDS):
            queue.enqueue_many([{"payload": at} for at in range(few if at else many)])
        address = f"file://{folder}?fsync=off&latency_ms={SKEWED_DELAY_MS}"
        worker = [sys.executable, "-m", "bench.limits_worker", address, "calls", str(seconds), "--skew-ms"]
        skews = [SKEW_MS * (2 * at - PROCESSES + 1) // (PROCESSES - 1) for at in range(PROCESSES)]
        answers = run_together([[*worker, str(skew or 1)] for skew in skews])
    starts = sorted(start for answer in answers for start in answer["starts"])
    asked = sum(answer["requests"] for answer in answers)
    life_s = LIFE_US_MIN / 1e6 + 2 * SKEW_MS / 1000 + WAY_S
    over = round(RATE * life_s) + LENT_BURST if side == "lent" else RATE + SHARDS
    name = f"{RATE} a second, jobs in one shard of {SHARDS}, {side}"
    yield at_most(f"{name}: worst second", worst(starts, 1.0), RATE + over, "starts", "goal: the bound")
    yield at_most(f"{name}: worst 5 s", worst(starts, 5.0), 5 * RATE + over, "starts", "goal: the bound")
    there, beyond = seconds * RATE, len(starts) - (LENT_BURST if side == "lent" else 0)
    used = Figure(f"{name}: used", beyond / there, "", note=f"{beyond} of {there:,.0f}")
    lent_note = f"{used.note} beyond the burst"
    yield at_least(used.what, used.figure, GOAL_USED, "", lent_note) if side == "lent" else used
    yield Figure(f"{name}: requests a start", asked / max(1, len(starts)), "")


def worst(starts: Sequence[float], window_s: float) -> int:
    """The most starts in any window."""
    first = most = 0
    for last, at in enumerate(starts):
        while at - starts[first] >= window_s:
            first += 1
        most = max(most, last - first + 1)
    return most
