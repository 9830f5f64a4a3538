"""The producer process: enqueues the log's jobs in order, at the log's own pace, compressed.

    python -m demo.producer PLAN BEGAN

Whatever has come due since the last call goes into the queue as one group, in one commit. Jobs whose senders wait
for the result are sent one by one, each from a thread of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from demo.journal import Journal, JournalEntry, RunResult, Sent
from demo.pace import groups
from demo.plan import (
    ARRIVALS_FASTER,
    ATTEMPTS_MAX,
    QUEUE,
    IdSender,
    Payload,
    ReplayPlan,
    callers_of,
    jobs_of,
    load,
)
from demo.swf import SwfJob
from demo.waiters import Waiters
from osqueue import Queue

NAME = "producer"


def produce(plan: ReplayPlan, began: float) -> None:
    """Enqueue every job of the plan, and wait with those who wait."""
    jobs = jobs_of(plan)
    callers = callers_of(plan, jobs)
    queue: Queue[Payload] = Queue.connect(plan.address, QUEUE, type=Payload)
    with Journal(plan.journal(NAME)) as journal:
        waiters = Waiters(queue, journal)
        for group in groups([(arrival_s(jobs, job), job) for job in jobs], began):
            plain = []
            for job in group:
                caller = callers.get(job.number)
                if caller is not None and caller.timeout_s is not None:
                    waiters.send(job, caller, caller.timeout_s)
                else:
                    plain.append(job)
            if plain:
                journal.write(send(queue, plain, callers))
        waiters.join()
        journal.write(JournalEntry(requests=queue.requests))


def arrival_s(jobs: Sequence[SwfJob], job: SwfJob) -> float:
    """When a job is submitted, seconds after the first."""
    return (job.submit_s - jobs[0].submit_s) / ARRIVALS_FASTER


def send(queue: Queue[Payload], jobs: Sequence[SwfJob], callers: dict[int, IdSender]) -> JournalEntry:
    """One group, in one commit where nobody else sends the same; answers what the journal has to know."""
    ids = [callers[job.number].id if job.number in callers else None for job in jobs]
    items: list[dict[str, Any]] = [
        {"payload": Payload(job.number, job.run_s), "max_attempts": ATTEMPTS_MAX, "id": client_id}
        for job, client_id in zip(jobs, ids, strict=True)
    ]
    sent = []
    for job, client_id, answer in zip(jobs, ids, queue.enqueue_many(items), strict=True):
        if answer.job_id is None or answer.error is not None:
            raise RuntimeError(f"the queue refused job {job.number}: {answer.error}")
        result = None if answer.result is None else msgspec.convert(answer.result, RunResult)
        sent.append(Sent(job.number, answer.job_id, answer.status, answer.state, client_id, result))
    return JournalEntry(requests=queue.requests, sent=sent)


if __name__ == "__main__":
    produce(load(sys.argv[1]), float(sys.argv[2]))
