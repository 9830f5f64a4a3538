"""The numbers of a replay, taken from the timelines in the archive and from the journals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from demo.accounting import Record
from demo.journal import Entry


class Percentiles(Struct, frozen=True):
    """How long most, nearly all and all but the rarest took, in seconds."""

    p50_s: float
    p95_s: float
    p99_s: float


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
    requests: dict[str, int]  # asked of the store by producer and workers, by kind
    requests_per_job: float
    commits: int
    archive_parts: int
    disk_bytes: int  # the whole store at the end


def measure(
    records: Sequence[Record], entries: Iterable[Sequence[Entry]], commits: int, parts: int, store: Path
) -> Measures:
    """Measure a replay by its records (one per job) and by the journals, one of each process."""
    began_ms = min((record.enqueued_ms for record in records), default=0)
    ended_ms = max((record.finished_ms for record in records), default=0)
    seconds = (ended_ms - began_ms) / 1000
    timed = [record for record in records if record.attempts]
    outcomes = Counter(attempt.outcome for record in records for attempt in record.attempts)
    requests: Counter[str] = Counter()
    heartbeats = 0
    for journal in entries:
        heartbeats += sum(entry.beaten for entry in journal)
        requests.update(journal[-1].requests if journal else {})  # cumulative, so the last entry has the sum
    return Measures(
        seconds=seconds,
        jobs_per_second=len(records) / seconds if seconds else 0.0,
        wait=percentiles([record.attempts[0].started_ms - record.enqueued_ms for record in timed]),
        run=percentiles([record.finished_ms - record.attempts[-1].started_ms for record in timed]),
        leases=sum(record.run for record in records),
        failed_attempts=outcomes["failed"],
        stalled_attempts=outcomes["stalled"],
        heartbeats=heartbeats,
        requests={kind: requests[kind] for kind in ("get", "put", "list", "delete")},
        requests_per_job=requests.total() / len(records) if records else 0.0,
        commits=commits,
        archive_parts=parts,
        disk_bytes=sum(path.stat().st_size for path in store.rglob("*") if path.is_file()),
    )


def percentiles(times_ms: Sequence[int]) -> Percentiles:
    """By nearest rank: each answer is a time that really occurred."""
    ordered = sorted(times_ms) or [0]
    ranks = (math.ceil(len(ordered) * share) - 1 for share in (0.50, 0.95, 0.99))
    return Percentiles(*(ordered[rank] / 1000 for rank in ranks))
