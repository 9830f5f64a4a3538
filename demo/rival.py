"""The rival process: sends the jobs that carry ids once more, before, with or after the producer.

    python -m demo.rival PLAN BEGAN

It knows nothing of the producer, nor the producer of it: whichever of them comes first is accepted, and the other
is told what became of the job.
"""

from __future__ import annotations

import sys

from demo.journal import Journal, JournalEntry
from demo.pace import groups
from demo.plan import QUEUE, Payload, ReplayPlan, callers_of, jobs_of, load
from demo.producer import arrival_s, send
from osqueue import Queue

NAME = "rival"


def compete(plan: ReplayPlan, began: float) -> None:
    """Send every job that carries an id."""
    jobs = jobs_of(plan)
    callers = callers_of(plan, jobs)
    moments = [
        (arrival_s(jobs, job) + callers[job.number].lag_s, job) for job in jobs if job.number in callers
    ]
    queue: Queue[Payload] = Queue.connect(plan.address, QUEUE, type=Payload)
    with Journal(plan.journal(NAME)) as journal:
        for group in groups(sorted(moments, key=lambda each: each[0]), began):
            journal.write(send(queue, group, callers))
        journal.write(JournalEntry(requests=queue.requests))


if __name__ == "__main__":
    compete(load(sys.argv[1]), float(sys.argv[2]))
