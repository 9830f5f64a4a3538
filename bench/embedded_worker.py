"""Our side of the comparison with embedded queues: a worker of a crew (see ``crew.py``) on a folder."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.our_worker import NAME, PAYLOAD, Answer, head_bytes
from osqueue import Queue


def cycle(queue: Queue[Any], batch: int, start: float, seconds: float) -> Answer:
    """Jobs one by one, or ``batch`` to a call. A step of a job counts when its call returned before the time was up."""
    steps, longest, end = 0, 0.0, start + seconds
    taken: list[str] = []
    jobs = [{"payload": PAYLOAD}] * batch
    time.sleep(max(0.0, start - time.monotonic()))
    while True:
        begun = time.monotonic()
        if batch == 1:
            queue.enqueue(PAYLOAD)
        else:
            queue.enqueue_many(jobs)
        if time.monotonic() > end:
            break
        steps += batch
        leases = queue.claim(limit=batch)
        taken += [lease.job_id for lease in leases]
        if time.monotonic() > end:
            break
        steps += len(leases)
        if len(leases) == 1:
            leases[0].complete()
        elif leases:
            queue.complete_many(leases)
        longest = max(longest, time.monotonic() - begun)
        if time.monotonic() > end:
            break
        steps += len(leases)
    return {"steps": steps, "taken": taken, "longest_s": max(longest, time.monotonic() - begun)}


def raw(queue: Queue[Any], folder: Path, start: float, seconds: float) -> Answer:
    """Commits of one writer for a while, then flushed writes in place, of as many bytes as a commit wrote."""
    time.sleep(max(0.0, start - time.monotonic()))
    commits, before, begun = 0, written_bytes(), time.monotonic()
    while time.monotonic() < start + seconds:
        queue.enqueue(PAYLOAD)
        [lease] = queue.claim()
        lease.complete()
        commits += 3
    commits_a_second = commits / (time.monotonic() - begun)
    size = head_bytes(folder) or 1  # where the system does not count what a process writes
    if before is not None:
        size = max(1, ((written_bytes() or 0) - before) // commits)
    body = bytes(size)
    descriptor = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, body)
        os.fsync(descriptor)
        writes, begun = 0, time.monotonic()
        while time.monotonic() < begun + seconds:
            os.pwrite(descriptor, body, 0)
            flush(descriptor)
            writes += 1
        writes_a_second = writes / (time.monotonic() - begun)
    finally:
        os.close(descriptor)
    return {"commits_a_second": commits_a_second, "writes_a_second": writes_a_second, "bytes": size}


def written_bytes() -> int | None:
    """What this process has written to files so far; None where the system does not tell."""
    account = Path("/proc/self/io")
    if not account.exists():
        return None
    [line] = [line for line in account.read_text().splitlines() if line.startswith("wchar:")]
    return int(line.split()[1])


def flush(descriptor: int) -> None:
    """The content alone, where the system can."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


def main() -> None:
    cold = True
    for line in sys.stdin:
        order = json.loads(line)
        folder = order["folder"]
        queue = Queue.connect(f"file://{folder}/jobs" + ("" if order["flushed"] else "?fsync=off"), NAME)
        if order["creates"] or cold:
            queue.enqueue(PAYLOAD)
            for lease in queue.claim():
                lease.complete()
            cold = False
        print("ready", flush=True)
        timing = json.loads(sys.stdin.readline())
        if order.get("raw"):
            answer = raw(queue, Path(folder), **timing)
        else:
            answer = cycle(queue, order.get("batch", 1), **timing)
        queue.close()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
