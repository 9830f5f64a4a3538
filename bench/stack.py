"""The local stack: what the functions cost over a bare Lambda runtime, over processes, in S3 requests, when cold, and a
worker's batch.

A function's process is the real runtime client with the real handler, called over HTTP, on a folder without flushes.
The bare one is the same with a handler that answers at once, called in turn with ours.
"""

from __future__ import annotations

import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import urllib3

from bench.fleet import ROOT
from bench.row import BenchOptions, Figure, at_most, exactly, ratio
from osqueue import Queue
from osqueue.contract.functions import BY_NAME, FUNCTIONS, HANDLER, LOG_LEVEL
from osqueue.devstack import Stack
from osqueue.devstack.environment import environment_of

BARE = "def handler(event, context):\n    return {'statusCode': 200, 'body': '{}'}\n"
CALLS = 300  # of each kind, in turn
COLD_TIMES = 5
CLIENTS = 16
BATCHES = 50
BATCH = 10  # jobs in one call of a worker's handler
PROCESSES = (1, 4, 8)
DELAY_MS = 30  # added to every store request where processes are compared, as S3 takes
QUEUE = "/v1/queues/bench"
JOB = {"payload": {"to": "ada"}}

Call = Callable[[], Any]


def run(options: BenchOptions) -> Iterator[Figure]:
    with TemporaryDirectory(prefix="osqueue-bench-") as folder:
        yield from warm(Path(folder), max(20, int(CALLS * options.scale)))
        yield from counted(Path(folder))
        yield from batches(Path(folder), max(5, int(BATCHES * options.scale)))
        yield from cold(Path(folder), max(2, int(COLD_TIMES * options.scale)))
        for processes in PROCESSES:
            yield from busy(Path(folder), processes, options.seconds)


# ── One caller, warm ─────────────────────────────────────────────────────────
def warm(folder: Path, calls: int) -> Iterator[Figure]:
    """Milliseconds of one warm request, against the bare runtime's."""
    with (
        Stack(store(folder, "bare"), functions=bare(folder), schedule_seconds=0) as lazy,
        Stack(store(folder, "warm"), schedule_seconds=0) as ours,
    ):
        kinds: dict[str, Call] = {
            "bare runtime": lambda: post(lazy, "/jobs", JOB),
            "health": lambda: get(ours, "/healthz"),
            "enqueue": lambda: post(ours, "/jobs", JOB),
            "empty claim": lambda: post(ours, "-nothing/claims", {"worker": "bench"}),
        }
        took: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(calls):
            for name, call in kinds.items():
                begun = time.perf_counter()
                call()
                took[name].append((time.perf_counter() - begun) * 1000)
    median = {name: statistics.median(times[5:]) for name, times in took.items()}
    for name, ms in median.items():
        yield Figure(f"warm, {name}", ms, "ms", note=f"median of {calls}, one caller, over HTTP")
    for name in list(kinds)[1:]:
        over = median[name] - median["bare runtime"]
        yield Figure(
            f"warm, {name} over the bare runtime",
            ratio(median[name], median["bare runtime"]),
            "x",
            note=f"{over:+.2f} ms",
        )


# ── Requests to the store ────────────────────────────────────────────────────
def counted(folder: Path) -> Iterator[Figure]:
    """Store requests of one warm call, as its function logs them: called again, and after others have written."""
    logged: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def on_line(who: str, line: str) -> None:
        if line.startswith("{") and "status" in (told := json.loads(line)):
            logged.put(told)

    with Stack(
        store(folder, "counted"),
        processes=1,
        schedule_seconds=0,
        variables={LOG_LEVEL: "DEBUG"},  # an empty claim is no news otherwise
        on_line=on_line,
    ) as stack:

        def count(call: Call) -> tuple[Any, Counter[str]]:
            found = call()
            return found, Counter(logged.get(timeout=60).get("requests") or {})

        # The last of each is warm.
        turns = [dict(life(stack, count)) for _ in range(4)]
        again = [count(lambda: post(stack, "/jobs", JOB))[1] for _ in range(3)]
    for name, requests in {"enqueue, again": again[-1], **turns[-1]}.items():
        note = ", ".join(f"{number} {kind.upper()}" for kind, number in requests.items()) or "none"
        if name == "empty claim":
            yield exactly(
                f"S3 requests, {name}, writes", requests["put"] + requests["delete"], 0, "requests", note
            )
        else:
            yield Figure(f"S3 requests, {name}", requests.total(), "requests", note=note)


def life(
    stack: Stack, count: Callable[[Call], tuple[Any, Counter[str]]]
) -> Iterator[tuple[str, Counter[str]]]:
    """One job, each step by the process of another function, which knows what it wrote itself and no more."""
    job, requests = count(lambda: post(stack, "/jobs", JOB))
    yield "enqueue, after others", requests
    claimed, requests = count(lambda: post(stack, "/claims", {"worker": "bench"}))
    yield "claim", requests
    held = {"job_id": job["job_id"], "token": claimed["jobs"][0]["token"]}
    yield "heartbeat", count(lambda: post(stack, "/heartbeats", {"leases": [held]}))[1]
    yield "complete", count(lambda: post(stack, "/completions", {"completions": [{**held, "result": 1}]}))[1]
    yield "result", count(lambda: get(stack, f"{QUEUE}/jobs/{job['job_id']}/result"))[1]
    yield "status", count(lambda: get(stack, f"{QUEUE}/jobs/{job['job_id']}"))[1]
    yield "stats", count(lambda: get(stack, QUEUE))[1]
    yield "empty claim", count(lambda: post(stack, "/claims", {"worker": "bench"}))[1]


# ── A worker ─────────────────────────────────────────────────────────────────
def batches(folder: Path, count: int) -> Iterator[Figure]:
    """A worker that takes ten jobs at once: calls and store requests of each batch, and jobs a second."""
    logged: list[dict[str, Any]] = []

    def on_line(who: str, line: str) -> None:
        if line.startswith("{") and "status" in (told := json.loads(line)):
            logged.append(told)

    address = f"{store(folder, 'batches')}&latency_ms={DELAY_MS}"
    variables = {LOG_LEVEL: "DEBUG"}
    with (
        Stack(address, schedule_seconds=0, variables=variables, on_line=on_line) as stack,
        Queue.connect(stack.url, "bench") as q,
    ):
        q.handler(batch=BATCH)(lambda jobs: None)
        q.run(until_empty=True, poll=0.05, concurrency=1, signals=False)  # starts the processes
        q.enqueue_many([{"payload": JOB} for _ in range(count * BATCH)])
        before = len(logged)
        begun = time.perf_counter()
        q.run(until_empty=True, poll=0.05, concurrency=1, signals=False)
        took = time.perf_counter() - begun
    # The stack has ended, so all is logged. What was on its way before is among the first of it.
    calls = [each for each in logged[before:] if each["message"] != "enqueue"]
    requests = Counter[str]()
    for each in calls:
        requests.update(each.get("requests") or {})
    note = ", ".join(
        f"{number} {name}" for name, number in Counter(each["message"] for each in calls).items()
    )
    yield at_most(
        "worker, calls of a batch", len(calls) / count, 1.2, "calls", f"{note}; {count} batches of {BATCH}"
    )
    for kind in ("put", "get", "list"):
        yield Figure(f"worker, {kind.upper()} of a batch", requests[kind] / count, "requests")
    yield Figure(
        "worker, one batch after the other",
        count * BATCH / took,
        "jobs/s",
        note=f"{DELAY_MS} ms a store request",
    )


# ── Cold ─────────────────────────────────────────────────────────────────────
def cold(folder: Path, times: int) -> Iterator[Figure]:
    """CPU of a handler's import, and the time from the first request to its answer, which starts the process."""
    address = store(folder, "cold")
    cpu = {"bare runtime": [import_cpu_ms(bare(folder) / "jobs", address) for _ in range(times)]}
    for each in FUNCTIONS:
        place = ROOT / "functions" / each.name
        cpu[each.name] = [import_cpu_ms(place, address, each.name) for _ in range(times)]
    lazy = statistics.median(first_ms(address, "jobs", bare(folder)) for _ in range(times))
    for name, values in cpu.items():
        yield Figure(
            f"cold, {name}, CPU of the import", statistics.median(values), "ms", note=f"median of {times}"
        )
    yield Figure("cold, bare runtime, to its first answer", lazy, "ms")
    for name in BY_NAME:
        first = statistics.median(first_ms(address, name, None) for _ in range(times))
        yield Figure(
            f"cold, {name}, to its first answer",
            first,
            "ms",
            note=f"{ratio(first, lazy):.1f} x the bare runtime",
        )


TIMED = "import time; t = time.process_time(); import handler; print((time.process_time() - t) * 1000)"


def import_cpu_ms(place: Path, address: str, name: str = "jobs") -> float:
    """The CPU milliseconds of importing a handler in a process that has the runtime client already."""
    environment = environment_of(BY_NAME[name], "osqueue-dev", address, place, HANDLER)
    answer = subprocess.run(
        [sys.executable, "-c", "import awslambdaric.bootstrap; " + TIMED],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return float(answer.stdout.splitlines()[-1])


def first_ms(address: str, name: str, functions: Path | None) -> float:
    """Milliseconds from an invocation that finds no process to its answer."""
    event = {
        "method": "GET",
        "path": "/healthz",
    }  # which only one of them has: the others answer that at once
    with Stack(address, functions=functions, schedule_seconds=0) as stack:
        begun = time.perf_counter()
        outcome = stack.invoke(name, event, patience_s=60)
        took = (time.perf_counter() - begun) * 1000
    if outcome.failed:
        raise RuntimeError(f"{name}: {outcome.payload.decode()}")
    return took


# ── Many callers ─────────────────────────────────────────────────────────────
def busy(folder: Path, processes: int, seconds: float) -> Iterator[Figure]:
    """Requests a second of many callers, over so many processes of a function."""
    address = f"{store(folder, f'busy-{processes}')}&latency_ms={DELAY_MS}"
    with Stack(address, processes=processes, schedule_seconds=0) as stack:
        job = post(stack, "/jobs", JOB)["job_id"]
        status, jobs = f"{stack.url}{QUEUE}/jobs/{job}", f"{stack.url}{QUEUE}/jobs"
        kinds: dict[str, Callable[[], int]] = {
            "a job's status": lambda: http.request("GET", status).status,
            "enqueue": lambda: http.request("POST", jobs, json=JOB).status,
        }
        for name, call in kinds.items():
            statuses = at_once(call, seconds)
            note = f"{CLIENTS} callers, {DELAY_MS} ms a store request, {os.cpu_count()} CPUs"
            if others := statuses.total() - statuses[200]:
                note += f"; {others} answered otherwise"
            yield Figure(
                f"busy, {processes} processes, {name}", statuses[200] / seconds, "requests/s", note=note
            )


def at_once(call: Callable[[], int], seconds: float) -> Counter[int]:
    """How many callers were answered with each status in that time, all of them calling again and again."""
    statuses: Counter[int] = Counter()
    ready = threading.Barrier(CLIENTS)

    def calls() -> None:
        call()  # starts the processes
        ready.wait()
        until = time.perf_counter() + seconds
        while (found := call()) and time.perf_counter() < until:
            statuses[found] += 1

    threads = [threading.Thread(target=calls) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


# ── Calls ────────────────────────────────────────────────────────────────────
http = urllib3.PoolManager(maxsize=CLIENTS, retries=False, timeout=60)


def post(stack: Stack, path: str, body: object) -> Any:
    return answer(http.request("POST", f"{stack.url}{QUEUE}{path}", json=body))


def get(stack: Stack, path: str) -> Any:
    return answer(http.request("GET", stack.url + path))


def answer(found: urllib3.BaseHTTPResponse) -> Any:
    if found.status != 200:
        raise RuntimeError(f"the stack answered {found.status}: {found.data[:200]!r}")
    return found.json()


def store(folder: Path, name: str) -> str:
    return f"file://{folder}/{name}?fsync=off"


def bare(folder: Path) -> Path:
    """A folder of functions that do nothing."""
    for each in FUNCTIONS:
        place = folder / "functions" / each.name
        place.mkdir(parents=True, exist_ok=True)
        (place / "handler.py").write_text(BARE)
    return folder / "functions"
