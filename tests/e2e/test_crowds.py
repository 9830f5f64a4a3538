"""Sixteen processes on each store, some of them killed with kill -9: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.objects.archive import ROOT as ARCHIVE
from osqueue.stores.base import Get, List
from tests.support.addresses import SHARED, address_in
from tests.support.patience import PATIENCE

JOBS = 320
A_CALL = 10  # jobs
PRODUCERS = 4
WORKERS = 6
VICTIMS = 2  # that are killed while they hold jobs
DOOMED = 2  # producers, and as many workers, that are killed in the middle of whatever they do
LIFE_S = (0.3, 1.2)  # of these, after their first word

PRODUCER = """
import sys
from osqueue import OsqueueError, Queue
q = Queue.connect(sys.argv[1], "work", timeout=60)
for at in map(int, sys.argv[2:]):
    jobs = [{"payload": at + i, "id": f"job-{at + i}", "max_attempts": 50} for i in range(10)]
    while True:
        try:
            done = q.enqueue_many(jobs)
            break
        except OsqueueError as error:
            print(error.code, file=sys.stderr, flush=True)
    for each in done:
        print(each.job_id, flush=True)
"""

WORKER = """
import sys
from osqueue import OsqueueError, Queue
q = Queue.connect(sys.argv[1], "work", timeout=60)
victim = sys.argv[2] == "victim"
if sys.argv[2] == "doomed":
    print("ready", flush=True)  # others may leave no job for it
while True:
    try:
        leases = q.claim(limit=8, lease=3 if sys.argv[2] != "worker" else 60, wait=1)
        if victim and leases:
            print("holding", len(leases), flush=True)
            sys.stdin.read()  # until it is killed
        for lease, done in zip(leases, q.complete_many(leases)):
            if done.ok:
                print(lease.job_id, flush=True)
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
    records, after = set(), ""
    while True:
        listed: Any = q.store.perform(List(ARCHIVE, after))
        for key in listed.keys:
            body = q.store.perform(Get(key)).body  # type: ignore[union-attr]
            for line in gzip.decompress(body).splitlines():
                row = json.loads(line)
                records.add((row["job_id"], row["run"], row["state"]))
        if not listed.more:
            return Counter(job for job, _, state in records if state == "completed")
        after = listed.keys[-1]


def shares(count: int) -> Sequence[range]:
    """Of the calls that bring the jobs, so many parts."""
    return [range(at * A_CALL, JOBS, count * A_CALL) for at in range(count)]


def first_word(process: subprocess.Popen[str]) -> str:
    """What it says first. One that ends without a word has said why elsewhere."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=PATIENCE)
    return line


def last_words(process: subprocess.Popen[str]) -> list[str]:
    """What it said after that, to its end; with what was read ahead, which ``communicate`` would lose."""
    assert process.stdout is not None
    said = process.stdout.read()
    process.communicate()
    return said.split()


@pytest.mark.parametrize("kind", SHARED)
def test_nothing_is_lost_or_done_twice_although_processes_are_killed(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = address_in(kind, request, tmp_path)
    running: list[subprocess.Popen[str]] = []
    try:
        # Those that are doomed bring the same jobs as others: whatever they have done, or half done, is done once.
        doomed = [start(PRODUCER, address, *share) for share in shares(PRODUCERS)[:DOOMED]]
        running += doomed
        running += (producers := [start(PRODUCER, address, *share) for share in shares(PRODUCERS)])
        running += (victims := [start(WORKER, address, "victim") for _ in range(VICTIMS)])
        held = 0
        for victim in victims:
            held += int(first_word(victim).split()[1])
            victim.kill()
        running += (more := [start(WORKER, address, "doomed") for _ in range(DOOMED)])
        doomed += more  # only now: they would leave no jobs for a victim that is slow to start
        by_doomed = [first_word(each).strip() for each in doomed]
        for each in doomed:
            time.sleep(random.uniform(*LIFE_S) / len(doomed))
            each.kill()
        running += (workers := [start(WORKER, address, "worker") for _ in range(WORKERS)])
        ids = [line for each in producers for line in each.communicate(timeout=PATIENCE)[0].split()]
        q: Queue[Any] = Queue.connect(address, "work")
        until = time.monotonic() + PATIENCE
        while q.stats()["counters"]["completed"] < JOBS and time.monotonic() < until:
            assert not [each.communicate() for each in workers if each.poll() is not None]
            time.sleep(0.2)
        time.sleep(0.5)  # for the last answer
    finally:
        for each in running:
            each.kill()
    said = [line for each in workers for line in each.communicate()[0].split()]
    for each in (*victims, *producers):
        each.communicate()
    for each in doomed:
        by_doomed += last_words(each)
    for _ in range(3):
        q.reap()
    stats = q.stats()
    assert len(set(ids)) == len(ids) == JOBS
    assert stats["counters"]["enqueued"] == stats["counters"]["completed"] == JOBS
    assert stats["counters"]["stalled"] >= held > 0
    assert stats["queued"] == stats["processing"] == stats["failing"] == stats["failed"] == 0
    assert archived(q) == Counter(ids)
    assert {*by_doomed} - {"ready"} <= {*ids}
    assert not [job for job, times in Counter(said).items() if times > 1]
    q.close()
