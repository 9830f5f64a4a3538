"""A process that claims from a paced queue, and when each of its jobs started. See ``fleet.py``."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from osqueue import Queue

BATCH = 10
WAIT_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("queue")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--skew-ms", type=int, default=0, help="by which this process knows the time wrongly")
    arguments = parser.parse_args()
    queue: Queue[Any] = Queue.connect(arguments.address, arguments.queue)
    store = queue.store
    told = store.clock_ms
    if arguments.skew_ms:
        setattr(store, "clock_ms", lambda: told() + arguments.skew_ms)  # noqa: B010 - of this one alone
    queue.stats()
    print("ready", flush=True)
    input()
    before = sum(queue.requests.values())
    end = time.monotonic() + arguments.seconds
    starts: list[float] = []
    while (left := end - time.monotonic()) > 0:
        leases = queue.claim(BATCH, wait=min(WAIT_S, left))
        if leases:
            now = time.time()
            starts += [now if arguments.skew_ms else lease._stored.started_ms / 1000 for lease in leases]
            queue.complete_many(leases)
    print(json.dumps({"starts": starts, "requests": sum(queue.requests.values()) - before}))


if __name__ == "__main__":
    main()
