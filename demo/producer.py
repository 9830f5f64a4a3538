"""The producer process: enqueues the log's jobs in order, at the log's own pace, compressed.

    python -m demo.producer PLAN

Whatever has come due since the last call goes into the queue as one group, in one commit.
"""

from __future__ import annotations

import sys
import time

from demo.child import told_to_stop
from demo.journal import Entry, Journal
from demo.plan import ARRIVALS_FASTER, ATTEMPTS_MAX, QUEUE, Payload, Plan, jobs_of, load
from demo.swf import SwfJob
from osqueue import Queue

NAME = "producer"
TICK_S = 0.1  # how long arrivals gather
GROUP_MAX = 500


def produce(plan: Plan) -> None:
    """Enqueue every job of the plan."""
    jobs = jobs_of(plan)
    queue: Queue[Payload] = Queue.connect(plan.address, QUEUE, type=Payload)
    with Journal(plan.journal(NAME)) as journal:
        began = time.monotonic()
        at = 0
        while at < len(jobs):
            log_s = jobs[0].submit_s + (time.monotonic() - began) * ARRIVALS_FASTER
            upto = arrived(jobs, at, log_s)
            if upto > at:
                enqueue(queue, jobs[at:upto], journal)
                at = upto
            if told_to_stop(TICK_S):
                return


def arrived(jobs: list[SwfJob], start: int, log_s: float) -> int:
    """Up to which job the log has come at its second ``log_s``, in one group's reach of ``start``."""
    end = start
    while end < len(jobs) and end - start < GROUP_MAX and jobs[end].submit_s <= log_s:
        end += 1
    return end


def enqueue(queue: Queue[Payload], jobs: list[SwfJob], journal: Journal) -> None:
    """One group, one commit; afterwards the journal knows which job got which id."""
    answers = queue.enqueue_many(
        [{"payload": Payload(job.number, job.run_s), "max_attempts": ATTEMPTS_MAX} for job in jobs]
    )
    enqueued = []
    for job, answer in zip(jobs, answers, strict=True):
        if answer.job_id is None:
            raise RuntimeError(f"the queue refused job {job.number}: {answer.error}")
        enqueued.append((job.number, answer.job_id))
    journal.write(Entry(requests=queue.requests, enqueued=enqueued))


if __name__ == "__main__":
    produce(load(sys.argv[1]))
