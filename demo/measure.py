"""The numbers of a replay, taken from the timelines in the archive and from the journals."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from demo.books import Books
from demo.journal import JournalEntry

REQUESTS = ("get", "put", "list", "delete")


class Percentiles(Struct, frozen=True):
    """How long most, nearly all and all but the rarest took, in seconds."""

    p50_s: float
    p95_s: float
    p99_s: float


class ArchiveSize(Struct, frozen=True):
    """What the parts of the archive take."""

    parts: int
    records: int  # lines, repeats and all
    packed_bytes: int  # as they lie there, compressed
    plain_bytes: int  # unpacked


class Ids(Struct, frozen=True):
    """What those were answered who sent a job under an id that another had sent, or was about to send."""

    ids: int  # each sent twice
    duplicates: int  # answers: the job was known, and under way
    cached: int  # answers: the job was over, and its result still there


class Waits(Struct, frozen=True):
    """How callers fared who waited for results."""

    answered: int
    at_once: int  # of these: the rival's job of the same id was over when they came
    late: int  # of these: their time was up, and they read the result later
    median_s: float  # of those who waited in time: from the call to the result
    median_after_s: float  # and from the job's end to the caller's having the result


class Measures(Struct, frozen=True):
    """What a replay took and did."""

    seconds: float  # from the first enqueue to the last completion, by the queue's clock
    jobs_per_second: float
    wait: Percentiles  # from enqueue to the first claim
    run: Percentiles  # from the last claim to the completion
    leases: int  # granted in all
    failed_attempts: int  # each was retried
    stalled_attempts: int  # leases that ended without a word: each came back
    heartbeats: int  # leases extended
    ids: Ids
    waits: Waits
    archive: ArchiveSize
    reaps: int  # passes of the reaper process
    calls: dict[
        str, int
    ]  # of the API, by all processes but the parent, by method of HTTP; none where there is no API
    calls_per_job: float
    requests: dict[
        str, int
    ]  # asked of the store by the functions, or where there are none by all processes, by kind
    requests_per_job: float
    commits: int
    disk_bytes: int  # the whole store at the end


class Served(Struct, frozen=True):
    """What the functions did, where there is an API."""

    requests: Mapping[str, int]  # to the store
    reaps: int


def measure(
    books: Books,
    journals: Mapping[str, Sequence[JournalEntry]],
    commits: int,
    archive: ArchiveSize,
    store: Path,
    served: Served | None = None,
) -> Measures:
    """Measure a replay by its records, one of each job, and by the journals of all processes."""
    records = books.archive
    began_ms = min((record.enqueued_ms for record in records), default=0)
    ended_ms = max((record.finished_ms for record in records), default=0)
    seconds = (ended_ms - began_ms) / 1000
    timed = [record for record in records if record.attempts]
    outcomes = Counter(attempt.outcome for record in records for attempt in record.attempts)
    asked: Counter[str] = Counter()
    for journal in journals.values():
        for kind in {
            kind for entry in journal for kind in entry.requests
        }:  # cumulative: the largest is the sum
            asked[kind] += max(entry.requests.get(kind, 0) for entry in journal)
    calls, requests = (Counter[str](), asked) if served is None else (asked, Counter(served.requests))
    entries = [entry for journal in journals.values() for entry in journal]
    jobs = max(1, len(records))
    return Measures(
        seconds=seconds,
        jobs_per_second=len(records) / seconds if seconds else 0.0,
        wait=percentiles([record.attempts[0].started_ms - record.enqueued_ms for record in timed]),
        run=percentiles([record.finished_ms - record.attempts[-1].started_ms for record in timed]),
        leases=sum(record.run for record in records),
        failed_attempts=outcomes["failed"],
        stalled_attempts=outcomes["stalled"],
        heartbeats=sum(entry.beaten for entry in entries),
        ids=ids_of(books),
        waits=waits_of(books),
        archive=archive,
        reaps=sum(entry.reaps for entry in entries) if served is None else served.reaps,
        calls=dict(calls),
        calls_per_job=calls.total() / jobs,
        requests={kind: requests[kind] for kind in REQUESTS},
        requests_per_job=requests.total() / jobs,
        commits=commits,
        disk_bytes=sum(path.stat().st_size for path in store.rglob("*") if path.is_file()),
    )


def ids_of(books: Books) -> Ids:
    """Answers to those who came second. Those who waited were not told whether they came second."""
    statuses = Counter(sent.status for sent in books.sent)
    return Ids(len(books.callers), statuses["duplicate"], statuses["completed"])


def waits_of(books: Books) -> Waits:
    """How long callers waited, and how long after the job's end."""
    finished_ms = {record.id: record.finished_ms for record in books.archive}
    answered = [wait for wait in books.waits if not wait.error and wait.id in finished_ms]
    after = {wait.number: (wait.at_ms - finished_ms[wait.id]) / 1000 for wait in answered}
    waited = [wait for wait in answered if not wait.late and after[wait.number] <= wait.seconds]
    late = sum(wait.late for wait in answered)
    return Waits(
        answered=len(answered),
        at_once=len(answered) - len(waited) - late,
        late=late,
        median_s=statistics.median(wait.seconds for wait in waited) if waited else 0.0,
        median_after_s=statistics.median(after[wait.number] for wait in waited) if waited else 0.0,
    )


def percentiles(times_ms: Sequence[int]) -> Percentiles:
    """By nearest rank: each answer is a time that really occurred."""
    ordered = sorted(times_ms) or [0]
    ranks = (math.ceil(len(ordered) * share) - 1 for share in (0.50, 0.95, 0.99))
    return Percentiles(*(ordered[rank] / 1000 for rank in ranks))
