"""From archive records to rows of ``jobs`` and ``attempts``: pure, records in and columns out.

A job that failed, was redriven and ended again tells of its earlier leases a second time. They belong to the earlier
record: a record's own are the last ones of which as many count as it says that attempts were used.

A record remembers eight leases. If it has eight of its own, and runs were granted before them that are no attempts of
it, then it was redriven before or a lease was given back: nobody knows, so how long it took is not told.

A moment that readers of tables cannot show, before 1970 or after the year 9999, is null: ``clock_suspect`` names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from ..core.archive_record import ArchiveRecord, AttemptRecord
from ..core.state import FAILED, RELEASED, STALLED
from ..limits import AT_MS_MAX
from ..model.fields import DescribedField
from ..model.job_options import linked
from . import archive, clocks
from .option_columns import KEPT
from .tables import ATTEMPTS, JOBS
from .view_columns import ATTEMPT

_JOBS, _ATTEMPTS = JOBS.arrow, ATTEMPTS.arrow
_LEASE = _JOBS.field("attempts").type.value_type
_MILLISECONDS = pa.timestamp("ms", tz="UTC")

AttemptRecords = Sequence[AttemptRecord]


class Rows(Struct, frozen=True):
    """Some rows of both tables."""

    jobs: pa.Table
    attempts: pa.Table


def key(record: ArchiveRecord) -> str:
    """What tells a repeated record of a queue from another one: the job, and its run."""
    return f"{record.job_id}{record.run}"


def rows(parts: Mapping[str, Sequence[ArchiveRecord]]) -> Rows:
    """The records of some parts of the archive, by their keys, as rows.

    Columns are made of all of them together: most of the time of a few rows would go into that.
    """
    told: list[tuple[ArchiveRecord, AttemptRecords]] = []
    suspect: list[str | None] = []
    hours: list[int] = []
    for part, records in parts.items():
        mine, hour_ms = [(each, own(each)) for each in records], archive.hour_of(part)
        told += mine
        suspect += _suspect(mine, hour_ms)
        hours += [archive.hour_of_day(hour_ms)] * len(mine)
    leases = pa.StructArray.from_arrays(
        _leases([lease for _, mine in told for lease in mine]), fields=list(_LEASE)
    )
    return Rows(_jobs(told, leases, suspect, hours, parts), _attempts(told, leases, suspect, hours))


def own(record: ArchiveRecord) -> AttemptRecords:
    """The leases since the job was enqueued or redriven."""
    told = record.attempts
    if len(told) <= record.attempt:
        return told
    counted = 0
    for at in reversed(range(len(told))):
        counted += told[at].outcome != RELEASED
        if counted > record.attempt:
            return told[at + 1 :]
    return told


def _suspect(told: Sequence[tuple[ArchiveRecord, AttemptRecords]], hour_ms: int) -> list[str | None]:
    """What is wrong with the moments of each record."""
    moments = [ms for record, _ in told for ms in (record.enqueued_ms, record.finished_ms)]
    moments += [ms for _, mine in told for lease in mine for ms in (lease.started_ms, lease.ended_ms)]
    if not moments or clocks.possible(min(moments), max(moments), hour_ms):
        return [None] * len(told)
    return [clocks.wrong_moments(record, mine, _is_timed(record, mine), hour_ms) for record, mine in told]


def _leases(each: AttemptRecords) -> list[pa.Array]:
    found = []
    for field, column in zip(ATTEMPT, _LEASE, strict=True):
        values = [getattr(lease, field.column) for lease in each]
        found.append(pa.array([v or None for v in values] if field.optional else values, column.type))
    return found


def _jobs(
    told: Sequence[tuple[ArchiveRecord, AttemptRecords]],
    leases: pa.StructArray,
    suspect: Sequence[str | None],
    hours: Sequence[int],
    parts: Mapping[str, Sequence[ArchiveRecord]],
) -> pa.Table:
    records = [record for record, _ in told]
    claimable = [max(each.enqueued_ms, each.scheduled_ms) for each in records]
    started = [_started_ms(record, mine) for record, mine in told]
    timed = [_is_timed(record, mine) for record, mine in told]
    ends = [0]
    for _, mine in told:
        ends.append(ends[-1] + len(mine))
    columns: dict[str, Any] = {
        "job_id": [each.job_id for each in records],
        "run": [each.run for each in records],
        "state": [each.state for each in records],
        **{column.name: column.values(records) for column in KEPT},
        "enqueued_at": _moments([each.enqueued_ms for each in records]),
        "claimable_at": _moments(claimable),
        "start_by": _moments([each.start_by_ms or None for each in records]),
        "started_at": _moments(started),
        "finished_at": _moments([each.finished_ms for each in records]),
        "attempt": [each.attempt for each in records],
        "replaced": [each.replaced for each in records],
        "parent": [linked(each, "parent") for each in records],
        "redriven": [len(mine) < len(record.attempts) for record, mine in told],
        "wait_ms": [
            max(start - since, 0) if known and start is not None else None
            for start, since, known in zip(started, claimable, timed, strict=True)
        ],
        "total_ms": [
            max(each.finished_ms - since, 0) if known else None
            for each, since, known in zip(records, claimable, timed, strict=True)
        ],
        "why": [each.why for each in records],
        "payload_bytes": [each.payload_bytes for each in records],
        "result_bytes": [each.result_bytes for each in records],
        "codec": [each.codec for each in records],
        "attempts": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), leases),
        "clock_suspect": suspect,
        "part": [name for part, mine in parts.items() for name in [part.rpartition("/")[2]] * len(mine)],
        "hour": hours,
    }
    return _table(columns, _JOBS)


def _started_ms(record: ArchiveRecord, mine: AttemptRecords) -> int | None:
    """When the first lease began; None: there was none, or it is forgotten."""
    if not mine:
        return None
    first = mine[0]
    return first.started_ms if first.run == 1 or len(mine) < len(record.attempts) else None


def _is_timed(record: ArchiveRecord, mine: AttemptRecords) -> bool:
    """Is it known since when the job waited?"""
    if len(mine) < len(record.attempts):
        return False
    if not mine or mine[0].run == 1:
        return True
    forgotten = record.attempt - sum(lease.outcome != RELEASED for lease in mine)
    return mine[0].run <= 1 + max(forgotten, 0)


def _attempts(
    told: Sequence[tuple[ArchiveRecord, AttemptRecords]],
    leases: pa.StructArray,
    suspect: Sequence[str | None],
    hours: Sequence[int],
) -> pa.Table:
    of = [record for record, mine in told for _ in mine]
    column = dict(zip((field.name for field in _LEASE), leases.flatten(), strict=True))
    columns: dict[str, Any] = {
        "job_id": [each.job_id for each in of],
        **{each.name: _shown(each, column[each.column]) for each in ATTEMPT},
        "run_ms": [max(lease.ended_ms - lease.started_ms, 0) for _, mine in told for lease in mine],
        "kind": [each.kind for each in of],
        "priority": [each.priority for each in of],
        "job_run": [each.run for each in of],
        "final": [lease is mine[-1] and _ended(record, lease) for record, mine in told for lease in mine],
        "clock_suspect": [why for (_, mine), why in zip(told, suspect, strict=True) for _ in mine],
        "hour": [hour for (_, mine), hour in zip(told, hours, strict=True) for _ in mine],
    }
    return _table(columns, _ATTEMPTS)


def _shown(field: DescribedField, found: pa.Array) -> pa.Array:
    """A column of leases as ``attempts`` has it: with moments, and texts that are empty rather than null."""
    if field.type is datetime:
        return _moments(found)
    return found.fill_null("") if field.type is str else found


def _ended(record: ArchiveRecord, lease: AttemptRecord) -> bool:
    """Did the job end with this lease of its last ones?"""
    return lease.outcome == record.state or (lease.outcome == STALLED and record.state == FAILED)


def _moments(ms: Any) -> pa.Array:
    found = pa.array(ms, pa.int64())
    shown = pc.and_(pc.greater_equal(found, 0), pc.less_equal(found, AT_MS_MAX))
    return pc.if_else(shown, found, None).cast(_MILLISECONDS)


def _table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    arrays = [
        found.cast(field.type)
        if isinstance(found := columns[field.name], pa.Array)
        else pa.array(found, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
