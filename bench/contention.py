"""Writers that collide on one shard, in virtual time: announce and combine against a compare-and-swap loop.

The real commit code runs in the simulator on S3's measured latencies, where one key takes at most 15
compare-and-swaps a second, on those of S3 Express, and on a store that takes one write a second of an object.
Each writer enqueues small jobs back to back. The loop is
what one writes without this library: GET, change, PUT If-Match, and on a refusal wait a random while ("full
jitter") and begin again. A third table lets every request take the same time, as in benchmarks with real
processes on a slowed store. The last tables are those of ``few_writers``: one to sixteen, with and without pauses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from bench.few_writers import Cell, CellTally, MakeWriter, WriterFlow, grid, tally
from bench.row import BenchOptions, Figure, at_least, at_most, ratio
from osqueue.commit import writer as writer_module
from osqueue.commit.effects import Effect, Flow, Sleep
from osqueue.commit.protocol import commit
from osqueue.commit.writer import ShardWriter
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.stores.base import Found, Get, PutIfAbsent, PutIfMatch, Written
from simulation.conditions import GCS, S3, S3_EXPRESS, Latency
from simulation.machine import VirtualMachine

# Same for every request; a swap flushes to disk at its end; nothing limits how many a key takes.
SLOWED = Latency(
    get=30,
    put=30,
    list=30,
    delete=30,
    swap_low=30,
    swap_high=35,
    swaps_per_second=0,
    sigma=0.05,
    parallel=True,
)
WRITERS = (1, 8, 64, 256)
GOALS = {64: 25.0, 256: 80.0}
P99_MS_MAX = 500.0
GAP_WRITERS = (1, 16, 64, 256)
GAP_REQUESTS_MAX = 5.0
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.05, 5.0


def run(options: BenchOptions) -> Iterator[Figure]:
    with decoded_once():
        yield from tables(max(2.0, 15.0 * options.scale))
        yield from grid(announce_and_combine, swap_loop, SLOWED, options.scale)


@contextmanager
def decoded_once() -> Iterator[None]:
    """Here all writers are in one process, so a head that many of them read need not be decoded by each."""
    name = "decode_head"
    before = getattr(writer_module, name)
    setattr(writer_module, name, lru_cache(maxsize=64)(before))
    try:
        yield
    finally:
        setattr(writer_module, name, before)


def tables(seconds: float) -> Iterator[Figure]:
    for title, latency in (("S3", S3), ("S3 Express", S3_EXPRESS)):
        ours = None
        for writers in WRITERS:
            loop = measure(writers, swap_loop, latency, seconds * 4)
            ours = measure(writers, announce_and_combine, latency, seconds)
            yield Figure(f"{title}, {writers} writers, CAS loop", loop.rate, "ops/s", note=loop.story)
            yield Figure(f"{title}, {writers} writers, osqueue", ours.rate, "ops/s", note=ours.story)
            if title == "S3" and writers in GOALS:
                yield at_least(
                    f"{title}, {writers} writers, over the loop", ratio(ours.rate, loop.rate), GOALS[writers]
                )
        if title == "S3" and ours is not None:
            yield at_most(f"{title}, {writers} writers, p99", ours.p99_ms, P99_MS_MAX, unit="ms")
    for writers in GAP_WRITERS:
        loop = measure(writers, swap_loop, GCS, seconds * 4)
        ours = measure(writers, keep_the_gap, GCS, seconds * 2)
        yield Figure(f"one write a second, {writers} writers, CAS loop", loop.rate, "ops/s", note=loop.story)
        yield Figure(f"one write a second, {writers} writers, osqueue", ours.rate, "ops/s", note=ours.story)
        yield at_most(
            f"one write a second, {writers} writers, requests each", ours.requests, GAP_REQUESTS_MAX
        )
    one, many = (measure(writers, announce_and_combine, SLOWED, seconds) for writers in (1, 32))
    yield Figure("30 ms each, 1 writer", one.rate, "ops/s", note=one.story)
    yield Figure("30 ms each, 32 writers", many.rate, "ops/s", note=many.story)
    yield at_least("30 ms each, 32 writers over 1", ratio(many.rate, one.rate), 6.0)


def measure(writers: int, make: MakeWriter, latency: Latency, seconds: float) -> CellTally:
    """Run writers without pauses for ``seconds`` of virtual time."""
    return tally(Cell(writers=writers), make, latency, seconds)


def announce_and_combine(machine: VirtualMachine, gap_s: float = 0.0) -> WriterFlow:
    """The real protocol: one small job per operation."""
    writer = ShardWriter("bench/0/", "bench", machine, swap_gap_s=gap_s)

    def operation(machine: VirtualMachine) -> Flow[None]:
        key = machine.now_ms().to_bytes(6, "big") + machine.bits(80).to_bytes(10, "big")
        yield from commit(writer, (EnqueueJobs((JobSpec(key, b"{}"),)),), machine.monotonic() + 60.0)

    return operation


def keep_the_gap(machine: VirtualMachine) -> WriterFlow:
    """The same where the store states a gap."""
    return announce_and_combine(machine, GCS.swap_gap_s)


def swap_loop(machine: VirtualMachine) -> WriterFlow:
    """Read, change, swap if nobody else did; else wait and begin again."""

    def operation(machine: VirtualMachine) -> Flow[None]:
        wait = BACKOFF_SECONDS_MIN
        while True:
            found: Any = yield Get("loop/head")
            body = machine.bits(64).to_bytes(8, "big")
            put: Effect = PutIfAbsent("loop/head", body)
            if isinstance(found, Found):
                put = PutIfMatch("loop/head", body, found.version)
            if isinstance((yield put), Written):
                return
            yield Sleep(wait * machine.uniform())
            wait = min(BACKOFF_SECONDS_MAX, wait * 2)

    return operation
