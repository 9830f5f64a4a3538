"""Our side of the benchmarks of jobs that are over: ids, results, waiting, the archive, lookups.

Prints ``ready``, waits for a line on standard input, works, and prints one line of JSON (see ``fleet.py``).
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from bench.our_worker import NAME, PAYLOAD, Answer, asked, gate, memory_mb, since
from osqueue import Job, Lease, Queue, WaitTimeout
from osqueue.commit.effects import QueueFlow, Submit
from osqueue.core.archive_record import decode_part
from osqueue.core.queue_ops import RunTimers

RESULT = {"sent": True, "n": 12345}
ROUNDS = 16  # of each kind of life
WARM_S = 3.0  # in which a waiter's looks have become as rare as they get
HOLDS_S = (0.1, 0.3, 0.7, 1.2, 1.6, 2.1, 0.5, 0.9, 1.4, 2.6)  # how long jobs run that somebody waits for
ENCODINGS_TIMED = 3
SAMPLES = 100  # jobs looked up


# ── Requests of a job's life ─────────────────────────────────────────────────
def lives(arguments: argparse.Namespace) -> Answer:
    """What a job asks of the store from its enqueue to its result, alone and in groups.

    Callers who wait are threads, and share commits as far as the store is slow: here 30 ms for each request.
    """
    gate()
    lives: Answer = {}
    for group in (1, 100):
        for way in ("plain", "with id", "with id, result read"):
            life = LifecycleCosts(Queue.connect(arguments.address, NAME))
            for turn in range(ROUNDS + 1):
                life.group(turn, group, way)
            lives[f"{way}, {group} a call"] = life.told(group)
        life = LifecycleCosts(Queue.connect(f"{arguments.address}?latency_ms=30", NAME))
        for _ in range(ROUNDS + 1):
            life.callers(group)
        lives[f"enqueue_and_wait, callers: {group}"] = life.told(group)
    return lives


class LifecycleCosts:
    """The requests of jobs' lives by step. The first round only warms."""

    def __init__(self, queue: Queue[Any]) -> None:
        self.queue = queue
        self.rounds: list[dict[str, Counter[str]]] = []
        self.before = asked(queue)
        self.sent = threading.Semaphore(0)
        queue.on_event(lambda event: self.sent.release() if event.name == "queued" else None)

    def step(self, name: str) -> None:
        self.rounds[-1].setdefault(name, Counter()).update(since(self.queue, self.before))
        self.before = asked(self.queue)

    def told(self, group: int) -> Answer:
        steps: dict[str, Counter[str]] = {}
        for turn in self.rounds[1:]:
            for name, count in turn.items():
                steps.setdefault(name, Counter()).update(count)
        return {"jobs": group * (len(self.rounds) - 1), "steps": steps}

    def group(self, turn: int, jobs: int, way: str) -> None:
        """One caller sends, runs and completes the jobs."""
        self.rounds.append({})
        ids = [None if way == "plain" else f"{turn}-{n}" for n in range(jobs)]
        if jobs == 1:
            self.queue.enqueue(PAYLOAD, id=ids[0])
        else:
            self.queue.enqueue_many([{"payload": PAYLOAD, "id": each} for each in ids])
        self.step("enqueue")
        self.serve(jobs)
        if way == "with id, result read":
            for each in ids:
                self.queue.result(each or "")
            self.step("result")

    def callers(self, jobs: int) -> None:
        """That many threads send a job and wait; they are served once all have sent."""
        self.rounds.append({})
        threads = [threading.Thread(target=self.queue.enqueue_and_wait, args=(PAYLOAD,)) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for _ in threads:
            self.sent.acquire()
        self.step("enqueue, wait")
        self.serve(jobs)
        for thread in threads:
            thread.join()
        self.step("wait")

    def serve(self, jobs: int) -> None:
        left = jobs
        while left:
            leases = self.queue.claim(limit=left)
            self.step("claim")
            self.queue.complete_many(map(completion, leases))
            self.step("complete")
            left -= len(leases)


def completion(lease: Lease[Any]) -> dict[str, Any]:
    return {"job_id": lease.job_id, "token": lease.token, "result": RESULT}


# ── Waiting ──────────────────────────────────────────────────────────────────
def waiters(arguments: argparse.Namespace) -> Answer:
    """Callers who wait for jobs that nobody runs: the GETs of a while, once all have waited a few seconds."""
    queue = Queue.connect(arguments.address, NAME)
    gate()

    def wait() -> None:
        try:
            queue.enqueue_and_wait(PAYLOAD, timeout=2 * WARM_S + arguments.seconds)
        except WaitTimeout:
            return

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(arguments.waiters)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_S)
    before, start = asked(queue), time.monotonic()
    time.sleep(arguments.seconds)
    spent = since(queue, before)
    return {
        "gets": spent["get"],
        "others": sum(spent.values()) - spent["get"],
        "seconds": time.monotonic() - start,
    }


def wake(arguments: argparse.Namespace) -> Answer:
    """Seconds from a completion's call to its waiter's having the result, both in this process."""
    queue = Queue.connect(arguments.address, NAME)
    gate()
    seconds = []
    for hold_s in HOLDS_S:
        answered: list[float] = []

        def wait(answered: list[float] = answered) -> None:
            queue.enqueue_and_wait(PAYLOAD)
            answered.append(time.monotonic())

        thread = threading.Thread(target=wait)
        thread.start()
        [lease] = queue.claim(wait=10)
        time.sleep(hold_s)
        called = time.monotonic()
        lease.complete(RESULT)
        thread.join()
        seconds.append(answered[0] - called)
    return {"seconds": seconds}


def caller(arguments: argparse.Namespace) -> Answer:
    """Sends jobs one by one and waits for each: when it had the results, monotonic seconds."""
    queue = Queue.connect(arguments.address, NAME)
    gate()
    answered = []
    for hold_s in HOLDS_S:
        queue.enqueue_and_wait({"hold_s": hold_s})
        answered.append(time.monotonic())
    return {"answered": answered}


def server(arguments: argparse.Namespace) -> Answer:
    """Runs the jobs of ``caller``: when it called their completions, monotonic seconds."""
    queue: Queue[Any] = Queue.connect(arguments.address, NAME)
    gate()
    called: list[float] = []
    while len(called) < len(HOLDS_S):
        for lease in queue.claim(wait=10):
            time.sleep(lease.payload["hold_s"])
            called.append(time.monotonic())
            lease.complete(RESULT)
    return {"called": called}


# ── The archive ──────────────────────────────────────────────────────────────
def fill(arguments: argparse.Namespace) -> Answer:
    """Finished jobs that the archive does not have yet, so many to a call; every 32nd job fails once."""
    queue: Queue[Any] = Queue.connect(arguments.address, NAME)
    gate()
    at = finished = 0
    while finished < arguments.jobs:
        while at < arguments.jobs and at - finished < arguments.held:
            upto = min(arguments.jobs, at + arguments.group)
            queue.enqueue_many([{"payload": {**PAYLOAD, "n": n}} for n in range(at, upto)])
            at = upto
        leases = queue.claim(limit=arguments.held, worker=f"worker-{at % 7}")
        bad = [each for each in leases if each.attempt == 1 and each.payload["n"] % 32 == 0]
        good = [each for each in leases if each not in bad]
        queue.complete_many(map(completion, good))
        if bad:
            failed = [{"job_id": each.job_id, "token": each.token, "error": "mailbox full"} for each in bad]
            queue.fail_many(failed, retry_in=0)
        finished += len(good)
    return {"jobs": finished}


def reap(arguments: argparse.Namespace) -> Answer:
    """One pass of the reaper over what ``fill`` has left."""
    queue = Queue.connect(arguments.address, NAME)
    gate()
    held_mb = memory_mb()
    begun, worked = time.monotonic(), time.process_time()
    report = queue.reap()
    return {
        "archived": report.archived,
        "seconds": time.monotonic() - begun,
        "cpu_s": time.process_time() - worked,
        "requests": asked(queue),
        "held_mb": held_mb,
        "peak_mb": memory_mb(),
    }


def encode(arguments: argparse.Namespace) -> Answer:
    """The archive's records in several encodings: bytes and seconds. Leaves them as JSON lines for others."""
    parts = sorted(Path(arguments.folder).rglob("*.jsonl.gz"))
    records = [record for part in parts for record in decode_part(part.read_bytes(), part.name)]
    lines = msgspec.json.Encoder().encode_lines
    gate()
    answer: Answer = {"records": len(records), "parts": len(parts)}
    encodings: dict[str, Callable[[], bytes]] = {
        "uncompressed": lambda: lines(records),
        "gzip 1": lambda: gzip.compress(lines(records), 1, mtime=0),
        "gzip 6": lambda: gzip.compress(lines(records), 6, mtime=0),
    }
    for name, encoded in encodings.items():
        seconds = []
        data = b""
        for _ in range(ENCODINGS_TIMED):
            begun = time.perf_counter()
            data = encoded()
            seconds.append(time.perf_counter() - begun)
        answer[name] = {"bytes": len(data), "seconds": min(seconds)}
    Path(arguments.lines).write_bytes(lines(records))
    return answer


# ── Lookups ──────────────────────────────────────────────────────────────────
def lookup(arguments: argparse.Namespace) -> Answer:
    """Status and result of jobs that are over, after so many rounds, each of which shelves two.

    With a reaper each round ends in a pass of it, and leaves an archive part. Without one, finished jobs are only
    moved out of the head, as a commit does when they are many. Apart: all jobs wait from the beginning, and one of
    the older half ends together with one of the younger half. The worst there is: each table covers half of all keys.
    """
    address = "memory://lookup"
    queue = Queue.connect(address, NAME)
    kinds = ("old", "young")
    if arguments.apart:
        for kind in kinds:
            queue.enqueue_many([{"payload": PAYLOAD, "kind": kind}] * arguments.rounds)
    gate()
    ids: list[str] = []
    for _ in range(arguments.rounds):
        for kind in kinds:
            if not arguments.apart:
                queue.enqueue(PAYLOAD, kind=kind)
            [lease] = queue.claim(kinds=[kind])
            lease.complete(RESULT)
            ids.append(lease.job_id)
        if arguments.reaper:
            queue.reap()
        else:
            queue._run(_shelve())
    sample = Random(1).choices(ids, k=SAMPLES)
    fresh = Queue.connect(address, NAME)
    return {
        "status": _timed(fresh, fresh.status, sample),
        "result": _timed(fresh, fresh.result, sample),
    }


def _shelve() -> QueueFlow[None]:
    yield Submit(0, (RunTimers(flush=True),))


def _timed(queue: Queue[Any], ask: Callable[[str], Any], ids: list[str]) -> dict[str, float]:
    for job_id in ids[:: len(ids) // 10]:
        ask(job_id)  # warm
    requests, micros = [], []
    for job_id in ids:
        before, begun = asked(queue), time.perf_counter()
        found = ask(job_id)
        micros.append((time.perf_counter() - begun) * 1e6)
        requests.append(sum(since(queue, before).values()))
        if found is None or (isinstance(found, Job) and found.state != "completed"):
            raise RuntimeError(f"{job_id} was not found")
    return {
        "requests": statistics.mean(requests),
        "requests_max": max(requests),
        "micros": statistics.median(micros),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = parser.add_subparsers(required=True)
    for run in (lives, wake, caller, server, reap):
        program = programs.add_parser(run.__name__)
        program.set_defaults(run=run)
        program.add_argument("address")
    program = programs.add_parser("waiters")
    program.set_defaults(run=waiters)
    program.add_argument("address")
    program.add_argument("--waiters", type=int, default=1)
    program.add_argument("--seconds", type=float, default=6.0)
    program = programs.add_parser("fill")
    program.set_defaults(run=fill)
    program.add_argument("address")
    program.add_argument("--jobs", type=int, default=50_000)
    program.add_argument("--group", type=int, default=20, help="jobs in a call that enqueues")
    program.add_argument("--held", type=int, default=400, help="jobs in a claim, and in a completion")
    program = programs.add_parser("encode")
    program.set_defaults(run=encode)
    program.add_argument("folder", help="with archive parts below it")
    program.add_argument("lines", help="the file for the records as JSON lines")
    program = programs.add_parser("lookup")
    program.set_defaults(run=lookup)
    program.add_argument("--rounds", type=int, default=100)
    program.add_argument("--reaper", action="store_true")
    program.add_argument("--apart", action="store_true", help="old jobs end together with young ones")
    arguments = parser.parse_args()
    print(json.dumps(arguments.run(arguments)), flush=True)


if __name__ == "__main__":
    main()
