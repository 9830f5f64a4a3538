"""Real processes on a real S3 server over HTTP, one of them killed with kill -9: every job is accounted for."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from osqueue import Queue
from osqueue.stores.base import Get, List
from tests.support.patience import PATIENCE

JOBS = 300
PRODUCERS = 2
WORKERS = 3


PRODUCER = """
import sys
from osqueue import Queue
q = Queue.connect(sys.argv[1], "work")
for at in range(int(sys.argv[2]), int(sys.argv[3]), 10):
    for done in q.enqueue_many([{"payload": at + i, "max_attempts": 50} for i in range(10)]):
        print(done.job_id, flush=True)
"""

WORKER = """
import sys
from osqueue import OsqueueError, Queue
q = Queue.connect(sys.argv[1], "work")
victim = sys.argv[2] == "victim"
while True:
    try:
        leases = q.claim(limit=8, lease=2 if victim else 30, wait=1)
        if victim and leases:
            print("holding", len(leases), flush=True)
            sys.stdin.read()  # until it is killed
        q.complete_many(leases)
    except OsqueueError as error:
        print(error.code, file=sys.stderr, flush=True)
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def archived(q: Queue[Any]) -> Counter[str]:
    """How many archive records tell of each job, those repeated by racing writers counted once."""
    records = set()
    for key in q.store.perform(List("archive/")).keys:  # type: ignore[union-attr]
        body = q.store.perform(Get(key)).body  # type: ignore[union-attr]
        for line in gzip.decompress(body).splitlines():
            row = json.loads(line)
            records.add((row["job_id"], row["run"], row["state"]))
    return Counter(job for job, _, state in records if state == "completed")


def test_every_job_is_accounted_for_on_s3_although_a_worker_is_killed(
    s3_endpoint: str, s3_bucket: str
) -> None:
    address = f"s3://{s3_bucket}/e2e?endpoint={s3_endpoint}&region=us-east-1"
    share = JOBS // PRODUCERS
    running: list[subprocess.Popen[str]] = []
    try:
        producers = [start(PRODUCER, address, at * share, (at + 1) * share) for at in range(PRODUCERS)]
        running += producers
        ids = [line for each in producers for line in each.communicate(timeout=PATIENCE)[0].split()]
        assert len(set(ids)) == JOBS
        victim = start(WORKER, address, "victim")
        running.append(victim)
        assert victim.stdout is not None
        held = int(victim.stdout.readline().split()[1])
        os.kill(victim.pid, signal.SIGKILL)
        running += [start(WORKER, address, "worker") for _ in range(WORKERS)]
        q: Queue[Any] = Queue.connect(address, "work")
        until = time.monotonic() + PATIENCE
        while q.stats()["counters"]["completed"] < JOBS and time.monotonic() < until:
            time.sleep(0.2)
    finally:
        for each in running:
            each.kill()
            each.communicate()
    for _ in range(3):
        q.reap()
    stats = q.stats()
    assert stats["counters"]["enqueued"] == stats["counters"]["completed"] == JOBS
    assert stats["counters"]["stalled"] >= held
    assert stats["queued"] == stats["processing"] == stats["failing"] == stats["failed"] == 0
    assert archived(q) == Counter(ids)
