"""The server: many callers against the local stack, and how long one caller waits.

Callers are threads of this process that send one job a call over connections they keep. Both servers work on a folder
with 30 ms added to each store request, as S3 takes; they are measured in turn, in one run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import urllib3

from bench.row import BenchOptions, Figure, at_least, ratio
from osqueue.devstack import Stack

CALLERS = 32
WORKERS = 2
DELAY_MS = 30
PROCESSES = 8  # of each function of the local stack
WARM_CALLS = 1_000
QUEUE = "/v1/queues/bench"
JOB = json.dumps({"payload": {"to": "ada"}}).encode()


def run(options: BenchOptions) -> Iterator[Figure]:
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        yield from crowd(Path(folder), options)
        yield from alone(Path(folder), max(50, int(WARM_CALLS * options.scale)))


# ── Many callers ─────────────────────────────────────────────────────────────
def crowd(folder: Path, options: BenchOptions) -> Iterator[Figure]:
    """Jobs a second of many callers, one job a call, by server."""
    found: dict[str, list[float]] = {}
    for turn in range(options.rounds):
        slow = f"?fsync=off&latency_ms={DELAY_MS}"
        with Stack(f"file://{folder}/dev{turn}{slow}", processes=PROCESSES, schedule_seconds=0) as stack:
            found.setdefault("dev", []).append(jobs_a_second(stack.url, options.seconds))
        for workers in (1, WORKERS):
            with serving(f"file://{folder}/serve{turn}-{workers}{slow}", workers) as url:
                name = f"serve, {workers} worker{'s' * (workers > 1)}"
                found.setdefault(name, []).append(jobs_a_second(url, options.seconds))
    rates = {name: statistics.median(values) for name, values in found.items()}
    note = (
        f"{CALLERS} callers, {DELAY_MS} ms a store request, {os.cpu_count()} CPUs, median of {options.rounds}"
    )
    for name, rate in rates.items():
        yield Figure(name, rate, "jobs/s", note=note)
    for name in list(rates)[1:]:
        yield at_least(f"{name}, against dev", ratio(rates[name], rates["dev"]), 8)


def jobs_a_second(url: str, seconds: float) -> float:
    post(url)
    ready = threading.Barrier(CALLERS + 1)
    counts: list[int] = []

    def calls() -> None:
        post(url)
        ready.wait()
        until, count = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            post(url)
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=calls) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    ready.wait()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


# ── One caller ───────────────────────────────────────────────────────────────
def alone(folder: Path, calls: int) -> Iterator[Figure]:
    """Milliseconds of an enqueue over loopback, on a folder as it is."""
    with serving(f"file://{folder}/alone", 1) as url:
        for _ in range(20):
            post(url)
        took = []
        for _ in range(calls):
            begun = time.perf_counter()
            post(url)
            took.append((time.perf_counter() - begun) * 1000)
    took.sort()
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        value = took[int(share * len(took))]
        yield Figure(f"warm enqueue, {name}", value, "ms", note=f"{calls} calls, a folder with flushes")


# ── Servers and calls ────────────────────────────────────────────────────────
@contextmanager
def serving(address: str, workers: int) -> Iterator[str]:
    """``osqueue serve`` while the block lasts; gives the base URL."""
    command = [sys.executable, "-m", "osqueue", "serve", address, "--workers", str(workers)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--log-level", "warning", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        url: str = json.loads(process.stdout.readline())["url"]
        wait_until(lambda: http.request("GET", f"{url}/healthz").status == 200)
        time.sleep(1)  # for the processes behind the first
        yield url
    finally:
        process.terminate()
        process.wait(60)


def wait_until(what: Callable[[], bool]) -> None:
    while not what():
        time.sleep(0.05)


http = urllib3.PoolManager(maxsize=CALLERS, retries=False, timeout=60)


def post(url: str) -> Any:
    found = http.request("POST", f"{url}{QUEUE}/jobs", body=JOB, headers={"content-type": "application/json"})
    if found.status != 200:
        raise RuntimeError(f"the server answered {found.status}: {found.data[:200]!r}")
    return found
