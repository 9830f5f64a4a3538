"""Our side of the benchmarks, through the public library alone; one program per benchmark.

Prints ``ready``, waits for a line on standard input, works, and prints one line of JSON (see ``fleet.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from osqueue import AsyncQueue, Queue

NAME = "emails"
PAYLOAD = {"to": "somebody@example.com", "template": "welcome", "n": 12345}

Answer = dict[str, Any]


def gate() -> None:
    """Say that everything is imported and open, and wait for the others."""
    print("ready", flush=True)
    input()


def asked(queue: Queue[Any] | AsyncQueue[Any]) -> dict[str, int]:
    """The store requests a queue object has made until now, by kind."""
    return {kind: queue.requests[kind] for kind in ("get", "put", "list", "delete")}


def since(queue: Queue[Any], before: dict[str, int]) -> dict[str, int]:
    return {kind: count - before[kind] for kind, count in asked(queue).items()}


def memory_mb() -> float:
    """The most memory this process has held so far, in MB (2**20 bytes)."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux: getrusage would still remember the process that started this one
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def writer(arguments: argparse.Namespace) -> Answer:
    """One independent process, one job per call. What ends after the time is up does not count."""
    queue = Queue.connect(arguments.address, NAME)
    gate()
    done, failures, waits = 0, Counter[str](), []
    start = time.monotonic()
    end = start + arguments.seconds
    while (begun := time.monotonic()) < end:
        try:
            queue.enqueue(PAYLOAD)
        except Exception as error:  # noqa: BLE001 - whatever a caller would have seen counts as a failure
            failures[type(error).__name__] += 1
            continue
        if (now := time.monotonic()) <= end:
            done += 1
            waits.append(now - begun)
    answer = {"done": done, "failed": failures.total(), "failures": failures, "waits": waits}
    return answer | {"requests": asked(queue)}


def cycle_in_threads(arguments: argparse.Namespace) -> Answer:
    """Threads on one queue object, each enqueuing, claiming and completing ``batch`` jobs at a time."""
    queue = Queue.connect(arguments.address, NAME)
    batch, jobs = arguments.batch, [{"payload": PAYLOAD}] * arguments.batch
    gate()
    start = time.monotonic()
    end = start + arguments.seconds

    def caller(_: int) -> int:
        done = 0
        while time.monotonic() < end:
            if batch == 1:
                queue.enqueue(PAYLOAD)
            else:
                queue.enqueue_many(jobs)
            leases = queue.claim(limit=batch)
            if len(leases) == 1:
                leases[0].complete()
            elif leases:
                queue.complete_many(leases)
            done += len(leases)
        return done

    with ThreadPoolExecutor(arguments.callers) as pool:
        done = sum(pool.map(caller, range(arguments.callers)))
    return {"done": done, "seconds": time.monotonic() - start, "requests": asked(queue)}


def cycle_in_tasks(arguments: argparse.Namespace) -> Answer:
    """The same by coroutines of one event loop on one AsyncQueue."""

    async def work() -> Answer:
        queue = AsyncQueue.connect(arguments.address, NAME)
        batch, jobs = arguments.batch, [{"payload": PAYLOAD}] * arguments.batch
        gate()
        start = time.monotonic()
        end = start + arguments.seconds

        async def caller() -> int:
            done = 0
            while time.monotonic() < end:
                if batch == 1:
                    await queue.enqueue(PAYLOAD)
                else:
                    await queue.enqueue_many(jobs)
                leases = await queue.claim(limit=batch)
                if len(leases) == 1:
                    await leases[0].complete()
                elif leases:
                    await queue.complete_many(leases)
                done += len(leases)
            return done

        done = sum(await asyncio.gather(*(caller() for _ in range(arguments.callers))))
        return {"done": done, "seconds": time.monotonic() - start, "requests": asked(queue)}

    return asyncio.run(work())


def cycle(arguments: argparse.Namespace) -> Answer:
    return cycle_in_tasks(arguments) if arguments.by == "tasks" else cycle_in_threads(arguments)


def requests(arguments: argparse.Namespace) -> Answer:
    """What a warm operation and an empty claim ask of the store."""
    queue = Queue.connect(arguments.address, NAME)
    gate()
    answer: Answer = {}
    for _ in ("cold", "warm"):
        before = asked(queue)
        queue.enqueue(PAYLOAD)
        answer["enqueue"], before = since(queue, before), asked(queue)
        [lease] = queue.claim()
        answer["claim"], before = since(queue, before), asked(queue)
        lease.heartbeat()
        answer["heartbeat"], before = since(queue, before), asked(queue)
        lease.complete()
        answer["complete"], before = since(queue, before), asked(queue)
        if queue.claim():
            raise RuntimeError("the queue should have been empty")
        answer["empty claim"] = since(queue, before)
    return answer


def head_bytes(folder: Path) -> int | None:
    """The size of the largest head among a file store's objects."""
    sizes = [path.stat().st_size for path in folder.rglob("head*") if path.is_file()]
    return max(sizes, default=None)


def fill(queue: Queue[Any], jobs: int) -> None:
    queue.enqueue_many([{"payload": PAYLOAD}] * jobs)


def depth(arguments: argparse.Namespace) -> Answer:
    """Commit times of two queues, one short and one deep, taken in turn; then the size of their heads."""
    sides = {jobs: Path(arguments.folder) / str(jobs) for jobs in (arguments.shallow, arguments.deep)}
    queues = {jobs: Queue.connect(f"file://{folder}?fsync=off", NAME) for jobs, folder in sides.items()}
    for jobs, queue in queues.items():
        fill(queue, jobs)
    gate()
    times: dict[int, list[float]] = {jobs: [] for jobs in queues}

    def timed(jobs: int, call: Any) -> Any:
        begun = time.perf_counter()
        answer = call()
        times[jobs].append(time.perf_counter() - begun)
        return answer

    for _ in range(arguments.commits // 3):
        for jobs, queue in queues.items():
            timed(jobs, lambda queue=queue: queue.enqueue(PAYLOAD))
            [lease] = timed(jobs, queue.claim)
            timed(jobs, lease.complete)
    return {
        side: {
            "median_s": statistics.median(times[jobs]),
            "p99_s": statistics.quantiles(times[jobs], n=100)[98],
            "bytes": head_bytes(sides[jobs]),
        }
        for side, jobs in (("shallow", arguments.shallow), ("deep", arguments.deep))
    }


def bulk(arguments: argparse.Namespace) -> Answer:
    """One call that enqueues ``jobs`` jobs, each with a payload of its own."""
    queue = Queue.connect(arguments.address, NAME)
    jobs = [{"payload": {**PAYLOAD, "n": n}} for n in range(arguments.jobs)]
    gate()
    held_mb = memory_mb()
    begun = time.monotonic()
    outcomes = queue.enqueue_many(jobs)
    seconds = time.monotonic() - begun
    queued = sum(outcome.status == "queued" for outcome in outcomes)
    [lease] = queue.claim()
    return {
        "seconds": seconds,
        "requests": asked(queue),
        "queued": queued,
        "first": lease.payload == jobs[0]["payload"],
        "input_mb": held_mb,
        "peak_mb": memory_mb(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = parser.add_subparsers(required=True)
    program = programs.add_parser("writer")
    program.set_defaults(run=writer)
    program.add_argument("address")
    program.add_argument("--seconds", type=float, default=8.0)
    program = programs.add_parser("cycle")
    program.set_defaults(run=cycle)
    program.add_argument("address")
    program.add_argument("--callers", type=int, default=8)
    program.add_argument("--by", choices=("threads", "tasks"), default="threads")
    program.add_argument("--batch", type=int, default=1, help="jobs per call")
    program.add_argument("--seconds", type=float, default=8.0)
    program = programs.add_parser("requests")
    program.set_defaults(run=requests)
    program.add_argument("address")
    program = programs.add_parser("depth")
    program.set_defaults(run=depth)
    program.add_argument("folder")
    program.add_argument("--shallow", type=int, default=1_000, help="jobs waiting in the short queue")
    program.add_argument("--deep", type=int, default=1_000_000, help="jobs waiting in the deep one")
    program.add_argument("--commits", type=int, default=900, help="timed commits on each")
    program = programs.add_parser("bulk")
    program.set_defaults(run=bulk)
    program.add_argument("address")
    program.add_argument("--jobs", type=int, default=1_000_000)
    arguments = parser.parse_args()
    print(json.dumps(arguments.run(arguments)), flush=True)


if __name__ == "__main__":
    main()
