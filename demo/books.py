"""The books of a replay: what everybody who took part tells of it, brought together to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from demo.journal import JournalEntry, Sent, Wait
from demo.plan import IdSender

COMPLETED, FAILED = "completed", "failed"
EXAMPLES_MAX = 5  # jobs named in a complaint


class BookedAttempt(Struct, frozen=True):
    """One lease of a job, as the archive tells it."""

    run: int
    worker: str
    started_ms: int
    ended_ms: int
    outcome: str


class BookedJob(Struct, frozen=True):
    """A job that is over, with its timeline, as the archive tells it."""

    job_id: str
    run: int  # leases granted to it
    state: str
    enqueued_ms: int
    finished_ms: int
    attempt: int  # attempts used
    attempts: tuple[BookedAttempt, ...]
    id: str | None = None  # the sender's own


class Books(Struct):
    """All accounts of a replay."""

    log: dict[int, int]  # the seconds that each job of the log ran, by its number
    callers: dict[int, IdSender]  # jobs that carry ids, by number
    sent: list[Sent]  # by all who sent jobs, and what they were answered
    waits: list[Wait]  # of those who waited for results
    archive: list[BookedJob]  # as ``history`` tells it
    lines: list[BookedJob]  # as the files tell it, repeats and all
    live: list[tuple[str, str]]  # id and state of the jobs that are not over
    workers: dict[str, list[JournalEntry]]  # the journal of each
    killed: str | None = None  # the worker whose journal may lack its last step


def complaint(what: str, jobs: Sequence[int | str]) -> Iterable[str]:
    """A sentence about these jobs, unless there are none."""
    if jobs:
        examples = ", ".join(map(str, jobs[:EXAMPLES_MAX])) + (", …" if len(jobs) > EXAMPLES_MAX else "")
        yield f"{len(jobs):,} {what}: {examples}"
