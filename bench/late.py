"""How late jobs start that time alone makes due, and how much of its rate a limiter with a burst of 1 reaches.

One process with one worker for each kind of store. A job becomes due by a delay, by a retry or by the end of a lease.
Its lateness runs from the call that set the delay to the start of the handler, less the delay, so it includes two
commits. The worker of a limited queue has more jobs than may start; the share counts the gaps between its starts.

S3 and Google Cloud Storage are stand-ins in this process whose clocks have whole seconds, as the real ones have.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.embedded_wake import percentile
from bench.row import BenchOptions, Figure, at_least, at_most
from osqueue import Queue, Retry
from osqueue.clock import MACHINE
from osqueue.worker.loop import Worker
from tests.support import gcs_server, s3_server
from tests.support.light_s3 import LightS3
from tests.support.valkey_server import BINARY, ValkeyServer

EXACT = ("memory", "folder", "valkey")  # kinds of stores that have milliseconds
LATE_MS_MAX = 50.0
LATE_MS_MAX_SECONDS = 2_100.0  # where clocks have whole seconds: the documented two, and the requests
WAYS = ("delay", "retry", "lease")
JOBS = 40  # of each way
JOBS_MIN = 5
LEASE_S = 1.0  # the shortest one
GAP_S = 0.05  # between the due times of two jobs
RATE = 20  # starts a second
SHARE_MIN = {"memory": 0.95, "folder": 0.95, "valkey": 0.85}
PERCENTILES = (50, 99)


def run(options: BenchOptions) -> Iterator[Figure]:
    """Measure each kind of store in turn."""
    jobs = max(JOBS_MIN, round(JOBS * options.scale))
    logging.getLogger("osqueue").setLevel(logging.ERROR)  # each retry is logged
    for kind, address in addresses():
        goal_ms = LATE_MS_MAX if kind in EXACT else LATE_MS_MAX_SECONDS
        for way in WAYS:
            late = lateness(address, way, jobs)
            note = f"{len(late)} jobs, the earliest {min(late):,.1f} ms"
            for percent in PERCENTILES:
                name = f"{kind}, {way}, p{percent}"
                yield at_most(name, percentile(late, percent), goal_ms, "ms late", note)
                note = ""
        share, starts = limiter_share(address, max(2.0, options.seconds))
        name, note = f"{kind}, {RATE} a second, burst 1", f"{starts} starts"
        if kind in SHARE_MIN:
            yield at_least(name, share, SHARE_MIN[kind], "of the rate", note)
        else:
            yield Figure(name, share, "of the rate", note=note)


def addresses() -> Iterator[tuple[str, str]]:
    """Yield each kind of store with an address, which works until the next one is asked for."""
    yield "memory", "memory://late"
    with tempfile.TemporaryDirectory(prefix="osqueue-bench-") as folder:
        yield "folder", f"file://{folder}/late"
        if BINARY is not None:
            server = ValkeyServer(Path(folder) / "valkey")
            server.start()
            try:
                yield "valkey", server.address("late")
            finally:
                server.end()
    for kind, scheme, environment, stand_in in (
        ("S3", "s3", s3_server.ENVIRONMENT, LightS3),
        ("GCS", "gs", gcs_server.ENVIRONMENT, gcs_server.GcsServer),
    ):
        with patch.dict(os.environ, environment), gcs_server.gcs_server(stand_in) as cloud:
            cloud.buckets["late"] = {}
            yield kind, f"{scheme}://late/q?endpoint={cloud.endpoint}"


@contextmanager
def working(queue: Queue[Any]) -> Iterator[None]:
    """Run a worker of a queue in a thread meanwhile."""
    worker = Worker(queue, signals=False)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def lateness(address: str, way: str, jobs: int) -> list[float]:
    """Return how many ms late each job started."""
    with ExitStack() as stack:
        producer, consumer = (stack.enter_context(Queue.connect(address, f"late-{way}")) for _ in range(2))
        due: dict[int, float] = {}
        late: list[float] = []
        done = threading.Event()

        def start(job: Any) -> None:
            now = MACHINE.monotonic()
            if way == "retry" and job.attempt == 1:
                due[job.payload] = now + delay_s(job.payload)
                raise Retry(delay_s(job.payload))
            late.append((now - due[job.payload]) * 1000)
            if len(late) == jobs:
                done.set()

        consumer.handler(start)
        producer.enqueue(0)  # the first call of each object opens connections
        consumer.claim()[0].complete()
        if way == "lease":
            producer.enqueue_many([{"payload": number} for number in range(jobs)])
            for number in range(jobs):
                lease_s = LEASE_S + number * GAP_S
                now = MACHINE.monotonic()
                [lease] = producer.claim(lease=lease_s)  # never completed
                due[lease.payload] = now + lease_s
        stack.enter_context(working(consumer))
        for number in range(jobs if way != "lease" else 0):
            if way == "delay":
                due[number] = MACHINE.monotonic() + delay_s(number)
            producer.enqueue(number, delay=delay_s(number) if way == "delay" else 0.0)
            MACHINE.sleep(GAP_S)
        if not done.wait(60.0):
            raise RuntimeError(f"{address}: {len(late)} of {jobs} jobs started in a minute")
    return late


def delay_s(number: int) -> float:
    """Return the delay of a job, in seconds: each ends at another part of a second."""
    return 0.3 + number * 0.137 % 1.0


def limiter_share(address: str, seconds: float) -> tuple[float, int]:
    """Return the rate of starts over the rate that the queue allows, and the number of starts."""
    with Queue.connect(address, "limited") as queue:
        queue.configure(rate=(RATE, 1), burst=1)
        queue.enqueue_many([{"payload": at} for at in range(round(RATE * seconds) + RATE)])
        starts: list[float] = []
        queue.handler(lambda job: starts.append(MACHINE.monotonic()))
        with working(queue):
            MACHINE.sleep(seconds)
    return (len(starts) - 1) / (starts[-1] - starts[0]) / RATE, len(starts)
