"""A process of ``visit.py``: one that is busy, or one whose callers come and go."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from contextlib import ExitStack
from typing import Any

from bench.our_worker import NAME, PAYLOAD, Answer
from osqueue import Queue

GAPS_S = (1.2, 1.8)  # between two visits
PATIENCE_S = 10.0  # of a caller
VISITORS = 3  # a producer, a worker and a caller


def keep_busy(address: str, visits: int) -> Answer:
    """Enqueue, claim and complete for as long as the visits take. Return how many seconds each call took."""
    calls_s: list[float] = []
    end = time.monotonic() + visits * GAPS_S[1]
    with Queue[Any].connect(address, NAME) as queue:
        while time.monotonic() < end:
            calls_s.append(timed(lambda: queue.enqueue(PAYLOAD)))
            calls_s += [timed(lease.complete) for lease in queue.claim()]
    return {"calls_s": calls_s}


def visit(address: str, visits: int) -> Answer:
    """Let each visitor in turn make its calls. Return how many seconds the first ones took, and a caller's result."""
    chance = random.Random(visits)
    calls_s: list[float] = []
    results_s: list[float] = []
    leases: list[Any] = []
    with ExitStack() as stack:
        producer, worker, caller = (
            stack.enter_context(Queue[Any].connect(address, NAME)) for _ in range(VISITORS)
        )
        for queue in (producer, worker, caller):  # the first call of each opens what it needs
            queue.enqueue(PAYLOAD)
        for number in range(visits):
            time.sleep(chance.uniform(*GAPS_S))
            match number % VISITORS:
                case 0:
                    calls_s.append(timed(lambda: producer.enqueue(PAYLOAD)))
                case 1:
                    calls_s.append(timed(lambda: leases.extend(worker.claim())))
                    while leases:
                        leases.pop().complete()
                case _:
                    results_s.append(
                        timed(lambda: caller.enqueue_and_wait(PAYLOAD, priority=0, timeout=PATIENCE_S))
                    )
    return {"calls_s": calls_s, "results_s": results_s}


def timed(call: Any) -> float:
    """Return how many seconds a call takes."""
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def do_both(address: str, visits: int) -> Answer:
    """Run both in threads of this process."""
    found: dict[str, Answer] = {}
    busy = threading.Thread(target=lambda: found.update(busy=keep_busy(address, visits)))
    busy.start()
    found["visitor"] = visit(address, visits)
    busy.join()
    return found


ROLES = {"busy": keep_busy, "visitor": visit, "both": do_both}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--visits", type=int, required=True)
    arguments = parser.parse_args()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(ROLES[arguments.role](arguments.address, arguments.visits)))


if __name__ == "__main__":
    main()
