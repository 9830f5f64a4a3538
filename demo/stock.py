"""Stock-taking: what is in the folder of a replay that has ended, read anew, checked and measured."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from demo import producer, reaper, rival, stack
from demo.accounting import Account, check
from demo.books import BookedAttempt, BookedJob, Books
from demo.journal import read_journal
from demo.measure import ArchiveSize, Measures, Served, measure
from demo.plan import QUEUE, ReplayPlan, callers_of, jobs_of
from osqueue import Job, Queue

PAGE = 1_000
LIVE = ("scheduled", "queued", "processing", "failing", "failed")


class Kill(Struct, frozen=True):
    """The worker that was killed."""

    worker: str
    pid: int
    held: int  # leases that it had when it died


class ReplayResult(Struct, frozen=True):
    """What came of a replay."""

    account: Account
    measures: Measures
    kill: Kill | None
    came_back: int  # jobs of the killed worker whose leases ended without a word


def take_stock(plan: ReplayPlan, kill: Kill | None) -> ReplayResult:
    """Compare all accounts of a replay, and measure it. The last finished jobs have to be archived by now.

    Reads the store itself, past the API.
    """
    queue: Queue[Any] = Queue.connect(plan.store_address, QUEUE)
    lines, archive = read_archive(plan.store)
    journals = {
        name: list(read_journal(plan.journal(name)))
        for name in (producer.NAME, rival.NAME, reaper.NAME, *plan.worker_names())
    }
    jobs = jobs_of(plan)
    books = Books(
        log={job.number: job.run_s for job in jobs},
        callers=callers_of(plan, jobs),
        sent=[
            sent for name in (producer.NAME, rival.NAME) for entry in journals[name] for sent in entry.sent
        ],
        waits=[wait for entry in journals[producer.NAME] for wait in entry.waited],
        archive=[record_of(job) for job in queue.history()],
        lines=lines,
        live=[(job.job_id, job.state) for state in LIVE for job in pages(queue, state)],
        workers={name: journals[name] for name in plan.worker_names()},
        killed=kill.worker if kill is not None else None,
    )
    came_back = sum(
        kill is not None and attempt.worker == kill.worker and attempt.outcome == "stalled"
        for record in books.archive
        for attempt in record.attempts
    )
    served = Served(stack.requests_to_store(stack.log_of(plan)), stack.passes(stack.log_of(plan)))
    commits = queue.stats()["commits"]
    measures = measure(books, journals, commits, archive, plan.store, served if plan.url else None)
    return ReplayResult(check(books), measures, kill, came_back)


def read_archive(store: Path) -> tuple[list[BookedJob], ArchiveSize]:
    """Every line of the archive parts below a store's folder, and what the parts take."""
    lines = msgspec.json.Decoder(BookedJob)
    records: list[BookedJob] = []
    sizes: Counter[str] = Counter()
    for part in sorted((store / "archive").rglob("*.jsonl.gz")):
        packed = part.read_bytes()
        plain = gzip.decompress(packed)
        records += lines.decode_lines(plain)
        sizes.update(parts=1, packed=len(packed), plain=len(plain))
    return records, ArchiveSize(sizes["parts"], len(records), sizes["packed"], sizes["plain"])


def record_of(job: Job) -> BookedJob:
    """An archived job, as ``history`` tells it."""

    def ms(moment: datetime | None) -> int:
        return round(moment.timestamp() * 1000) if moment is not None else 0

    return BookedJob(
        job.job_id,
        job.attempts[-1].run if job.attempts else 0,
        job.state,
        ms(job.enqueued_at),
        ms(job.finished_at),
        job.attempt,
        tuple(
            BookedAttempt(each.run, each.worker, ms(each.started_at), ms(each.ended_at), each.outcome)
            for each in job.attempts
        ),
        job.id,
    )


def pages(queue: Queue[Any], state: str) -> Iterator[Job]:
    """Every live job of one state."""
    cursor = None
    while True:
        jobs, cursor = queue.jobs(state=state, limit=PAGE, cursor=cursor)
        yield from jobs
        if cursor is None:
            return


def hands(queue: Queue[Any], worker: str) -> int:
    """How many jobs a worker holds."""
    return sum(job.worker == worker for job in pages(queue, "processing"))


def kill_path(plan: ReplayPlan) -> Path:
    """Where the kill is written down, so that a kept replay can be counted again."""
    return plan.notes / "kill.json"


def note_kill(plan: ReplayPlan, kill: Kill) -> None:
    kill_path(plan).write_bytes(msgspec.json.encode(kill))


def recount(plan: ReplayPlan) -> ReplayResult:
    """Count a kept replay again, as it lies there now."""
    path = kill_path(plan)
    kill = msgspec.json.decode(path.read_bytes(), type=Kill) if path.exists() else None
    return take_stock(plan, kill)
