"""The server: many callers against the local stack, how long one caller waits, and what idle workers cost.

Callers are coroutines of this process that send one job a call over connections they keep, in as few steps as HTTP
takes: a client that is slower than the server would be what is measured. Both servers work on a folder with 30 ms added
to each store request, as S3 takes; they are measured in turn, in one run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from bench.row import BenchOptions, Figure, at_least, at_most, ratio
from osqueue.devstack import Stack

CALLERS = 32
WORKERS = 2
DELAY_MS = 30
PROCESSES = 8  # of each function of the local stack
WARM_CALLS = 1_000
IDLE = 1_000  # workers that wait for a job, again and again
IDLE_WAIT_S = 20
QUEUE = "/v1/queues/bench"
JOB = json.dumps({"payload": {"to": "ada"}}).encode()
LENGTH = re.compile(rb"(?i)content-length: (\d+)")


def run(options: BenchOptions) -> Iterator[Figure]:
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        yield from crowd(Path(folder), options)
        yield from alone(Path(folder), max(50, int(WARM_CALLS * options.scale)))
        yield from idle(Path(folder), max(10, int(IDLE * options.scale)), 5 * options.seconds)


# ── Many callers ─────────────────────────────────────────────────────────────
def crowd(folder: Path, options: BenchOptions) -> Iterator[Figure]:
    """Jobs a second of many callers, one job a call, by server."""
    found: dict[str, list[float]] = {}
    for turn in range(options.rounds):
        slow = f"?fsync=off&latency_ms={DELAY_MS}"
        with Stack(f"file://{folder}/dev{turn}{slow}", processes=PROCESSES, schedule_seconds=0) as stack:
            found.setdefault("dev", []).append(asyncio.run(jobs_a_second(stack.url, options.seconds)))
        for workers in (1, WORKERS):
            with serving(f"file://{folder}/serve{turn}-{workers}{slow}", workers) as server:
                name = f"serve, {workers} worker{'s' * (workers > 1)}"
                rate = asyncio.run(jobs_a_second(server.url, options.seconds))
                found.setdefault(name, []).append(rate)
    rates = {name: statistics.median(values) for name, values in found.items()}
    note = (
        f"{CALLERS} callers, {DELAY_MS} ms a store request, {os.cpu_count()} CPUs, median of {options.rounds}"
    )
    for name, rate in rates.items():
        yield Figure(name, rate, "jobs/s", note=note)
    for name in list(rates)[1:]:
        yield at_least(f"{name}, against dev", ratio(rates[name], rates["dev"]), 8)


async def jobs_a_second(url: str, seconds: float) -> float:
    ended: list[float] = []

    async def calls(until: float) -> None:
        async with caller(url) as ask:
            while time.perf_counter() < until:
                await ask("POST", f"{QUEUE}/jobs", JOB)
                ended.append(time.perf_counter())

    warm = time.perf_counter() + 1.0
    until = warm + seconds
    await asyncio.gather(*[calls(until) for _ in range(CALLERS)])
    return sum(warm <= each < until for each in ended) / seconds


# ── One caller ───────────────────────────────────────────────────────────────
def alone(folder: Path, calls: int) -> Iterator[Figure]:
    """Milliseconds of an enqueue over loopback, on a folder as it is."""

    async def times(url: str) -> list[float]:
        took = []
        async with caller(url) as ask:
            for _ in range(20 + calls):
                begun = time.perf_counter()
                await ask("POST", f"{QUEUE}/jobs", JOB)
                took.append((time.perf_counter() - begun) * 1000)
        return sorted(took[20:])

    with serving(f"file://{folder}/alone", 1) as server:
        took = asyncio.run(times(server.url))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        value = took[int(share * len(took))]
        yield Figure(f"warm enqueue, {name}", value, "ms", note=f"{calls} calls, a folder with flushes")


# ── Idle workers ─────────────────────────────────────────────────────────────
def idle(folder: Path, workers: int, seconds: float) -> Iterator[Figure]:
    """Requests to the store, and memory, while workers wait and there is nothing."""

    async def wait(url: str) -> tuple[float, int]:
        answers = 0

        async def one(at: int) -> None:
            nonlocal answers
            body = json.dumps({"worker": f"w{at}", "wait": IDLE_WAIT_S}).encode()
            async with caller(url) as ask:
                await asyncio.sleep(IDLE_WAIT_S * at / workers)  # they do not come all at once
                while True:
                    await ask("POST", f"{QUEUE}/claims", body)
                    answers += 1

        async with caller(url) as ask:
            job = json.loads(await ask("POST", f"{QUEUE}/jobs", JOB))["job_id"]
            await ask("DELETE", f"{QUEUE}/jobs/{job}")
        tasks = [asyncio.create_task(one(at)) for at in range(workers)]
        await asyncio.sleep(IDLE_WAIT_S * 1.2)
        before, answered = store_requests(url), answers
        await asyncio.sleep(seconds)
        found = (store_requests(url) - before) / seconds, answers - answered
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return found

    with serving(f"file://{folder}/idle?fsync=off&latency_ms={DELAY_MS}", 1) as server:
        rate, answers = asyncio.run(wait(server.url))
        memory = server.memory_mb()
    note = f"{answers} claims answered in {seconds:g} s, upkeep included"
    yield at_most(f"{workers:,} idle workers, store requests", rate, 5, "requests/s", note)
    yield Figure(f"{workers:,} idle workers, memory of the server", memory, "MB")


def store_requests(url: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics") as answer:  # noqa: S310 - on loopback
        text = answer.read().decode()
    return sum(map(float, re.findall(r"^osqueue_store_requests_total\{.*\} (\S+)$", text, re.MULTILINE)))


# ── Servers and calls ────────────────────────────────────────────────────────
class RunningServer(Struct):
    """A running server."""

    url: str
    process: int

    def memory_mb(self) -> float:
        """What it holds of the machine's memory."""
        status = Path(f"/proc/{self.process}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", status)
        assert found is not None
        return int(found[1]) / 1024


@contextmanager
def serving(address: str, workers: int) -> Iterator[RunningServer]:
    """``osqueue serve`` while the block lasts."""
    command = [sys.executable, "-m", "osqueue", "serve", address, "--workers", str(workers)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--log-level", "warning", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        url: str = json.loads(process.stdout.readline())["url"]
        for _ in range(workers * 4):  # until all of them have begun
            with urllib.request.urlopen(f"{url}/healthz"):  # noqa: S310 - on loopback
                time.sleep(0.5)
        yield RunningServer(url, process.pid)
    finally:
        process.terminate()
        process.wait(60)


Ask = Callable[..., Awaitable[bytes]]


class caller:  # noqa: N801 - used as a function
    """A connection that is kept: ``async with caller(url) as ask``."""

    def __init__(self, url: str) -> None:
        self._host, _, self._port = url.removeprefix("http://").partition(":")

    async def __aenter__(self) -> Ask:
        self._reader, self._writer = await asyncio.open_connection(self._host, int(self._port))
        return self._ask

    async def __aexit__(self, *exc: object) -> None:
        self._writer.close()

    async def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(answer)
        found = await self._reader.readexactly(int(length[1])) if length is not None else b""
        if answer[9:12] != b"200":
            raise RuntimeError(f"the server answered {answer[9:12]!r}: {found[:200]!r}")
        return found
