"""Our side of the comparison on a Valkey server: a worker of a crew (see ``crew.py``).

An order names what to do: ``enqueue`` jobs, one a call or many, or ``work`` until there are none.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from bench.our_worker import NAME, PAYLOAD, Answer
from osqueue import Queue


def enqueue(queue: Queue[Any], jobs: int, batch: int) -> int:
    """Enqueue so many jobs."""
    if batch == 1:
        for _ in range(jobs):
            queue.enqueue(PAYLOAD)
    else:
        for _ in range(0, jobs, batch):
            queue.enqueue_many([{"payload": PAYLOAD}] * batch)
    return jobs


def work(queue: Queue[Any], batch: int) -> int:
    """Run jobs that do nothing until there are none."""
    done = 0

    def one(job: object) -> None:
        nonlocal done
        done += 1

    def many(jobs: list[Any]) -> None:
        nonlocal done
        done += len(jobs)

    if batch == 1:
        queue.handler(one)
    else:
        queue.handler(batch=batch)(many)
    queue.run(until_empty=True, signals=False, poll=0.05)
    return done


def timed(queue: Queue[Any], order: dict[str, Any], start: float) -> Answer:
    time.sleep(max(0.0, start - time.monotonic()))
    begun = time.monotonic()
    batch = order["batch"]
    done = enqueue(queue, order["jobs"], batch) if order["do"] == "enqueue" else work(queue, batch)
    return {"done": done, "begun": begun, "ended": time.monotonic()}


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        with Queue.connect(order["address"], NAME) as queue:
            if order["do"] == "enqueue" and order["creates"]:
                queue.stats()
            print("ready", flush=True)
            start = json.loads(sys.stdin.readline())["start"]
            print(json.dumps(timed(queue, order, start)), flush=True)


if __name__ == "__main__":
    main()
