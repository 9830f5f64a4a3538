"""Bursts of functions that have just begun, in virtual time on S3's latencies: is every call served?

Each function is a separate writer, and its first call has to read the head and the store's clock. A call may take as
long as a function behind API Gateway. The fleet uses 64 shards and deals its calls among them. Shards share nothing, so
the benchmark simulates one shard, with every call that would reach it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from bench.contention import decoded_once
from bench.few_writers import DOLLARS
from bench.row import BenchOptions, Figure, at_most
from osqueue.commit.effects import Flow, Sleep
from osqueue.commit.protocol import commit
from osqueue.commit.writer import ShardWriter
from osqueue.core.job_ops import EnqueueJobs, JobSpec
from osqueue.errors import OsqueueError
from simulation.conditions import S3, Faults
from simulation.machine import VirtualMachine, source
from simulation.network import Network
from simulation.truth import Truth
from simulation.world import Process, World

CALL_SECONDS_MAX = 28.0  # of a function behind API Gateway
WITHIN_SECONDS = 10.0  # in which all calls of a burst begin
BURSTS = {"1,100 functions": 1_100, "2,500 functions": 2_500}  # new ones, on one shard
FUNCTIONS, SHARDS = 10_000, 64  # of the fleet
FLEET_SECONDS, BURST_EVERY_SECONDS = 600.0, 60.0
CALLS = 4  # of each function in each burst


class BurstTally(Struct, frozen=True):
    """What became of the calls."""

    waits: tuple[float, ...]  # seconds, in order
    failed: int  # calls that raised an error
    seconds: float  # from the first call to the last result
    requests: float  # for each call that was served
    dollars: float  # of requests, per million of them

    def wait(self, share: float) -> float:
        """Return how long a share of the calls waited at most, in seconds."""
        return self.waits[min(len(self.waits) - 1, int(len(self.waits) * share))]

    @property
    def story(self) -> str:
        rate = len(self.waits) / self.seconds
        waits = f"p50 {self.wait(0.5):.2f} s, p99 {self.wait(0.99):.2f} s, longest {self.waits[-1]:.2f} s"
        return f"{rate:,.0f} calls/s, {waits}, {self.requests:.1f} requests each, ${self.dollars:.1f} per million"


def run(options: BenchOptions) -> Iterator[Figure]:
    with decoded_once():
        for name, functions in BURSTS.items():
            found = burst({at: [0.0] for at in range(int(functions * min(1.0, options.scale)))})
            yield at_most(
                f"{name} within {WITHIN_SECONDS:.0f} s, not served", found.failed, 0, "calls", found.story
            )
        found = burst(fleet(FLEET_SECONDS * options.scale))
        name = f"{FUNCTIONS:,} functions on {SHARDS} shards, not served"
        yield at_most(name, found.failed, 0, "calls", f"one shard: {found.story}")


def fleet(seconds: float, seed: int = 1) -> dict[int, list[float]]:
    """Return when each function begins its calls to one of the shards: the starts of the bursts."""
    dice = source(seed, "fleet")
    calls: dict[int, list[float]] = {}
    for number in range(max(1, int(seconds / BURST_EVERY_SECONDS))):
        for function in range(FUNCTIONS):
            for _ in range(CALLS):
                if dice.random() < 1 / SHARDS:
                    calls.setdefault(function, []).append(number * BURST_EVERY_SECONDS)
    return calls


def burst(calls: dict[int, list[float]], seed: int = 1) -> BurstTally:
    """Let each function enqueue one job at a random moment after each of its times."""
    world = World(seed, Faults(), events_max=10**9)
    network = Network(world, Truth(world), S3)
    waits: list[float] = []
    failed: Counter[str] = Counter()
    latest = 0.0

    def program(machine: VirtualMachine, times: list[float]) -> Flow[None]:
        nonlocal latest
        writer = ShardWriter("bench/0/", "bench", machine)
        for begins in sorted(each + WITHIN_SECONDS * machine.uniform() for each in times):
            yield Sleep(max(0.0, begins - world.now))
            began = world.now
            key = machine.now_ms().to_bytes(6, "big") + machine.bits(80).to_bytes(10, "big")
            try:
                yield from commit(
                    writer, (EnqueueJobs((JobSpec(key, b"{}"),)),), machine.monotonic() + CALL_SECONDS_MAX
                )
            except OsqueueError as error:
                failed[error.code] += 1
            else:
                waits.append(world.now - began)
                latest = world.now

    for function, times in calls.items():
        machine = VirtualMachine(world, f"function {function}", seed)
        Process(world, network.send, program(machine, times)).start()
    total = sum(map(len, calls.values()))
    world.run(lambda: len(waits) + failed.total() == total, FLEET_SECONDS + 2 * CALL_SECONDS_MAX)
    served = max(1, len(waits))
    dollars = sum(DOLLARS[kind] * count for kind, count in network.requests.items())
    return BurstTally(
        tuple(sorted(waits)),
        failed.total(),
        latest,
        sum(network.requests.values()) / served,
        dollars / served * 1_000_000,
    )
