"""The columns of jobs, and how jobs become Arrow batches of them.

Live jobs and finished ones have the same columns, so that the two can be put together; what one kind does not have
is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from ..core.archive_record import ArchiveRecord, content_from
from ..core.state import PastAttempt, content_bytes, key_text
from ..errors import OsqueueError, Rejected
from ..model.job_options import linked
from ..model.keys import key_of, shard_of
from ..objects.snapshot import LiveJob
from ..pipeline.option_columns import KEPT, OptionColumn
from ..pipeline.view_columns import ATTEMPTS_TYPE, JOB, TYPES, attempt_value, comment_of, value_of

TEXT, INT, LONG = pa.string(), pa.int32(), pa.int64()
BATCH_ROWS = 10_000  # rows of one Arrow batch


class PayloadJob(msgspec.Struct, frozen=True, gc=False):
    """A live job with its payload, or why that cannot be read."""

    live: LiveJob
    payload: bytes | OsqueueError | None = None


class JobColumn(msgspec.Struct, frozen=True):
    """One column: its type, what it means, and where its value comes from."""

    name: str
    type: pa.DataType
    comment: str
    live: Callable[[PayloadJob], Any] | None = None
    finished: Callable[[ArchiveRecord], Any] | None = None


def _last_error(attempts: Sequence[PastAttempt]) -> str | None:
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


def _column(
    name: str,
    live: Callable[[PayloadJob], Any] | None = None,
    finished: Callable[[ArchiveRecord], Any] | None = None,
    type: pa.DataType | None = None,
) -> JobColumn:
    """A column that means what a job's view means by it."""
    field = JOB[name]
    return JobColumn(name, type or TYPES[field.type], comment_of(field), live, finished)


def _of_job(name: str, type: pa.DataType | None = None) -> JobColumn:
    """One that rows of live jobs have, and records of finished ones."""
    field = JOB[name]
    return _column(name, lambda s: value_of(field, s.live.job), lambda r: value_of(field, r), type)


def _of_lease(name: str) -> JobColumn:
    """One of jobs that are being worked on."""
    field = JOB[name]
    return _column(name, lambda s: s.live.lease and value_of(field, s.live.lease))


COLUMNS = (
    _column("job_id", lambda s: key_text(s.live.job.key), lambda r: r.job_id),
    _of_job("run"),
    _of_job("replaced"),
    _column("parent", lambda s: linked(s.live.job, "parent"), lambda r: linked(r, "parent")),
    JobColumn(
        "shard",
        INT,
        "where it lies",
        lambda s: shard_of(s.live.job.key),
        lambda r: shard_of(key_of(r.job_id)),
    ),
    _column("state", lambda s: s.live.state, lambda r: r.state),
    *map(_kept, KEPT),
    _of_job("enqueued_at"),
    _column("due_at", lambda s: value_of(JOB["due_at"], s.live.job), lambda r: r.scheduled_ms * 1000 or None),
    _column("finished_at", finished=lambda r: value_of(JOB["finished_at"], r)),
    _of_job("attempt", INT),
    JobColumn(
        "payload",
        TEXT,
        "what it was enqueued with, as JSON; null when finished, unless the archive gets payloads, or of a serialiser"
        " that is not known here",
        lambda s: payload_text(s.payload, s.live.job.codec),
        lambda r: None if r.payload is None else payload_text(content_from(r.payload, r.codec), r.codec),
    ),
    _column("payload_bytes", lambda s: content_bytes(s.live.job.payload), lambda r: r.payload_bytes),
    JobColumn("codec", TEXT, "the serialiser of its payload", lambda s: s.live.job.codec, lambda r: r.codec),
    JobColumn(
        "result_bytes", LONG, "its result's size; null while it is live", finished=lambda r: r.result_bytes
    ),
    *map(_of_lease, ("worker", "started_at", "heartbeat_at", "expires_at", "cancel_requested")),
    JobColumn("why", TEXT, "cancelled: by whom, or why", finished=lambda r: r.why or None),
    _column("error", lambda s: _last_error(s.live.job.history), lambda r: _last_error(r.attempts)),
    _column(
        "attempts",
        lambda s: [attempt_value(each) for each in s.live.job.history],
        lambda r: [attempt_value(each) for each in r.attempts],
        ATTEMPTS_TYPE,
    ),
)
_BY_NAME = {column.name: column for column in COLUMNS}
SCHEMA = StructType(
    [
        StructField(column.name, from_arrow_type(column.type), True, {"comment": column.comment})
        for column in COLUMNS
    ]
)


def wanted(schema: StructType) -> tuple[JobColumn, ...]:
    """The columns of a schema that the reader asked for: all, or some of them. Raises Rejected."""
    for field in schema:
        column = _BY_NAME.get(field.name)
        if column is None:
            raise Rejected(
                f"schema: there is no column {field.name!r}; there are {', '.join(_BY_NAME)}.", field="schema"
            )
        if (known := SCHEMA[field.name].dataType) != field.dataType:
            raise Rejected(
                f"schema: column {field.name!r} is {known.simpleString()}, not"
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
