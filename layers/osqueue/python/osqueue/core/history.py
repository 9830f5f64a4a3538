"""Finished jobs as archive records: one JSON line each, whole timeline included, compressed with gzip.

JSON lines because every tool reads them and Spark does so natively; gzip because it is in every reader.
The bytes depend on the rows alone (no file name, no time stamp inside), so writing a part again is harmless.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from .state import Attempt, Body, Finished, content_bytes, key_text

RECORD_FORMAT = 1
_GZIP_LEVEL = 1  # four times as fast as the default, a few percent larger

_encode_lines = msgspec.json.Encoder().encode_lines


class AttemptRecord(Struct, frozen=True):
    """One lease that ended."""

    run: int
    worker: str
    started_ms: int
    ended_ms: int
    outcome: str
    error: str


class Record(Struct, frozen=True):
    """What the archive tells of one job. Fields may be added, never renamed."""

    format: int
    queue: str
    job_id: str
    run: int  # leases ever granted; with job_id it tells a repeated record from another one
    state: str
    kind: str
    priority: int
    enqueued_ms: int
    finished_ms: int
    attempt: int
    max_attempts: int
    result_ttl_ms: int
    codec: str
    payload_bytes: int
    result_bytes: int
    result_body: str | None
    why: str
    attempts: tuple[AttemptRecord, ...]


def record(row: Finished, queue: str) -> Record:
    """The record of one finished job."""
    job = row.job
    return Record(
        RECORD_FORMAT,
        queue,
        key_text(job.key),
        job.run,
        row.state,
        job.kind,
        job.priority,
        job.enqueued_ms,
        row.finished_ms,
        job.attempt,
        job.max_attempts,
        job.result_ttl_ms,
        job.codec,
        row.payload_bytes,
        content_bytes(row.result),
        row.result.name if isinstance(row.result, Body) else None,
        row.why,
        tuple(map(_attempt, job.history)),
    )


def _attempt(each: Attempt) -> AttemptRecord:
    return AttemptRecord(each.run, each.worker, each.started_ms, each.ended_ms, each.outcome, each.error)


def encode_part(rows: Sequence[Finished], queue: str) -> bytes:
    """An archive part."""
    return gzip.compress(_encode_lines([record(row, queue) for row in rows]), _GZIP_LEVEL, mtime=0)
