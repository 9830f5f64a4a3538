"""The real handlers in real Lambda runtime processes, called over HTTP and by direct invocation; processes killed."""

from __future__ import annotations

import itertools
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import urllib3

from osqueue import OsqueueError, Queue
from osqueue.devstack import Stack
from tests.support.patience import PATIENCE

JOBS = 240
CLIENTS = 32
PROCESSES = 8
PRODUCERS = 8
BATCH = 10
LEASE_S = 5.0
SEED = 20_260_721
KILLS_MAX = 30
KILLS_AT_WORK_MIN = 5  # in the middle of a request; the last jobs are held back until then
KILL_EVERY_S = 0.25
CLOCKS_APART_S = 1.0  # S3 tells whole seconds, by which each process measures its clock
KILLED = ("enqueue", "claim", "complete", "heartbeat", "reaper")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    store = f"file://{tmp_path_factory.mktemp('store')}?fsync=off"
    with Stack(store, schedule_seconds=0, patience_s=PATIENCE) as stack:
        yield stack


@pytest.fixture(params=["http", "lambda"])
def address(request: pytest.FixtureRequest, stack: Stack, aws_environment: None) -> str:
    if request.param == "http":
        return stack.url
    return f"lambda://osqueue-dev?endpoint={stack.url}&region=us-east-1"


def test_a_job_lives_its_life_through_the_functions(address: str) -> None:
    with Queue.connect(address, "emails") as q:
        job = q.enqueue({"to": "ada"}, id=f"welcome-{address[:4]}")
        assert (job.status, job.state) == ("queued", "queued")
        (lease,) = q.claim(lease=600)
        assert (lease.job_id, lease.payload, lease.attempt) == (job.job_id, {"to": "ada"}, 1)
        lease.heartbeat()
        lease.complete({"sent": True})
        assert q.result(job.job_id) == {"sent": True}
        again = q.enqueue({"to": "ada"}, id=f"welcome-{address[:4]}")
        assert (again.status, again.result) == ("completed", {"sent": True})
        assert q.claim() == []
        assert q.stats()["queued"] == 0


def test_what_no_request_and_no_answer_holds_passes_beside_the_functions(address: str) -> None:
    with Queue.connect(address, "films") as q:
        job = q.enqueue("p" * 5_000_000)
        (lease,) = q.claim(lease=600)
        assert lease.payload == "p" * 5_000_000
        lease.complete("r" * 5_000_000)
        assert q.result(job.job_id) == "r" * 5_000_000


def test_the_health_of_the_api_can_be_asked_for(stack: Stack) -> None:
    found = urllib3.request("GET", stack.url + "/healthz", timeout=PATIENCE)
    assert (found.status, found.json()["status"]) == (200, "ok")


def test_the_schedule_archives_what_is_finished(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store?fsync=off"
    with Queue.connect(store, "emails") as q:
        q.enqueue({"to": "ada"})
        q.claim()[0].complete()
        archived, seen = threading.Event(), []

        def on_line(who: str, line: str) -> None:
            seen.append((who, line))
            if who == "reaper" and '"archived": 1' in line:
                archived.set()

        with Stack(store, schedule_seconds=0.2, on_line=on_line):
            assert archived.wait(PATIENCE), seen
        assert len(list(q.history())) == 1


# ── Many clients, few processes, and some of those killed ────────────────────
class Held(NamedTuple):
    """A lease that a client was given."""

    job_id: str
    run: int
    started_at: float
    expires_at: float
    ended: str  # "completed", "lost" or "unknown" (nobody answered); "abandoned"


class Ledger:
    """What the clients saw, all of them together."""

    def __init__(self, queue: str) -> None:
        self.url = queue
        self.accepted: list[str] = []
        self.held: list[Held] = []
        self.done = threading.Event()
        self.enough = threading.Event()  # processes were killed at work
        self.until = time.monotonic() + PATIENCE
        self.defects: list[BaseException] = []

    @property
    def going(self) -> bool:
        return not self.done.is_set() and not self.defects and time.monotonic() < self.until

    def guarded(self, work: Any, *arguments: Any) -> threading.Thread:
        """A thread whose errors are kept."""

        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self.defects.append(error)
                self.done.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def produce(self, first: int) -> None:
        """Enqueue a share of the jobs under ids, so that an unanswered call can be repeated from outside as well."""
        items = [{"payload": n, "id": f"job-{n}", "max_attempts": 50} for n in range(first, JOBS, PRODUCERS)]
        with Queue.connect(self.url, "work", timeout=20) as q:
            for at in range(0, len(items), BATCH):
                while first == 0 and at + BATCH >= len(items) and self.going and not self.enough.is_set():
                    self.enough.wait(0.2)
                while self.going:
                    try:
                        outcomes = q.enqueue_many(items[at : at + BATCH])
                    except OsqueueError:
                        continue
                    if not any(each.error for each in outcomes):
                        self.accepted += [str(each.job_id) for each in outcomes]
                        break

    def work(self, number: int) -> None:
        """Claim and complete; the first leases and some more are abandoned, as by a worker that dies."""
        chance = random.Random(SEED + number)
        with Queue.connect(self.url, "work", timeout=20) as q:
            while self.going:
                try:
                    leases = q.claim(
                        chance.choice((1, 2, 4)), worker=f"client-{number}", lease=LEASE_S, wait=1
                    )
                except OsqueueError:
                    continue
                self.held += hold(q, leases, chance, 0.04 if self.held else 1)

    def watch(self) -> None:
        """Say when every job is completed."""
        with Queue.connect(self.url, "work", timeout=20) as q:
            while self.going:
                try:
                    if q.stats()["counters"].get("completed", 0) >= JOBS:
                        self.done.set()
                except OsqueueError:  # its process was killed
                    pass
                self.done.wait(0.2)


def hold(q: Queue[Any], leases: list[Any], chance: random.Random, abandoned: float) -> list[Held]:
    """Do some jobs. A lease ends no earlier than is told here: a heartbeat counts from when it was asked for."""
    told = time.monotonic()
    granted = {lease: lease.expires_at.timestamp() for lease in leases}
    expires_at = dict(granted)
    ended = dict.fromkeys(leases, "abandoned")
    done = [lease for lease in leases if chance.random() >= abandoned]
    try:
        if done and chance.random() < 0.1:
            asked = time.monotonic()
            for lease, beat in zip(done, q.heartbeat_many(done), strict=True):
                expires_at[lease] += max(0.0, asked - told - CLOCKS_APART_S) if beat.ok else 0
        for lease, outcome in zip(done, q.complete_many(done), strict=True):
            ended[lease] = "completed" if outcome.ok else "lost"
    except OsqueueError:
        ended |= dict.fromkeys(done, "unknown")
    return [
        Held(lease.job_id, lease.run, granted[lease] - LEASE_S, expires_at[lease], ended[lease])
        for lease in leases
    ]


def kill(stack: Stack, ledger: Ledger) -> list[str]:
    """Kill processes at random until all is done; the states they were in."""
    chance, states = random.Random(SEED), []
    while ledger.going and (len(states) < KILLS_MAX or not ledger.enough.is_set()):
        ledger.done.wait(chance.random() * 2 * KILL_EVERY_S)
        killed = stack.crash(chance.choice(KILLED))
        if killed is not None:
            states.append(killed.state)
        if states.count("running") >= KILLS_AT_WORK_MIN:
            ledger.enough.set()
    ledger.done.wait(max(ledger.until - time.monotonic(), 0))
    return states


def test_nothing_is_lost_or_done_twice_by_two_live_leases_although_processes_are_killed(
    s3_endpoint: str, s3_bucket: str
) -> None:
    store = f"s3://{s3_bucket}/e2e?endpoint={s3_endpoint}&region=us-east-1"
    lines: list[tuple[str, str]] = []
    with Stack(
        store, processes=PROCESSES, schedule_seconds=1, on_line=lambda *line: lines.append(line)
    ) as stack:
        ledger = Ledger(stack.url)
        threads = [ledger.guarded(ledger.produce, first) for first in range(PRODUCERS)]
        threads += [ledger.guarded(ledger.work, number) for number in range(CLIENTS)]
        threads += [ledger.guarded(ledger.watch)]
        states = kill(stack, ledger)
        for thread in threads:
            thread.join(PATIENCE)
    assert ledger.defects == []
    assert ledger.done.is_set(), Counter(who for who, _ in lines)
    assert states.count("running") >= KILLS_AT_WORK_MIN, Counter(states)
    ids = check_store(store, ledger)
    check_leases(ledger, ids)
    check_answers(lines, states)


def check_store(store: str, ledger: Ledger) -> set[str]:
    """The bucket itself tells of every job once, completed once, by leases that follow one another."""
    with Queue.connect(store, "work") as q:
        for _ in range(3):
            q.reap()
        stats = q.stats()
        records = {job.job_id: job for job in q.history()}
    counters = stats["counters"]
    assert (counters["enqueued"], counters["completed"], counters["failed"]) == (JOBS, JOBS, 0)
    assert [stats[state] for state in ("queued", "processing", "failing", "failed", "scheduled")] == [0] * 5
    assert set(records) == set(ledger.accepted)
    assert len(records) == len({job.id for job in records.values()}) == JOBS
    for job in records.values():
        assert job.state == "completed"
        assert [each.outcome for each in job.attempts].count("completed") == 1
        assert job.attempts[-1].outcome == "completed"
        ends: list[datetime] = [each.ended_at for each in job.attempts]
        assert all(later.started_at >= ended for later, ended in zip(job.attempts[1:], ends, strict=False)), (
            job.attempts
        )
    return set(records)


def check_leases(ledger: Ledger, ids: set[str]) -> None:
    """No client was given a job while another one's lease of it ran, and no job was completed by two of them."""
    held: dict[str, list[Held]] = {}
    for each in sorted(ledger.held, key=lambda one: one.run):
        held.setdefault(each.job_id, []).append(each)
    assert set(held) == ids  # whoever completed a job had it in its hands
    for leases in held.values():
        assert len({each.run for each in leases}) == len(leases)
        assert sum(each.ended == "completed" for each in leases) <= 1, leases
        assert any(each.ended in ("completed", "unknown") for each in leases), leases
        for former, later in itertools.pairwise(leases):
            assert former.ended != "completed", leases
            assert later.started_at >= former.expires_at - 0.001, leases
    assert any(len(leases) > 1 for leases in held.values())  # some did change hands


def check_answers(lines: list[tuple[str, str]], states: list[str]) -> None:
    """Only kills made errors, and every process's log arrived as whole lines."""
    statuses = Counter(
        re.search(r"' (\d+) [\d.]+ ms$", line)[1]  # type: ignore[index]
        for who, line in lines
        if who == "gateway"
    )
    assert statuses["500"] <= len(states), statuses
    assert set(statuses) <= {"200", "404", "429", "500", "503"}, statuses
    emitted = [json.loads(line) for who, line in lines if who == "claim" and '"_aws"' in line]
    assert sum(sum(each.get("Commits", [])) for each in emitted) > 0
