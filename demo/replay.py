"""One replay from beginning to end: start the processes, watch the queue, kill a worker, let the rest finish."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from demo import producer, reaper, rival, stack
from demo.crew import ChildProcesses
from demo.plan import BACKOFF_BASE_S, BACKOFF_CAP_S, QUEUE, ReplayPlan, save
from demo.stock import Kill, ReplayResult, hands, note_kill, take_stock
from osqueue import Queue

LOOK_S = 0.25  # between two looks at the queue
STUCK_S = 60.0  # without a completion: something is wrong
KILL_AFTER = 0.35  # a worker is killed when this share of the jobs is done
SENDERS = (producer.NAME, rival.NAME)
START_S = 3.0  # in which the producers start before the first job is due


class ReplayStuck(Exception):
    """The replay does not move any more. The message tells what the queue held."""


class QueueSample(Struct, frozen=True):
    """The queue at one moment."""

    total: int
    completed: int
    queued: int
    processing: int
    failing: int


class Watcher:
    """What the replay tells those who watch it. The screen is one; this one keeps quiet."""

    def moment(self, look: QueueSample) -> None:
        """The queue was looked at."""

    def event(self, text: str) -> None:
        """Something happened."""


def replay(plan: ReplayPlan, kill: bool, watcher: Watcher, embedded: bool = False) -> ReplayResult:
    """Run the whole replay and check its accounts. Raises Stuck or Crashed when it cannot come to an end."""
    with ChildProcesses(plan, save(plan)) as crew:
        if not embedded:
            plan = replace(plan, url=stack.start(crew, plan))
            save(plan)
        queue: Queue[Any] = Queue.connect(plan.address, QUEUE)
        queue.configure(backoff_base=BACKOFF_BASE_S, backoff_cap=BACKOFF_CAP_S)
        for name in plan.worker_names():
            crew.start(name, "demo.worker", name)
        if embedded:
            crew.start(reaper.NAME, "demo.reaper")
        began = time.monotonic() + START_S
        for name in SENDERS:
            crew.start(name, f"demo.{name}", str(began))
        killed = _watch(plan, queue, crew, watcher, kill)
        watcher.event("All are done. Counting.")
        queue.reap()
    crew.check()
    return take_stock(plan, killed)


def _watch(
    plan: ReplayPlan, queue: Queue[Any], crew: ChildProcesses, watcher: Watcher, kill: bool
) -> Kill | None:
    """Look on until every job is completed and everybody answered. Answers who was killed on the way."""
    total = plan.jobs
    names = plan.worker_names()
    victims = random.Random(plan.seed).sample(names, len(names)) if kill else []
    killed: Kill | None = None
    buried = False
    best, moved = 0, time.monotonic()
    while True:
        crew.check()
        look = look_at(queue, total)
        watcher.moment(look)
        if look.completed >= total and crew.ended(SENDERS):
            return killed
        if victims and killed is None and look.completed >= total * KILL_AFTER:
            killed = _kill(queue, crew, victims)
            if killed is not None:
                note_kill(plan, killed)
                watcher.event(f"kill -9 {killed.pid}: {killed.worker} is dead. It held {killed.held} jobs.")
        if killed is not None and not buried and not hands(queue, killed.worker):
            buried = True
            watcher.event(
                f"{killed.worker} holds nothing any more: its leases have ended, the others take over."
            )
        if look.completed > best:
            best, moved = look.completed, time.monotonic()
        elif time.monotonic() - moved > STUCK_S:
            raise ReplayStuck(f"no job was completed for {STUCK_S:.0f} s. The queue: {queue.stats()}")
        time.sleep(LOOK_S)


def _kill(queue: Queue[Any], crew: ChildProcesses, victims: Sequence[str]) -> Kill | None:
    """Kill the first worker that holds leases just now. It stands still while its hands are looked at."""
    for victim in victims:
        crew.freeze(victim)
        held = hands(queue, victim)
        if held:
            crew.kill(victim)
            return Kill(victim, crew.pid(victim), held)
        crew.thaw(victim)
    return None


def look_at(queue: Queue[Any], total: int) -> QueueSample:
    """How far the replay is, by the queue's counters: to show it, not to prove it."""
    stats = queue.stats()
    return QueueSample(
        total=total,
        completed=stats["counters"].get("completed", 0),
        queued=stats["queued"],
        processing=stats["processing"],
        failing=stats["failing"],
    )
