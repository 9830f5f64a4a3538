"""Push consumers in the local stack, 30 ms a request: from enqueue to start with nobody awake, and what a job costs.

The producer works on the folder itself and invokes the consumer's function, a process of the real runtime client that
was frozen meanwhile. Of the requests those of the consumer are counted, and the producer's beside them.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from bench import consumed
from bench.row import BenchOptions, Figure, at_most
from osqueue import Queue
from osqueue.aws import LambdaWaker
from osqueue.devstack import Stack

QUEUE = "mail"
LATENCY_MS = 30
SINGLE = 100  # jobs, each when nobody is awake
BULK = 1_000  # jobs at once
BATCHES = (1, 10, 100)
MOST = 4
START_MS_MAX = 400.0
STUCK_S = 120.0
LOOK_S = 0.005


def run(options: BenchOptions) -> Iterator[Figure]:
    starts = sorted(single(max(10, round(SINGLE * options.scale))))
    for share in (50, 99):
        waited = starts[min(len(starts) - 1, len(starts) * share // 100)] * 1000
        what = f"enqueue to start, nobody awake, p{share}"
        yield at_most(what, waited, START_MS_MAX, "ms") if share == 50 else Figure(what, waited, "ms")
    jobs = max(100, round(BULK * options.scale))
    for batch in BATCHES:
        asked, invocations, seconds = bulk(jobs, batch)
        note = f"{seconds:.1f} s for {jobs:,} jobs, {MOST} consumers at most"
        yield Figure(f"PUT a job, batches of {batch}", asked["put"] / jobs, "", note=note)
        yield Figure(f"GET a job, batches of {batch}", asked["get"] / jobs, "")
        yield Figure(f"invocations a job, batches of {batch}", invocations / jobs, "")


def single(jobs: int) -> list[float]:
    """Seconds from the call of an enqueue to its handler, for each of so many jobs, one after the other."""
    with consuming(batch=1) as (queue, notes):
        called = []
        for number in range(-1, jobs):  # the first one starts the process
            called.append(monotonic())
            queue.enqueue(number)
            until(lambda most=number: sum("claimed" in line for line in lines(notes)) > most + 1)
        began = {line["job"]: line["began"] for line in lines(notes) if "job" in line}
        return [began[number] - called[number + 1] for number in range(jobs)]


def bulk(jobs: int, batch: int) -> tuple[Counter[str], int, float]:
    """What the consumers asked for a bulk, in how many invocations, and how long all took."""
    with consuming(batch) as (queue, notes):
        began = monotonic()
        queue.enqueue_many([{"payload": number} for number in range(jobs)])
        until(lambda: sum(line.get("claimed", 0) for line in lines(notes)) >= jobs)
        seconds = monotonic() - began
        asked: Counter[str] = Counter()
        found = [line for line in lines(notes) if "asked" in line]
        for line in found:
            asked.update(line["asked"])
        return asked, len(found), seconds


@contextmanager
def consuming(batch: int) -> Iterator[tuple[Queue[Any], Path]]:
    """A queue with a consumer in a stack of its own, and the folder of its notes."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        notes = Path(folder) / "notes"
        notes.mkdir()
        address = f"file://{folder}/store?fsync=off&latency_ms={LATENCY_MS}"
        with Stack(
            address,
            consumers=[f"{QUEUE}={consumed.__file__}"],
            variables={consumed.PLACE: str(notes)},
            processes=MOST,
        ) as stack:
            os.environ["AWS_ENDPOINT_URL_LAMBDA"] = stack.url
            os.environ.setdefault("AWS_REGION", "us-east-1")
            queue: Queue[Any] = Queue.connect(address, QUEUE, waker=LambdaWaker())
            (name, told) = next(iter(queue.stats()["settings"]["consumers"].items()))
            wished = {"target": told["target"], "batch": batch, "max_concurrency": MOST}
            queue.configure(consumers={name: wished})
            try:
                yield queue, notes
            finally:
                del os.environ["AWS_ENDPOINT_URL_LAMBDA"]


def lines(notes: Path) -> list[dict[str, Any]]:
    """What all processes noted."""
    return [
        json.loads(line)
        for file in notes.iterdir()
        for line in file.read_text().splitlines()
        if line.endswith("}")
    ]


def until(condition: Any) -> None:
    """Wait for what tells nobody when it happens."""
    end = monotonic() + STUCK_S
    while not condition():
        if monotonic() > end:
            raise TimeoutError("the consumers do not come")
        sleep(LOOK_S)
