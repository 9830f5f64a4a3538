"""The columns of jobs, and how jobs become Arrow batches of them.

Live jobs and finished ones have the same columns, so that the two can be put together; what one kind does not have
is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from osqueue.core.archive_record import ArchiveRecord, AttemptRecord
from osqueue.core.state import PastAttempt, content_bytes, key_text
from osqueue.errors import OsqueueError, Rejected
from osqueue.model.keys import key_of, shard_of
from osqueue.objects.snapshot import LiveJob

from ..option_columns import KEPT, OptionColumn

TEXT, INT, LONG, FLAG, MOMENT = StringType(), IntegerType(), LongType(), BooleanType(), TimestampType()
LEASE = StructType(
    [
        StructField("run", LONG),  # which lease of the job it was, from 1
        StructField("worker", TEXT),
        StructField("started_at", MOMENT),
        StructField("ended_at", MOMENT),
        StructField("outcome", TEXT),  # completed, failed, stalled, released or cancelled
        StructField("error_type", TEXT),
        StructField("error", TEXT),
        StructField("heartbeat_at", MOMENT),  # stalled: the last sign of life
    ]
)
BATCH_ROWS = 10_000  # rows of one Arrow batch


class PayloadJob(msgspec.Struct, frozen=True, gc=False):
    """A live job with its payload, or why that cannot be read."""

    live: LiveJob
    payload: bytes | OsqueueError | None = None


class JobColumn(msgspec.Struct, frozen=True):
    """One column: its type, what it means, and where its value comes from."""

    name: str
    type: DataType
    comment: str
    live: Callable[[PayloadJob], Any] | None = None
    finished: Callable[[ArchiveRecord], Any] | None = None


def _us(ms: int) -> int | None:
    """A stored time as Arrow has it; 0 is none."""
    return ms * 1000 if ms else None


def _attempt(each: PastAttempt | AttemptRecord) -> dict[str, Any]:
    return {
        "run": each.run,
        "worker": each.worker,
        "started_at": _us(each.started_ms),
        "ended_at": _us(each.ended_ms),
        "outcome": each.outcome,
        "error_type": each.error_type or None,
        "error": each.error or None,
        "heartbeat_at": _us(each.beat_ms),
    }


def _last_error(attempts: Sequence[PastAttempt | AttemptRecord]) -> str | None:
    return next((each.error for each in reversed(attempts) if each.error), None)


def payload_text(payload: bytes | OsqueueError | None, codec: str) -> str | None:
    """A payload as JSON; None where it has no such form. Raises what kept it from being read."""
    if isinstance(payload, OsqueueError):
        raise payload
    if payload is None:
        return None
    try:
        if codec == "json":
            return payload.decode()
        if codec == "msgpack":
            return msgspec.json.encode(msgspec.msgpack.decode(payload)).decode()
    except (ValueError, TypeError, msgspec.MsgspecError):  # bytes as a key, numbers too large
        return None
    return None


def _kept(column: OptionColumn) -> JobColumn:
    """The column of an option that stays with the job."""
    return JobColumn(
        column.name, column.type, column.comment, lambda s: column.value(s.live.job), column.value
    )


COLUMNS = (
    JobColumn("job_id", TEXT, "the job's key", lambda s: key_text(s.live.job.key), lambda r: r.job_id),
    JobColumn(
        "run",
        LONG,
        "leases ever granted, and redrives: (job_id, run) is unique among finished jobs",
        lambda s: s.live.job.run,
        lambda r: r.run,
    ),
    JobColumn(
        "shard",
        INT,
        "where it lies",
        lambda s: shard_of(s.live.job.key),
        lambda r: shard_of(key_of(r.job_id)),
    ),
    JobColumn(
        "state",
        TEXT,
        "queued, processing, scheduled, failing or failed; finished: completed, failed or cancelled",
        lambda s: s.live.state,
        lambda r: r.state,
    ),
    *map(_kept, KEPT),
    JobColumn(
        "enqueued_at",
        MOMENT,
        "when it was accepted",
        lambda s: _us(s.live.job.enqueued_ms),
        lambda r: _us(r.enqueued_ms),
    ),
    JobColumn(
        "due_at",
        MOMENT,
        "live: when it becomes claimable; finished: when it was to; null: at once",
        lambda s: _us(s.live.job.due_ms),
        lambda r: _us(r.scheduled_ms),
    ),
    JobColumn(
        "finished_at", MOMENT, "when it ended; null while it is live", finished=lambda r: _us(r.finished_ms)
    ),
    JobColumn(
        "attempt",
        INT,
        "attempts used; a release gives one back, a redrive starts again",
        lambda s: s.live.job.attempt,
        lambda r: r.attempt,
    ),
    JobColumn(
        "payload",
        TEXT,
        "what it was enqueued with, as JSON; null when finished, or of a serialiser that is not known here",
        lambda s: payload_text(s.payload, s.live.job.codec),
    ),
    JobColumn(
        "payload_bytes",
        LONG,
        "its payload's size as stored",
        lambda s: content_bytes(s.live.job.payload),
        lambda r: r.payload_bytes,
    ),
    JobColumn("codec", TEXT, "the serialiser of its payload", lambda s: s.live.job.codec, lambda r: r.codec),
    JobColumn(
        "result_bytes", LONG, "its result's size; null while it is live", finished=lambda r: r.result_bytes
    ),
    JobColumn(
        "worker", TEXT, "processing: who holds the lease", lambda s: s.live.lease and s.live.lease.worker
    ),
    JobColumn(
        "started_at",
        MOMENT,
        "processing: when it was claimed",
        lambda s: s.live.lease and _us(s.live.lease.started_ms),
    ),
    JobColumn(
        "heartbeat_at",
        MOMENT,
        "processing: the last sign of life",
        lambda s: s.live.lease and _us(s.live.lease.beat_ms),
    ),
    JobColumn(
        "expires_at",
        MOMENT,
        "processing: when the lease ends",
        lambda s: s.live.lease and _us(s.live.lease.expires_ms),
    ),
    JobColumn(
        "cancel_requested",
        FLAG,
        "processing: somebody asked for it to be cancelled",
        lambda s: s.live.lease and s.live.lease.cancel,
    ),
    JobColumn("why", TEXT, "cancelled: by whom, or why", finished=lambda r: r.why or None),
    JobColumn(
        "error",
        TEXT,
        "of the last attempt that failed",
        lambda s: _last_error(s.live.job.history),
        lambda r: _last_error(r.attempts),
    ),
    JobColumn(
        "attempts",
        ArrayType(LEASE),
        "the latest eight leases that ended",
        lambda s: [_attempt(each) for each in s.live.job.history],
        lambda r: [_attempt(each) for each in r.attempts],
    ),
)
_BY_NAME = {column.name: column for column in COLUMNS}
SCHEMA = StructType(
    [StructField(column.name, column.type, True, {"comment": column.comment}) for column in COLUMNS]
)


def wanted(schema: StructType) -> tuple[JobColumn, ...]:
    """The columns of a schema that the reader asked for: all, or some of them. Raises Rejected."""
    for field in schema:
        column = _BY_NAME.get(field.name)
        if column is None:
            raise Rejected(
                f"schema: there is no column {field.name!r}; there are {', '.join(_BY_NAME)}.", field="schema"
            )
        if column.type != field.dataType:
            raise Rejected(
                f"schema: column {field.name!r} is {column.type.simpleString()}, not"
                f" {field.dataType.simpleString()}. Cast it after the read.",
                field="schema",
            )
    return tuple(_BY_NAME[field.name] for field in schema)


class ArrowBatcher:
    """Makes Arrow batches of some columns."""

    def __init__(self, schema: StructType) -> None:
        self._columns = wanted(schema)
        self._schema = to_arrow_schema(schema)

    def of_live(self, rows: Sequence[PayloadJob]) -> pa.RecordBatch:
        """A batch of live jobs."""
        return self._batch([column.live for column in self._columns], rows)

    def of_finished(self, rows: Sequence[ArchiveRecord]) -> pa.RecordBatch:
        """A batch of finished jobs."""
        return self._batch([column.finished for column in self._columns], rows)

    def _batch(self, values: Iterable[Callable[[Any], Any] | None], rows: Sequence[Any]) -> pa.RecordBatch:
        arrays = [
            pa.nulls(len(rows), field.type)
            if value_of is None
            else pa.array([value_of(row) for row in rows], field.type)
            for value_of, field in zip(values, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
