"""A worker process: claims jobs in groups, runs many at a time, keeps the long ones alive, completes in groups.

    python -m demo.worker PLAN NAME

To run a job of the log is to hold it for its run time, compressed. A worker needs one thread for that: it looks
which jobs have ended, which leases need a heartbeat and how many hands are free, and answers each for the whole
group in one commit.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from demo.child import told_to_stop
from demo.journal import Journal, JournalEntry, RunEnd, RunResult, RunStart
from demo.plan import QUEUE, RUNS_FASTER, Payload, ReplayPlan, load
from osqueue import Done, Lease, Queue, Throttled, Timeout, Unavailable

TICK_S = 0.02  # between two looks when there is nothing to do
GATHER_S = 0.1  # how long ended jobs may wait for others to end, to be reported together
IDLE_S = 0.1  # between two looks at an empty queue
BEAT_AT = 2 / 3  # a heartbeat is sent when this share of the lease is left: the rule of thumb is a third used
FREE_SHARE = 4  # claim when a quarter of the slots is free


class RunningJob(Struct):
    """A job in this worker's hands."""

    lease: Lease[Payload]
    called: float  # monotonic seconds: when it was claimed …
    claimed: float  # … and when the claim had returned
    ends: float
    fails: bool


class ReplayWorker:
    """One worker and what it holds."""

    def __init__(self, plan: ReplayPlan, name: str, journal: Journal) -> None:
        self.plan = plan
        self.name = name
        self.journal = journal
        self.queue: Queue[Payload] = Queue.connect(plan.address, QUEUE, type=Payload)
        self.running: dict[str, RunningJob] = {}
        self.look_again = 0.0  # monotonic seconds: an empty queue is left alone until then

    def work(self) -> None:
        """Work until told to stop."""
        while not told_to_stop():
            did = self.report_ended()
            did = self.beat() or did
            did = self.claim() or did
            if not did and told_to_stop(TICK_S):
                break
        self.journal.write(JournalEntry(requests=self.queue.requests))

    def claim(self) -> bool:
        """Take as many jobs as there are hands free, once it is worth a commit."""
        free = self.plan.slots - len(self.running)
        now = time.monotonic()
        if now < self.look_again or free < self.plan.slots // FREE_SHARE:
            return False
        called = time.monotonic()
        leases: Sequence[Lease[Any]] = ()
        with contextlib.suppress(
            Throttled, Timeout, Unavailable
        ):  # what was claimed unheard comes back by itself
            leases = self.queue.claim(limit=free, worker=self.name, lease=self.plan.lease_s)
        if not leases:
            self.look_again = time.monotonic() + IDLE_S
            return False
        now = time.monotonic()
        for lease in leases:
            fails = lease.attempt <= self.plan.failures(lease.payload.n)
            ends = now + lease.payload.run / RUNS_FASTER
            self.running[lease.job_id] = RunningJob(lease, called, now, ends, fails)
        self.note(
            started=[RunStart(each.job_id, each.payload.n, each.attempt, each.payload.run) for each in leases]
        )
        return True

    def report_ended(self) -> bool:
        """Complete or fail the jobs that have ended, when they are many or the first has waited long enough."""
        now = time.monotonic()
        ended = [each for each in self.running.values() if each.ends <= now]
        if not ended:
            return False
        free = self.plan.slots - len(self.running)
        many = free + len(ended) >= self.plan.slots // FREE_SHARE
        if not many and now - min(each.ends for each in ended) < GATHER_S:
            return False
        good = [each for each in ended if not each.fails]
        bad = [each for each in ended if each.fails]
        if good:
            called = time.monotonic()
            done, lost = self.answered(good, called, self.queue.complete_many(map(completion, good)))
            self.note(completed=done, lost=lost)
        if bad:
            called = time.monotonic()
            done, lost = self.answered(bad, called, self.queue.fail_many(map(failure, bad)))
            self.note(failed=done, lost=lost)
        for each in ended:
            del self.running[each.lease.job_id]
        return True

    def answered(
        self, ended: list[RunningJob], called: float, answers: list[Done]
    ) -> tuple[list[RunEnd], list[str]]:
        """Which ends the queue has acknowledged, and which jobs had gone to somebody else."""
        now = time.monotonic()
        ends = [
            RunEnd(
                each.lease.job_id,
                each.lease.attempt,
                math.floor((called - each.claimed) * 1000),
                math.ceil((now - each.called) * 1000),
            )
            for each, answer in zip(ended, answers, strict=True)
            if answer.ok
        ]
        return ends, [answer.job_id for answer in answers if not answer.ok]

    def beat(self) -> bool:
        """Extend the leases of which a third is used, and drop the jobs that have gone to somebody else."""
        least_s = self.plan.lease_s * BEAT_AT
        held = [each.lease for each in self.running.values() if each.lease.seconds_left < least_s]
        if not held:
            return False
        lost = []
        answers = self.queue.heartbeat_many(held)
        for answer in answers:
            if not answer.ok:
                lost.append(answer.job_id)
                del self.running[answer.job_id]
        self.note(beaten=len(held) - len(lost), lost=lost)
        return True

    def note(
        self,
        started: list[RunStart] | None = None,
        completed: list[RunEnd] | None = None,
        failed: list[RunEnd] | None = None,
        lost: list[str] | None = None,
        beaten: int = 0,
    ) -> None:
        """A line in the journal."""
        self.journal.write(
            JournalEntry(
                self.queue.requests,
                started=started or [],
                completed=completed or [],
                failed=failed or [],
                lost=lost or [],
                beaten=beaten,
            )
        )


def completion(each: RunningJob) -> dict[str, Any]:
    """A job's end, as the queue takes it: with the result that callers read."""
    lease = each.lease
    result = RunResult(lease.payload.n, lease.attempt)
    return {"job_id": lease.job_id, "token": lease.token, "result": result}


def failure(each: RunningJob) -> dict[str, Any]:
    """An attempt's end."""
    lease = each.lease
    error = {"type": "Planned", "message": "the demo wanted this attempt to fail"}
    return {"job_id": lease.job_id, "token": lease.token, "error": error}


def main() -> None:
    plan, name = load(sys.argv[1]), sys.argv[2]
    with Journal(plan.journal(name)) as journal:
        ReplayWorker(plan, name, journal).work()


if __name__ == "__main__":
    main()
