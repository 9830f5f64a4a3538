"""Finished jobs as archive records: one JSON line each, whole timeline included, compressed with gzip.

JSON lines because every tool reads them and Spark does so natively; gzip because it is in every reader. What has its
default value is left out. The bytes depend on the rows alone (no file name, no time stamp inside), so writing a part
again is harmless.

Where a queue archives payloads, a record has the payload and the result as text: JSON as it was written, the bytes of
any other serialiser in base64. It is text and no value of its own, because a column has one type whatever is in it, and
because the bytes have to come back as they were.
"""

import gzip
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from .. import limits
from ..errors import Damaged, NewerFormat, OsqueueError
from .encoding import cut_by_weight
from .rows import BodyRef, StoredContent
from .state import ARCHIVE_ONLY, ENDED, FinishedJob, JobRecord, Links, PastAttempt, content_bytes, key_text

RECORD_FORMAT = 1
JSON = "json"  # the serialiser whose bytes are text
_GZIP_FORMAT = 16 + zlib.MAX_WBITS  # of zlib: gzip's header and checksum
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
    replaced: int = 0  # how many jobs of its id it took the place of, one after the other
    group: str = ""
    units: int = 1  # as how many starts of a rate each of its starts counted
    # A field that a row has as well stands above this line.
    result_bytes: int = 0
    # The object that holds the result, below the shard's prefix, until it expires.
    result_body: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    headers: dict[str, str] = {}
    # Only where the queue archives payloads: JSON, or base64 where the serialiser is another one.
    payload: str | None = None  # by ``codec``
    result: str | None = None  # by ``result_codec``; nothing: there is none
    result_codec: str = ""
    left_out: dict[str, str] = {}  # payload or result: why it is not here
    parent: str = ""  # the job, or the batch, with whose end it came
    batch: str = ""  # of which it was


# What a record tells as the rows do, under the same names.
_same = attrgetter(
    *(
        f"job.{name}" if name in JobRecord.__struct_fields__ else name
        for name in ArchiveRecord.__struct_fields__[2 : ArchiveRecord.__struct_fields__.index("result_bytes")]
    )
)

_decode_lines = msgspec.json.Decoder(ArchiveRecord).decode_lines


class ArchivedContents(Struct, frozen=True):
    """What a record tells of a job's payload and result."""

    payload: str | None = None
    result: str | None = None
    result_codec: str = ""
    left_out: dict[str, str] = {}


NO_CONTENTS = ArchivedContents()
NO_LINKS = Links()


def contents_of(row: FinishedJob) -> tuple[StoredContent, ...]:
    """The payload and the result, where the archive is to get them; the ones that it takes."""
    told = () if row.payload is None else (row.payload, row.result)
    return tuple([each for each in told if content_bytes(each) <= limits.ARCHIVED_CONTENT_BYTES_MAX])


def archived_contents(row: FinishedJob, read: Iterator[bytes | OsqueueError]) -> ArchivedContents:
    """The contents of a record. ``read`` yields the bytes of each of ``contents_of``, or why there are none."""
    if row.payload is None:
        return NO_CONTENTS
    result_codec = row.codec or (row.job.codec if content_bytes(row.result) else "")
    texts: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, content, codec in (
        ("payload", row.payload, row.job.codec),
        ("result", row.result, result_codec),
    ):
        if content_bytes(content) > limits.ARCHIVED_CONTENT_BYTES_MAX:
            left_out[name] = (
                f"its {content_bytes(content):,} bytes are more than the {limits.ARCHIVED_CONTENT_BYTES_MAX:,} that the"
                " archive takes."
            )
            continue
        data = next(read)
        if isinstance(data, OsqueueError):
            left_out[name] = data.message
        elif codec:
            try:
                texts[name] = data.decode() if codec == JSON else b64encode(data).decode()
            except UnicodeDecodeError:
                left_out[name] = "it is no JSON, though its serialiser says so."
    return ArchivedContents(texts.get("payload"), texts.get("result"), result_codec, left_out)


def content_from(text: str, codec: str) -> bytes:
    """The bytes of a payload or a result that a record has as text. Raises Damaged."""
    try:
        return text.encode() if codec == JSON else b64decode(text, validate=True)
    except ValueError as error:
        raise Damaged(f"a record of the archive has contents that are no base64: {error}") from error


def cut_by_contents(rows: Sequence[FinishedJob]) -> Iterator[list[FinishedJob]]:
    """Rows, in order, as groups for parts that hold no more contents than ``ARCHIVE_PART_BYTES`` (or one job's)."""
    return cut_by_weight(
        rows, lambda row: sum(map(content_bytes, contents_of(row))), limits.ARCHIVE_PART_BYTES
    )


def to_record(row: FinishedJob, contents: ArchivedContents = NO_CONTENTS) -> ArchiveRecord:
    """The record of one finished job."""
    job = row.job
    links = job.links or NO_LINKS
    told: list[Any] = [
        RECORD_FORMAT,
        key_text(job.key),
        *_same(row),
        content_bytes(row.result),
        row.result.name if isinstance(row.result, BodyRef) else None,
        tuple([AttemptRecord(*astuple(each)) for each in job.history]),
        dict(job.headers or ()),
        *astuple(contents),
        *[key_text(key) if key else "" for key in (links.parent, links.batch)],
    ]
    return ArchiveRecord(*told)


def past_attempts(record: ArchiveRecord) -> tuple[PastAttempt, ...]:
    """Its leases, as rows of a head have them."""
    return tuple([PastAttempt(*astuple(each)) for each in record.attempts])


def wants_record(row: FinishedJob) -> bool:
    """Does the archive still have to get this row's record?"""
    return row.mark in (ENDED, ARCHIVE_ONLY) and row.successor is None


def encode_part(records: Iterable[ArchiveRecord]) -> bytes:
    """An archive part."""
    return gzip.compress(_encode_lines(list(records)), _GZIP_LEVEL, mtime=0)


def unpack_part(data: bytes, name: str) -> bytes:
    """Return the lines of an archive part, at most ``ARCHIVE_PART_UNPACKED_BYTES_MAX`` bytes. Raises Damaged."""
    lines: list[bytes] = []
    most = left = limits.ARCHIVE_PART_UNPACKED_BYTES_MAX
    try:
        while data:
            member = zlib.decompressobj(_GZIP_FORMAT)
            lines.append(member.decompress(data, left + 1))
            left -= len(lines[-1])
            if left < 0:
                raise Damaged(
                    f"{name} is not an archive part: it unpacks to more than {most:,} bytes, which no part has."
                    " Something else wrote it: bring back an earlier version of it, or delete it."
                )
            if not member.eof:
                raise Damaged(f"{name} is not an archive part: its end is missing.")
            data = member.unused_data
    except zlib.error as error:
        raise Damaged(f"{name} is not an archive part: {error}") from error
    return b"".join(lines) if len(lines) != 1 else lines[0]


def decode_part(data: bytes, name: str) -> list[ArchiveRecord]:
    """Return the records of an archive part. Raises Damaged or NewerFormat."""
    if not data:
        raise Damaged(f"{name} is not an archive part: it is empty.")
    try:
        records = _decode_lines(unpack_part(data, name))
    except msgspec.MsgspecError as error:
        raise Damaged(f"{name} is not an archive part: {error}") from error
    if any(each.format > RECORD_FORMAT for each in records):
        raise NewerFormat(f"{name} was written by a newer release. Upgrade osqueue.")
    return records
