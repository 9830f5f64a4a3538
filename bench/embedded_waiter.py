"""Processes that wait for one another's jobs, and processes that only wait; one program for each role.

Moments are of the monotonic clock, which all processes of a machine share. Prints ``ready``, waits for a line on
standard input, works, and prints one line of JSON (see ``fleet.py``).
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from functools import partial
from random import Random
from typing import Any

from bench.our_worker import NAME, Answer, asked, gate, since
from osqueue import Queue
from osqueue.worker.loop import Worker

GAP_S_MIN, GAP_S_MAX = 0.3, 3.0  # between two jobs
LOOK_S = 10.0  # one claim waits so long


def send(arguments: argparse.Namespace) -> Answer:
    """Enqueues jobs at random moments; each says when its enqueue was called."""
    queue = Queue.connect(arguments.address, NAME)
    chance = Random(arguments.seed)
    gate()
    took = []
    for _ in range(arguments.jobs):
        time.sleep(chance.uniform(GAP_S_MIN, GAP_S_MAX))
        called = time.monotonic()
        queue.enqueue({"called": called})
        took.append(time.monotonic() - called)
    return {"took": took}


def run(arguments: argparse.Namespace) -> Answer:
    """A worker's handlers: how long after the enqueue's call each began."""
    queue: Queue[Any] = Queue.connect(arguments.address, NAME)
    waits: list[float] = []

    @queue.handler
    def hear(job: Any) -> None:
        waits.append(time.monotonic() - job.payload["called"])
        if len(waits) == arguments.jobs:
            worker.stop()

    worker = Worker(queue, concurrency=8)
    gate()
    start = time.monotonic()
    worker.run()
    return {"waits": waits, "gets": asked(queue)["get"], "seconds": time.monotonic() - start}


def claim(arguments: argparse.Namespace) -> Answer:
    """The same for claims that wait."""
    queue: Queue[Any] = Queue.connect(arguments.address, NAME)
    gate()
    start = time.monotonic()
    waits: list[float] = []
    while len(waits) < arguments.jobs:
        for lease in queue.claim(wait=LOOK_S):
            waits.append(time.monotonic() - lease.payload["called"])
            lease.complete()
    return {"waits": waits, "gets": asked(queue)["get"], "seconds": time.monotonic() - start}


def ask(arguments: argparse.Namespace) -> Answer:
    """Enqueues jobs one by one and waits for each: when it had their results."""
    queue = Queue.connect(arguments.address, NAME)
    chance = Random(arguments.seed)
    gate()
    answered = []
    for _ in range(arguments.jobs):
        queue.enqueue_and_wait({"hold_s": chance.uniform(GAP_S_MIN, GAP_S_MAX)})
        answered.append(time.monotonic())
    return {"moments": answered}


def serve(arguments: argparse.Namespace) -> Answer:
    """Runs the jobs of ``ask``, each for as long as it says: when it called their completions."""
    queue: Queue[Any] = Queue.connect(arguments.address, NAME)
    gate()
    called: list[float] = []
    while len(called) < arguments.jobs:
        for lease in queue.claim(wait=LOOK_S):
            time.sleep(lease.payload["hold_s"])
            called.append(time.monotonic())
            lease.complete({"sent": True})
    return {"moments": called}


def idle(arguments: argparse.Namespace) -> Answer:
    """Queue objects that wait for a job which never comes: requests of a while, once they have waited some time."""
    queues: list[Queue[Any]] = [Queue.connect(arguments.address, NAME) for _ in range(arguments.objects)]
    queues[0].enqueue({})
    [lease] = queues[0].claim()
    lease.complete()
    for queue in queues:
        queue.handler(lambda job: None)
    workers = [Worker(queue, signals=False) for queue in queues]
    gate()
    over = threading.Event()

    def wait(queue: Queue[Any]) -> None:
        while not over.is_set():
            queue.claim(wait=LOOK_S)

    for queue, worker in zip(queues, workers, strict=True):
        target = partial(wait, queue) if arguments.by == "claim" else worker.run
        threading.Thread(target=target, daemon=True).start()
    time.sleep(arguments.warm)
    before, start = [asked(queue) for queue in queues], time.monotonic()
    time.sleep(arguments.seconds)
    spent = [since(queue, then) for queue, then in zip(queues, before, strict=True)]
    seconds = time.monotonic() - start
    over.set()
    for worker in workers:
        worker.stop()
    gets = sum(each["get"] for each in spent)
    return {"gets": gets, "others": sum(sum(each.values()) for each in spent) - gets, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = parser.add_subparsers(required=True)
    for role in (send, run, claim, ask, serve):
        program = programs.add_parser(role.__name__)
        program.set_defaults(role=role)
        program.add_argument("address")
        program.add_argument("--jobs", type=int, default=26)
        program.add_argument("--seed", type=int, default=0)
    program = programs.add_parser("idle")
    program.set_defaults(role=idle)
    program.add_argument("address")
    program.add_argument("--by", choices=("claim", "run"), default="claim")
    program.add_argument("--objects", type=int, default=1)
    program.add_argument("--warm", type=float, default=12.0)
    program.add_argument("--seconds", type=float, default=6.0)
    arguments = parser.parse_args()
    print(json.dumps(arguments.role(arguments)), flush=True)


if __name__ == "__main__":
    main()
