"""What a trickle of callers costs a month on S3, with a window and without one, in virtual time.

One process, such as ``osqueue serve``, gets 5 operations a second from callers that know nothing of each other: each
job is enqueued, claimed, kept by a heartbeat and completed, with random pauses in between. All of it is the real
``AsyncQueue``; the network and the clocks are simulated, so the requests are the same on every machine.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bench.contention import decoded_once
from bench.few_writers import DOLLARS
from bench.row import BenchOptions, Figure, at_most
from osqueue.queue.asynchronous import AsyncQueue
from simulation.conditions import S3, Faults
from simulation.fibers import Host
from simulation.loop import VirtualLoop
from simulation.machine import VirtualMachine
from simulation.network import Network
from simulation.resting import RemoteStore
from simulation.truth import Truth
from simulation.world import World

OPERATIONS = 4  # of each job
RATE = 5.0  # operations a second
WINDOWS_S = (0.0, 0.5, 2.0, 5.0)
WINDOW_S = 2.0  # that the goal is for
DOLLARS_MAX = 7.0  # a month, at that window
WORK_SECONDS = 12.0  # between two operations of a job, at most
LEASE_SECONDS = 60.0
SECONDS = 1_800.0  # of virtual time, that are measured
WARM_SECONDS = 60.0  # before
MONTH_SECONDS = 30 * 86_400
COMMIT_SECONDS_MAX = 1.0  # that an operation takes beyond the window


class TrickleTally(Struct, frozen=True):
    """What a trickle did and what it cost."""

    rate: float  # operations a second
    puts: float  # for each of them
    dollars: float  # of requests, a month
    p50_s: float  # of an operation
    longest_s: float

    @property
    def story(self) -> str:
        waits = f"p50 {self.p50_s:.2f} s, longest {self.longest_s:.2f} s"
        return f"{self.rate:.1f} ops/s, {self.puts:.2f} PUTs each, {waits}"


class Trickle:
    """The callers of one process, and how long their operations took."""

    def __init__(
        self,
        window: float,
        lease_s: float = LEASE_SECONDS,
        work_s: float = WORK_SECONDS,
        seed: int = 1,
    ) -> None:
        self.world = World(seed, Faults(), events_max=10**9)
        self.network = Network(self.world, Truth(self.world), S3)
        self.host = Host(self.world, self.network.send)
        self.loop = VirtualLoop(self.host)
        self.machine = VirtualMachine(self.world, "server", seed)
        self.queue: AsyncQueue[Any] = AsyncQueue(
            RemoteStore(self.host), "mail", machine=self.machine, window=window
        )
        self.lease_s, self.work_s = lease_s, work_s
        self.waits: list[float] = []
        self.jobs: set[asyncio.Task[None]] = set()

    async def arrive(self) -> None:
        """Let jobs come for ever."""
        while True:
            await asyncio.sleep(self.world.chance.expovariate(RATE / OPERATIONS))
            task = asyncio.create_task(self.live())
            self.jobs.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.jobs.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.failure = error

    async def live(self) -> None:
        """Let one job come, and let some caller work it. Raises LeaseLost."""
        await self.timed(self.queue.enqueue({"n": 1}))
        await self.pause()
        leases = await self.timed(self.queue.claim(lease=self.lease_s))
        for lease in leases:
            await self.pause()
            await self.timed(lease.heartbeat())
            await self.pause()
            await self.timed(lease.complete())

    async def pause(self) -> None:
        """Wait for a random time."""
        await asyncio.sleep(self.world.chance.uniform(0, self.work_s))

    async def timed(self, call: Any) -> Any:
        """Make a call, and note how long it took."""
        began = self.world.now
        answer = await call
        self.waits.append(self.world.now - began)
        return answer

    def tally(self, seconds: float) -> TrickleTally:
        """Let the callers run, and count what they do after they have started."""
        self.loop.call_soon(self._begin)
        self.world.run(lambda: self.world.now > WARM_SECONDS, WARM_SECONDS + 1)
        sent, began, count = Counter(self.network.requests), self.world.now, len(self.waits)
        self.world.run(lambda: False, seconds)
        requests = Counter(self.network.requests) - sent
        passed, waits = self.world.now - began, sorted(self.waits[count:])
        puts = sum(number for kind, number in requests.items() if kind.startswith("Put"))
        dollars = sum(DOLLARS[kind] * number for kind, number in requests.items())
        return TrickleTally(
            rate=len(waits) / passed,
            puts=puts / len(waits),
            dollars=dollars / passed * MONTH_SECONDS,
            p50_s=waits[len(waits) // 2],
            longest_s=waits[-1],
        )

    def _begin(self) -> None:
        task = self.loop.create_task(self.arrive())
        self.jobs.add(task)
        task.add_done_callback(self._ended)


def run(options: BenchOptions) -> Iterator[Figure]:
    seconds = max(60.0, SECONDS * options.scale)
    with decoded_once():
        for window in WINDOWS_S:
            found = Trickle(window).tally(seconds)
            name = f"{RATE:g} operations a second, window {window:g} s"
            yield Figure(f"{name}, dollars a month", found.dollars, "$", note=found.story)
            if window == WINDOW_S:
                yield at_most(f"{name}, dollars a month", found.dollars, DOLLARS_MAX, unit="$")
            yield at_most(f"{name}, longest", found.longest_s, window + COMMIT_SECONDS_MAX, unit="s")
