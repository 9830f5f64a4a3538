"""A producer and a worker on one queue in virtual time, beside one object that does both in turn.

This is what most people run: one process enqueues single jobs as fast as it may, another one works them with eight
calls at once. Two and four *environments* of a function stand beside them, each with one request at a time: it
enqueues, claims and completes in turn. All of it is the real ``AsyncQueue`` with its worker; the network and the
clocks are simulated, so the figures are the same on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from msgspec import Struct

from bench.contention import SLOWED, decoded_once
from bench.few_writers import DOLLARS
from bench.row import BenchOptions, Figure, at_least, at_most, ratio
from osqueue.queue.asynchronous import AsyncQueue
from simulation.conditions import S3, Faults, Latency
from simulation.fibers import Host
from simulation.loop import VirtualLoop
from simulation.machine import VirtualMachine
from simulation.network import Network
from simulation.resting import RemoteStore
from simulation.truth import Truth
from simulation.world import World

CONCURRENCY = 8  # of the worker
SECONDS = 60.0  # of virtual time, that are measured
WARM_SECONDS = 5.0  # before
OVER_ONE = 1.5  # the goal of the pair, in jobs a second
REQUESTS_MAX = 5.0  # and for each of its jobs
ENVIRONMENTS = (2, 4)


class JobTally(Struct, frozen=True):
    """What the processes of one run did."""

    rate: float  # jobs that were worked, each second
    requests: float  # for each of them
    dollars: float  # of requests, per million jobs

    @property
    def story(self) -> str:
        return f"{self.requests:.1f} requests a job, ${self.dollars:.1f} per million"


class Side:
    """The processes of one run, and the jobs that they have worked."""

    def __init__(self, latency: Latency, seed: int = 1) -> None:
        self.world = World(seed, Faults(), events_max=10**9)
        self.network = Network(self.world, Truth(self.world), latency)
        self.worked = 0

    def process(self, name: str, body: Callable[[AsyncQueue[Any]], Coroutine[Any, Any, Any]]) -> None:
        """Start a process with an event loop and a queue object of its own."""
        host = Host(self.world, self.network.send)
        loop = VirtualLoop(host)
        machine = VirtualMachine(self.world, name, self.world.seed)
        queue: AsyncQueue[Any] = AsyncQueue(RemoteStore(host), "mail", machine=machine)

        loop.begin(lambda: body(queue))

    async def produce(self, queue: AsyncQueue[Any]) -> None:
        """Enqueue single jobs for ever."""
        while True:
            await queue.enqueue({"n": 1})

    async def work(self, queue: AsyncQueue[Any]) -> None:
        """Work jobs for ever, several at once."""

        @queue.handler
        async def handle(job: Any) -> None:
            self.worked += 1

        await queue.run(concurrency=CONCURRENCY, signals=False)

    async def do_both(self, queue: AsyncQueue[Any]) -> None:
        """Enqueue, claim and complete in turn, for ever."""
        while True:
            await queue.enqueue({"n": 1})
            for lease in await queue.claim():
                await lease.complete()
                self.worked += 1

    def tally(self, seconds: float) -> JobTally:
        """Let the processes run, and count what they do after they have started."""
        self.world.run(lambda: self.world.now > WARM_SECONDS, WARM_SECONDS + 1)
        worked, sent, began = self.worked, Counter(self.network.requests), self.world.now
        self.world.run(lambda: False, seconds)
        jobs = max(1, self.worked - worked)
        requests = Counter(self.network.requests) - sent
        dollars = sum(DOLLARS[kind] * count for kind, count in requests.items())
        return JobTally(jobs / (self.world.now - began), requests.total() / jobs, dollars / jobs * 1_000_000)


def run(options: BenchOptions) -> Iterator[Figure]:
    seconds = max(5.0, SECONDS * options.scale)
    with decoded_once():
        for title, latency in (("S3", S3), ("30 ms each", SLOWED)):
            one = environments(1, latency, seconds)
            yield Figure(f"{title}, one object", one.rate, "jobs/s", note=one.story)
            pair = producer_and_worker(latency, seconds)
            yield Figure(f"{title}, producer and worker", pair.rate, "jobs/s", note=pair.story)
            yield at_least(f"{title}, pair over one object", ratio(pair.rate, one.rate), OVER_ONE)
            yield at_most(f"{title}, requests of the pair", pair.requests, REQUESTS_MAX, unit="a job")
            yield at_most(f"{title}, dollars of the pair, per million", pair.dollars, one.dollars, unit="$")
            for count in ENVIRONMENTS:
                found = environments(count, latency, seconds)
                yield Figure(f"{title}, {count} environments", found.rate, "jobs/s", note=found.story)
                yield Figure(
                    f"{title}, {count} environments over one object", ratio(found.rate, one.rate), "x"
                )


def producer_and_worker(latency: Latency, seconds: float) -> JobTally:
    """Measure a process that enqueues beside one that works."""
    side = Side(latency)
    side.process("producer", side.produce)
    side.process("worker", side.work)
    return side.tally(seconds)


def environments(count: int, latency: Latency, seconds: float) -> JobTally:
    """Measure processes that each do everything, one request at a time."""
    side = Side(latency)
    for at in range(count):
        side.process(f"environment {at}", side.do_both)
    return side.tally(seconds)
