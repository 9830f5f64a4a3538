"""One replay from beginning to end: start the processes, watch the queue, kill a worker, let the rest finish."""

from __future__ import annotations

import random
import time
from typing import Any

from msgspec import Struct

from demo import producer
from demo.accounting import COMPLETED, Account, check, once, read_archive
from demo.crew import Crew
from demo.journal import Entry, read_journal
from demo.measure import Measures, measure
from demo.plan import BACKOFF_BASE_S, BACKOFF_CAP_S, QUEUE, Plan, jobs_of, save
from osqueue import Queue

LOOK_S = 0.25  # between two looks at the queue
STUCK_S = 60.0  # without a completion: something is wrong
KILL_AFTER = 0.35  # a worker is killed when this share of the jobs is done
PAGE = 1_000
LIVE = ("scheduled", "queued", "processing", "failing", "failed")


class Stuck(Exception):
    """The replay does not move any more. The message tells what the queue held."""


class Kill(Struct, frozen=True):
    """The worker that was killed."""

    worker: str
    pid: int
    held: int  # leases that it had when it died


class Result(Struct, frozen=True):
    """What came of a replay."""

    account: Account
    measures: Measures
    kill: Kill | None
    came_back: int  # jobs of the killed worker whose leases ended without a word


class Look(Struct, frozen=True):
    """The queue at one moment."""

    total: int
    completed: int
    queued: int
    processing: int
    failing: int


class Watcher:
    """What the replay tells those who watch it. The screen is one; this one keeps quiet."""

    def moment(self, look: Look) -> None:
        """The queue was looked at."""

    def event(self, text: str) -> None:
        """Something happened."""


def replay(plan: Plan, kill: bool, watcher: Watcher) -> Result:
    """Run the whole replay and check its accounts. Raises Stuck or Crashed when it cannot come to an end."""
    queue: Queue[Any] = Queue.connect(plan.address, QUEUE)
    queue.configure(backoff_base=BACKOFF_BASE_S, backoff_cap=BACKOFF_CAP_S)
    with Crew(plan, save(plan)) as crew:
        for name in plan.worker_names():
            crew.start(name, "demo.worker", name)
        crew.start(producer.NAME, "demo.producer")
        killed = _watch(plan, queue, crew, watcher, kill)
    crew.check()
    watcher.event("All are done. Counting.")
    return take_stock(plan, queue, killed)


def _watch(plan: Plan, queue: Queue[Any], crew: Crew, watcher: Watcher, kill: bool) -> Kill | None:
    """Look on until every job is completed. Answers who was killed on the way."""
    total = len(jobs_of(plan))
    victim = random.Random(plan.seed).choice(plan.worker_names()) if kill else None
    killed: Kill | None = None
    buried = False
    best, moved = 0, time.monotonic()
    while True:
        crew.check()
        look = look_at(queue, total)
        watcher.moment(look)
        if look.completed >= total:
            return killed
        if victim is not None and killed is None and look.completed >= total * KILL_AFTER:
            killed = _kill(queue, crew, victim)
            if killed is not None:
                watcher.event(f"kill -9 {killed.pid}: {killed.worker} is dead. It held {killed.held} jobs.")
        if killed is not None and not buried and not hands(queue, killed.worker):
            buried = True
            watcher.event(
                f"{killed.worker} holds nothing any more: its leases have ended, the others take over."
            )
        if look.completed > best:
            best, moved = look.completed, time.monotonic()
        elif time.monotonic() - moved > STUCK_S:
            raise Stuck(f"no job was completed for {STUCK_S:.0f} s. The queue: {queue.stats()}")
        time.sleep(LOOK_S)


def _kill(queue: Queue[Any], crew: Crew, victim: str) -> Kill | None:
    """Kill a worker if it holds leases just now. It stands still while its hands are looked at."""
    crew.freeze(victim)
    held = hands(queue, victim)
    if not held:
        crew.thaw(victim)
        return None
    crew.kill(victim)
    return Kill(victim, crew.pid(victim), held)


def hands(queue: Queue[Any], worker: str) -> int:
    """How many jobs a worker holds."""
    return sum(job.worker == worker for job in pages(queue, "processing"))


def look_at(queue: Queue[Any], total: int) -> Look:
    """How far the replay is, by the queue's counters: to show it, not to prove it."""
    stats = queue.stats()
    return Look(
        total=total,
        completed=stats["counters"].get("completed", 0),
        queued=stats["queued"],
        processing=stats["processing"],
        failing=stats["failing"],
    )


def take_stock(plan: Plan, queue: Queue[Any], killed: Kill | None) -> Result:
    """Move what has finished to the archive, then compare all accounts."""
    queue.reap()
    archive, parts = read_archive(plan.store)
    workers = {name: list(read_journal(plan.journal(name))) for name in plan.worker_names()}
    enqueuer: list[Entry] = list(read_journal(plan.journal(producer.NAME)))
    account = check(
        numbers=[job.number for job in jobs_of(plan)],
        enqueued=[pair for entry in enqueuer for pair in entry.enqueued],
        archive=archive,
        live=[
            (job.job_id, job.state)
            for state in (*LIVE, COMPLETED, "cancelled")
            for job in pages(queue, state)
        ],
        entries=[entry for entries in workers.values() for entry in entries],
    )
    measures = measure(
        once(archive), [enqueuer, *workers.values()], queue.stats()["commits"], parts, plan.store
    )
    came_back = sum(
        killed is not None and attempt.worker == killed.worker and attempt.outcome == "stalled"
        for record in once(archive)
        for attempt in record.attempts
    )
    return Result(account, measures, killed, came_back)


def pages(queue: Queue[Any], state: str) -> list[Any]:
    """Every live job of one state."""
    found: list[Any] = []
    cursor = None
    while True:
        jobs, cursor = queue.jobs(state=state, limit=PAGE, cursor=cursor)
        found.extend(jobs)
        if cursor is None:
            return found
