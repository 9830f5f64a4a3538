"""Many queues in one process, most of them at rest: a job waits no longer than looks and news allow.

Producers enqueue single jobs into queues of their choice, with pauses from a tenth of a second to minutes. One other
process waits at all of the queues, completes what it claims, and waits again. Where nothing fails, a job is claimed
after one look at the news and one at the head. Where notices are lost, the look in turn finds it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from osqueue.commit.news import NEWS
from osqueue.commit.writer import HEAD
from osqueue.core.claim_search import has_claimable
from osqueue.core.encoding import decode_head
from osqueue.errors import OsqueueError
from osqueue.operations import head_board
from osqueue.operations.head_board import JITTER_SHARE
from osqueue.queue.asynchronous import AsyncQueue
from osqueue.stores.base import StoreRequest
from osqueue.stores.wrapped import PerformingStore

from .conditions import Faults, Profile
from .fibers import Host, VirtualStore
from .ledger import Violation
from .loop import VirtualLoop
from .machine import VirtualMachine, source
from .network import Network
from .report import RunReport
from .truth import Truth
from .world import World

EVENTS_MAX = 10**9
RUN_SECONDS = 1_200.0
POLL_SECONDS = 1.0
PRODUCERS = 3
PAUSE_SECONDS = (0.1, 2.0, 12.0, 40.0)  # of a producer, at the median
PROMPT_SECONDS = 2.2  # a look at the news, one at the head, a commit, and requests that take longer than most
TROUBLE_SECONDS = 45.0  # more, where requests and processes fail; leases of the dead end within 30 s


class RemoteStore(VirtualStore):
    """A store whose requests can be sent at once, and whose clock needs some."""

    remote = True

    def clock_ms(self) -> int | None:
        return None


class RestingRun:
    """One run."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.world = World(f"{profile.name}/{seed}", profile.faults, EVENTS_MAX)
        self.truth = Truth(self.world)
        self.truth.watchers.append(self.watch)
        self.network = Network(self.world, self.truth, profile.latency)
        self.dice = source(seed, "resting")
        self.queues = [f"tenant{number}" for number in range(profile.clients.resting)]
        looks_in_turn = len(self.queues) * POLL_SECONDS * (1 + JITTER_SHARE)
        failing = profile.faults != Faults()
        self.longest = looks_in_turn + TROUBLE_SECONDS if failing else PROMPT_SECONDS
        self.claimable: dict[str, float] = {}  # by head: since when a job of it may be claimed
        self.asked: Counter[str] = Counter()
        self.commits = 0
        self.count = 0

    def work(self) -> None:
        """Let the processes work, and check after each event that no job waits for too long."""
        self.enter("worker", self.wait_at_all)
        self.world.run(lambda: False, 30.0)
        for _ in range(PRODUCERS):
            self.enter("producer", self.produce)
        self.world.run(self.check, RUN_SECONDS)

    def enter(self, kind: str, body: Callable[[RemoteStore, Any], Coroutine[Any, Any, Any]]) -> None:
        """Start a process, and another one like it when it has died."""
        self.count += 1
        host = Host(self.world, self.network.send)
        host.died = lambda: self.enter(kind, body)
        loop = VirtualLoop(host)
        machine = VirtualMachine(self.world, f"{kind}{self.count}", self.world.seed)

        loop.begin(lambda: body(RemoteStore(host), machine))

    async def produce(self, store: PerformingStore, machine: Any) -> None:
        """Enqueue single jobs, now into one queue and now into another."""
        queues = [AsyncQueue[Any](store, name, machine=machine) for name in self.queues]
        while True:
            median = self.dice.choice(PAUSE_SECONDS)
            await asyncio.sleep(median * 2 * self.dice.random())
            some = self.dice.sample(queues, self.dice.choice((1, 1, 2)))
            await asyncio.gather(*map(self._enqueue, some))

    async def _enqueue(self, queue: AsyncQueue[Any]) -> None:
        try:
            await queue.enqueue(1)
            self.asked["enqueue"] += 1
        except OsqueueError:
            self.asked["enqueue failed"] += 1

    async def wait_at_all(self, store: PerformingStore, machine: Any) -> None:
        """Wait at every queue, each in a task of its own."""
        queues = [AsyncQueue[Any](store, name, machine=machine) for name in self.queues]
        await asyncio.gather(*map(self._wait_at, queues))

    async def _wait_at(self, queue: AsyncQueue[Any]) -> None:
        flows: Any = queue._flows
        waiter = flows.work_waiter(None, POLL_SECONDS)
        while True:
            try:
                waiter.begin_claim()
                leases = await queue.claim()
                for lease in leases:
                    await lease.complete()
                if not leases:
                    await queue._run(flows.rest(waiter))
            except OsqueueError:
                self.asked["claim failed"] += 1
                await asyncio.sleep(POLL_SECONDS)

    # ── What is checked ──────────────────────────────────────────────────────
    def watch(self, request: StoreRequest, key: str, body: bytes) -> None:
        """Note a write that took effect."""
        if key == NEWS:
            self.asked["news"] += 1
        if not key.endswith(f"/{HEAD}"):
            return
        self.commits += 1
        if has_claimable(decode_head(body)):
            self.claimable.setdefault(key, self.world.now)
        else:
            self.claimable.pop(key, None)

    def check(self) -> bool:
        """Raise Violation if a job waits for too long. Return False, so that the run goes on."""
        for key, since in self.claimable.items():
            if self.world.now - since > self.longest:
                raise Violation(
                    f"a job of {key} waits for more than {self.longest:.1f} s, and processes wait for it"
                )
        return False


def run_resting(seed: int, profile: Profile) -> RunReport:
    """Run processes that wait at many queues, and report what they did."""
    run = RestingRun(seed, profile)
    report = RunReport(profile.name, seed, faults=run.world.injected, asked=run.asked)
    head_board.log.disabled, before = True, head_board.log.disabled  # looks that fail would be logged
    try:
        run.work()
    except Violation as violation:
        report.violation = str(violation)
    finally:
        head_board.log.disabled = before
    report.hours, report.commits = run.world.now / 3600, run.commits
    return report
