"""Finished jobs as archive records: one JSON line each, whole timeline included, compressed with gzip.

JSON lines because every tool reads them and Spark does so natively; gzip because it is in every reader. What has its
default value is left out. The bytes depend on the rows alone (no file name, no time stamp inside), so writing a part
again is harmless.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from .. import limits
from ..errors import Damaged, NewerFormat
from .state import (
    ARCHIVE_ONLY,
    ENDED,
    BodyRef,
    FinishedJob,
    JobRecord,
    PastAttempt,
    content_bytes,
    key_text,
)

RECORD_FORMAT = 1
_GZIP_LEVEL = 1  # four times as fast as the default, a few percent larger

_encode_lines = msgspec.json.Encoder().encode_lines


class AttemptRecord(PastAttempt, frozen=True, array_like=False, omit_defaults=True):
    """One lease that ended, with the names of its columns beside their values."""


class ArchiveRecord(Struct, frozen=True, omit_defaults=True, rename={"client_id": "id"}):
    """What the archive tells of one job. Fields may be added, never renamed.

    A job that failed, was redriven and ended again has a record for each ending, told apart by ``run``.
    """

    format: int
    job_id: str
    run: int  # leases ever granted, and redrives; with job_id it tells a repeated record from another one
    state: str
    enqueued_ms: int
    finished_ms: int
    attempt: int
    payload_bytes: int
    client_id: str | None = None
    kind: str = ""
    priority: int = limits.PRIORITY_DEFAULT
    scheduled_ms: int = 0  # when it was to become claimable; 0: at once
    max_attempts: int = limits.ATTEMPTS_DEFAULT
    result_ttl_ms: int = limits.RESULT_TTL_MS_DEFAULT
    codec: str = "json"
    why: str = ""
    run_within_ms: int = 0  # how long one attempt may run; 0: no limit
    start_by_ms: int = 0  # after which no attempt starts; 0: no deadline
    # A field that a row has as well stands above this line.
    result_bytes: int = 0
    # The object that holds the result, below the shard's prefix, until it expires.
    result_body: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    headers: dict[str, str] = {}


# What a record tells as the rows do, under the same names: all but the first two fields and the last four.
_same = attrgetter(
    *(
        f"job.{name}" if name in JobRecord.__struct_fields__ else name
        for name in ArchiveRecord.__struct_fields__[2:-4]
    )
)

_decode_lines = msgspec.json.Decoder(ArchiveRecord).decode_lines


def to_record(row: FinishedJob) -> ArchiveRecord:
    """The record of one finished job."""
    job = row.job
    told: list[Any] = [
        RECORD_FORMAT,
        key_text(job.key),
        *_same(row),
        content_bytes(row.result),
        row.result.name if isinstance(row.result, BodyRef) else None,
        tuple([AttemptRecord(*astuple(each)) for each in job.history]),
        dict(job.headers or ()),
    ]
    return ArchiveRecord(*told)


def past_attempts(record: ArchiveRecord) -> tuple[PastAttempt, ...]:
    """Its leases, as rows of a head have them."""
    return tuple([PastAttempt(*astuple(each)) for each in record.attempts])


def wants_record(row: FinishedJob) -> bool:
    """Does the archive still have to get this row's record?"""
    return row.mark in (ENDED, ARCHIVE_ONLY)


def encode_part(records: Iterable[ArchiveRecord]) -> bytes:
    """An archive part."""
    return gzip.compress(_encode_lines(list(records)), _GZIP_LEVEL, mtime=0)


def decode_part(data: bytes, name: str) -> list[ArchiveRecord]:
    """The inverse. Raises Damaged or NewerFormat."""
    if not data:
        raise Damaged(f"{name} is no archive part: it is empty.")
    try:
        records = _decode_lines(gzip.decompress(data))
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError) as error:
        raise Damaged(f"{name} is no archive part: {error}") from error
    if any(each.format > RECORD_FORMAT for each in records):
        raise NewerFormat(f"{name} was written by a newer release. Upgrade osqueue.")
    return records
