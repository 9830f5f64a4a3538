"""Few writers on one shard, and how many follow them, in virtual time: a part of ``bench contention``.

Most queues have a producer and a worker, or a few services that write now and then. A *closed* loop sends each writer's
next operation at once. *Paced* writers wait a random time (exponential) between two. Two plain loops run beside ours:
the one with full jitter of ``contention``, and the *warm* loop, the best one. It keeps the version that it wrote. After
a refusal it reads and tries again, from the second refusal on after a short random wait. It is fast because it is
unfair, as its longest waits show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from msgspec import Struct

from bench.row import Figure, at_least, at_most, ratio
from osqueue.commit.effects import Effect, Flow, Sleep
from osqueue.stores.base import Found, Get, PutIfAbsent, PutIfMatch, Written
from simulation.conditions import S3, S3_EXPRESS, Faults, Latency
from simulation.machine import VirtualMachine
from simulation.network import Network
from simulation.truth import Truth
from simulation.world import Process, World

DOLLARS = {"Put": 5e-6, "PutIfMatch": 5e-6, "PutIfAbsent": 5e-6, "List": 5e-6, "Get": 0.4e-6, "Delete": 0.0}
LOOP_WAIT_SECONDS = 0.02  # of the warm loop, for each refusal: a random part of it
SECONDS, SECONDS_PACED = 40.0, 300.0  # of virtual time, that a cell is measured
WARM_SECONDS, WARM_SECONDS_PACED = 3.0, 10.0  # before, in which the writers start
WriterFlow = Callable[[VirtualMachine], Flow[None]]
MakeWriter = Callable[[VirtualMachine], WriterFlow]


class Cell(Struct, frozen=True, kw_only=True):
    """Some writers, and the goals for what they do. 0: no goal."""

    writers: int
    mean_s: float = 0.0  # the pause between two operations of a writer; 0: none
    over_one: float = 0.0  # the rate, over that of one writer, at least
    rate: float = 0.0  # operations a second, at least
    dollars: float = 0.0  # per million operations, at most
    p99_ms: float = 0.0  # at most


CLOSED = (
    Cell(writers=1),
    Cell(writers=2, over_one=1.2, dollars=7.5, p99_ms=250),
    Cell(writers=3, over_one=1.6, dollars=7.5, p99_ms=250),
    Cell(writers=4, over_one=2.0, dollars=7.5, p99_ms=250),
    Cell(writers=6),
    Cell(writers=8, over_one=3.5, dollars=8, p99_ms=250),
    Cell(writers=16, over_one=6.6, dollars=8.5, p99_ms=250),
    Cell(writers=64, rate=400, dollars=8, p99_ms=300),
    Cell(writers=256, rate=1_600, dollars=7, p99_ms=300),
)
PACED = (
    Cell(writers=2, mean_s=1, dollars=6.5, p99_ms=250),
    Cell(writers=4, mean_s=1, dollars=7.5, p99_ms=400),
    Cell(writers=8, mean_s=2, dollars=7.8, p99_ms=400),
    Cell(writers=16, mean_s=8, dollars=7, p99_ms=300),
    Cell(writers=16, mean_s=2, dollars=10.5, p99_ms=400),
    Cell(writers=16, mean_s=1, dollars=15, p99_ms=500),
    Cell(writers=64, mean_s=8, dollars=11, p99_ms=400),
)
EXPRESS = (
    Cell(writers=1),
    Cell(writers=2, over_one=1.1, dollars=7.5),
    Cell(writers=4),
    Cell(writers=8),
    Cell(writers=16),
)
EQUAL_TIMES = (
    Cell(writers=1),
    Cell(writers=2, over_one=1.1, dollars=7.5),
    Cell(writers=4, over_one=1.8, dollars=7.5),
    Cell(writers=8, over_one=3.0, dollars=7.5),
    Cell(writers=16),
)
LONGEST_SECONDS_MAX = 3.0  # that any operation waits
LOOP_WRITERS_MAX = 16  # of the plain loops, which only lose more swaps beyond


class CellTally(Struct, frozen=True):
    """The rate, the waits and the cost of the writers of one cell."""

    rate: float  # operations a second
    p50_ms: float
    p99_ms: float
    longest_s: float
    dollars: float  # of requests, per million operations
    requests: float  # of any kind, for each operation

    @property
    def story(self) -> str:
        waits = f"p50 {self.p50_ms:,.0f} ms, p99 {self.p99_ms:,.0f} ms, longest {self.longest_s:.1f} s"
        return f"{waits}, ${self.dollars:,.1f} per million, {self.requests:.1f} requests each"


def grid(ours: MakeWriter, full_jitter: MakeWriter, equal_times: Latency, scale: float) -> Iterator[Figure]:
    """Measure all cells. ``equal_times`` are the latencies of a store where each request takes as long.

    ``scale`` multiplies how long each cell is measured.
    """
    loops = {"warm loop": warm_loop, "full jitter": full_jitter}
    for title, latency, cells in (
        ("S3", S3, CLOSED),
        ("S3 paced", S3, PACED),
        ("S3 Express", S3_EXPRESS, EXPRESS),
        ("30 ms each", equal_times, EQUAL_TIMES),
    ):
        one = 0.0
        for cell in cells:
            name = f"{title}, {cell.writers} writers" + (
                f", each every {cell.mean_s:g} s" if cell.mean_s else ""
            )
            seconds = (SECONDS_PACED if cell.mean_s else SECONDS) * scale
            found = tally(cell, ours, latency, seconds)
            one = one or found.rate
            yield Figure(f"{name}, osqueue", found.rate, "ops/s", note=found.story)
            for what, make in loops.items() if cell.writers <= LOOP_WRITERS_MAX else ():
                loop = tally(cell, make, latency, seconds)
                yield Figure(f"{name}, {what}", loop.rate, "ops/s", note=loop.story)
            if cell.over_one:
                yield at_least(f"{name}, over one writer", ratio(found.rate, one), cell.over_one)
            if cell.rate:
                yield at_least(f"{name}, rate", found.rate, cell.rate, unit="ops/s")
            if cell.dollars:
                yield at_most(f"{name}, dollars per million", found.dollars, cell.dollars, unit="$")
            if cell.p99_ms:
                yield at_most(f"{name}, p99", found.p99_ms, cell.p99_ms, unit="ms")
            yield at_most(f"{name}, longest wait", found.longest_s, LONGEST_SECONDS_MAX, unit="s")


def tally(cell: Cell, make: MakeWriter, latency: Latency, seconds: float, seed: int = 1) -> CellTally:
    """Run the writers of a cell for ``seconds`` of virtual time. What happens while they start is not counted."""
    world = World(seed, Faults(), events_max=10**9)
    network = Network(world, Truth(world), latency)
    warm_seconds = WARM_SECONDS_PACED if cell.mean_s else WARM_SECONDS
    waits: list[float] = []

    def program(machine: VirtualMachine) -> Flow[None]:
        operation = make(machine)
        yield Sleep(machine.uniform() * (cell.mean_s or 1.0))
        while True:
            began = world.now
            yield from operation(machine)
            if began >= warm_seconds:
                waits.append(world.now - began)
            if cell.mean_s:
                yield Sleep(-cell.mean_s * math.log(1 - machine.uniform()))

    for at in range(cell.writers):
        machine = VirtualMachine(world, f"w{at}", seed)
        Process(world, network.send, program(machine)).start()
    world.run(lambda: world.now >= warm_seconds, warm_seconds + 1)
    counted, start, done = dict(network.requests), world.now, len(waits)
    world.run(lambda: False, seconds)
    sent = {kind: count - counted.get(kind, 0) for kind, count in network.requests.items()}
    operations = max(1, len(waits) - done)
    waits.sort()
    return CellTally(
        rate=operations / (world.now - start),
        p50_ms=waits[len(waits) // 2] * 1000 if waits else math.inf,
        p99_ms=waits[int(len(waits) * 0.99)] * 1000 if waits else math.inf,
        longest_s=waits[-1] if waits else math.inf,
        dollars=sum(DOLLARS[kind] * count for kind, count in sent.items()) / operations * 1e6,
        requests=sum(sent.values()) / operations,
    )


def warm_loop(machine: VirtualMachine) -> WriterFlow:
    """Return a writer that keeps the version that it wrote, and reads only after a refusal."""
    version: str | None = None

    def operation(machine: VirtualMachine) -> Flow[None]:
        nonlocal version
        refusals = 0
        while True:
            if version is None:
                found = yield Get("loop/head")
                version = found.version if isinstance(found, Found) else ""
            body = machine.bits(64).to_bytes(8, "big")
            put: Effect = (
                PutIfMatch("loop/head", body, version) if version else PutIfAbsent("loop/head", body)
            )
            reply = yield put
            if isinstance(reply, Written):
                version = reply.version
                return
            version = None
            refusals += 1
            if refusals > 1:
                yield Sleep(LOOP_WAIT_SECONDS * refusals * machine.uniform())

    return operation
