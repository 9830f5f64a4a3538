"""The tables: what is in them, where they live, and how Spark reads them.

    <tables>/<table>/queue=<queue>/date=<YYYY-MM-DD>/rows.parquet

``jobs`` and ``attempts`` by the day of the archive, UTC, their rows in the order of its hours; metrics by that of the
event. Plain Parquet, compressed with zstd, a partition one file, and one more for each hour of very many jobs
(``pipeline.files``). Read them with ``read``, which knows the type of every column; a reader that guesses takes a
queue called ``2024`` for a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime

import pyarrow as pa
from msgspec import Struct

from ..commit.effects import together
from ..objects.archive import bodies
from . import files
from .option_columns import KEPT
from .places import store_at
from .view_columns import ATTEMPT, JOB, MOMENT, TYPES, comment_of, list_of

TEXT, INT, LONG, REAL = pa.string(), pa.int32(), pa.int64(), pa.float64()
FLAG, DAY = pa.bool_(), pa.date32()


class TableColumn(Struct, frozen=True):
    """One column."""

    name: str
    type: pa.DataType
    comment: str  # what it means


class TableSpec(Struct, frozen=True):
    """One table."""

    name: str  # its folder's
    columns: tuple[TableColumn, ...]  # without those it is partitioned by
    spread: tuple[str, ...] = ()  # columns whose values hardly repeat: a dictionary costs time and space
    order: tuple[str, ...] = ()  # columns that rows of a partition are sorted by, where Spark makes them

    @property
    def schema(self) -> pa.Schema:
        """All columns, as they are read."""
        return _schema((*self.columns, *PARTITIONS))

    @property
    def arrow(self) -> pa.Schema:
        """Those of its files."""
        return _schema(self.columns)


def _schema(columns: Sequence[TableColumn]) -> pa.Schema:
    return pa.schema([(column.name, column.type) for column in columns])


def _columns(*columns: tuple[str, pa.DataType, str]) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(*column) for column in columns)


# The folders of each table, in this order.
PARTITIONS = _columns(
    ("queue", TEXT, "the queue's name"),
    ("date", DAY, "the day, UTC: of jobs and attempts that on which the record was archived"),
)
HOUR = (
    "hour",
    INT,
    "the hour in which the record was archived, 0 to 23, UTC: that of its end or a later one",
)


# ── History ──────────────────────────────────────────────────────────────────
def _same(*names: str) -> Iterator[tuple[str, pa.DataType, str]]:
    """Columns that mean what a job's view means by them."""
    return ((name, TYPES[JOB[name].type], comment_of(JOB[name])) for name in names)


# In milliseconds, as the archive has them.
_LEASES = list_of((each.column, LONG if each.type is datetime else TYPES[each.type]) for each in ATTEMPT)

JOBS = TableSpec(
    "jobs",
    _columns(
        *_same("job_id", "run"),
        ("state", TEXT, "completed, failed or cancelled"),
        *((each.name, each.type, each.comment) for each in KEPT),
        *_same("enqueued_at"),
        ("claimable_at", MOMENT, "when it could be claimed first: enqueued, or scheduled for"),
        ("start_by", MOMENT, "after this no attempt of it was to start; null: there was no deadline"),
        ("started_at", MOMENT, "its first lease since it was enqueued or redriven; null: none, or forgotten"),
        *_same("finished_at"),
        ("attempt", INT, comment_of(JOB["attempt"])),
        *_same("replaced", "parent"),
        ("redriven", FLAG, "this is what became of it after it had failed and was redriven"),
        (
            "wait_ms",
            LONG,
            "claimable to first claim, milliseconds; null: never claimed, redriven, or forgotten",
        ),
        ("total_ms", LONG, "claimable to end, milliseconds; null: redriven, or perhaps redriven"),
        ("why", TEXT, "cancelled: by whom, or why"),
        *_same("payload_bytes"),
        ("result_bytes", LONG, "its result"),
        ("codec", TEXT, "the serialiser of its payload"),
        (
            "attempts",
            _LEASES,
            "the latest eight leases since it was enqueued or redriven, as archived: times are milliseconds since 1970",
        ),
        (
            "clock_suspect",
            TEXT,
            "which of enqueued_at, attempts, finished_at the store's clock does not allow; null: none, as it should be",
        ),
        ("part", TEXT, "the archive part it was read from"),
        HOUR,
    ),
    (
        *("job_id", "enqueued_at", "claimable_at", "started_at", "finished_at", "wait_ms", "total_ms"),
        *("attempts.list.element.started_ms", "attempts.list.element.ended_ms"),
    ),
)
# Of each job's record the latest eight leases: a job remembers no more, and nothing else tells of those before.
ATTEMPTS = TableSpec(
    "attempts",
    _columns(
        ("job_id", TEXT, "the job's key; (job_id, run) is unique"),
        *((each.name, TYPES[each.type], comment_of(each)) for each in ATTEMPT),
        ("run_ms", LONG, "from the claim to the end, milliseconds"),
        ("kind", TEXT, "of the job"),
        ("priority", INT, "of the job"),
        ("job_run", LONG, "the run of the job's record that tells of it"),
        ("final", FLAG, "the job ended with it"),
        ("clock_suspect", TEXT, "as its job's record has it; metrics leave it out unless this is null"),
        HOUR,
    ),
    ("job_id", "started_at", "ended_at", "run_ms"),
)


# ── Metrics ──────────────────────────────────────────────────────────────────
def _percentiles(name: str, of: str) -> tuple[tuple[str, pa.DataType, str], ...]:
    return (
        *((f"{name}_p{p}_ms", REAL, f"{of}: {p} % took no longer, milliseconds") for p in (50, 95, 99)),
        (f"{name}_max_ms", LONG, f"{of}: the longest, milliseconds"),
    )


# What happened within the hour or day [start, start + 1); null where a figure has nothing to tell of. Leases are those
# of ``attempts``: of a job that had more than eight, the first are in no count, and in neither workers nor errors.
_METRICS = _columns(
    ("start", MOMENT, "when the hour or day begins, UTC"),
    ("enqueued", LONG, "jobs accepted"),
    ("claimed", LONG, "leases that began, of the latest eight of each job"),
    ("completed", LONG, "jobs that ended so"),
    ("failed", LONG, "jobs that became dead letters"),
    ("cancelled", LONG, "jobs that ended so"),
    ("retried", LONG, "leases that ended in a failure with attempts left"),
    ("stalled", LONG, "leases that ended without a word"),
    ("released", LONG, "leases that were given back"),
    ("growth", LONG, "arrivals less endings: enqueued - completed - failed - cancelled"),
    *_percentiles("wait", "claimable to first claim, of jobs claimed first"),
    *_percentiles("run", "claim to end, of leases that ended completed"),
    *_percentiles("total", "claimable to end, of jobs completed"),
    ("attempts_mean", REAL, "attempts used, of jobs completed or failed: the mean"),
    ("attempts_max", INT, "and the most"),
    ("depth_mean", REAL, "jobs waiting to be claimed, retries included: the mean over time"),
    ("depth_max", LONG, "and the most at one moment"),
    ("depth_end", LONG, "and at the end"),
    ("running_mean", REAL, "leases held: the mean over time"),
    ("running_max", LONG, "and the most at one moment"),
    ("running_end", LONG, "and at the end"),
    ("workers", LONG, "different workers that held a lease"),
    ("target_ms", LONG, "the longest wait that is on target, milliseconds"),
    ("on_target", LONG, "jobs claimed first that had waited no longer"),
    ("on_target_share", REAL, "of all jobs claimed first whose wait is known, 0 to 1"),
)
METRICS_HOURLY = TableSpec("metrics_hourly", _METRICS, order=("start",))
METRICS_DAILY = TableSpec("metrics_daily", _METRICS, order=("start",))
METRICS_WORKERS = TableSpec(
    "metrics_workers",
    _columns(
        ("start", MOMENT, "when the hour begins, UTC"),
        ("worker", TEXT, "its name"),
        ("claimed", LONG, "leases that began"),
        ("completed", LONG, "leases that ended so"),
        ("failed", LONG, "leases that ended so, retried or not"),
        ("stalled", LONG, "leases that ended without a word"),
        ("released", LONG, "leases that were given back"),
        ("cancelled", LONG, "leases that ended so"),
        ("held_ms", LONG, "lease time within the hour, summed over its leases, milliseconds"),
        ("held_mean", REAL, "leases held at once: the mean over the hour"),
        ("held_max", LONG, "and the most at one moment"),
        ("utilisation", REAL, "share of the hour in which it held at least one lease, 0 to 1"),
    ),
    order=("start", "worker"),
)
METRICS_ERRORS = TableSpec(
    "metrics_errors",
    _columns(
        ("start", MOMENT, "when the hour begins, UTC"),
        ("fingerprint", TEXT, "of the error: as in osqueue dlq groups"),
        ("error_type", TEXT, "the exception's class; stalled for leases that ran out"),
        ("error", TEXT, "the message without what differs between occurrences"),
        ("example", TEXT, "one message as it was"),
        ("attempts", LONG, "leases that ended in it"),
        ("jobs", LONG, "different jobs among them"),
        ("deaths", LONG, "dead letters it made"),
        ("first_at", MOMENT, "the first in the hour"),
        ("last_at", MOMENT, "the last in the hour"),
    ),
    order=("start", "fingerprint", "error_type"),
)
TABLES = (JOBS, ATTEMPTS, METRICS_HOURLY, METRICS_DAILY, METRICS_WORKERS, METRICS_ERRORS)


# ── Reading and writing ──────────────────────────────────────────────────────
def read(
    root: str,
    table: TableSpec,
    queues: Sequence[str] = (),
    since: date | None = None,
    columns: Sequence[str] = (),
    until: date | None = None,
) -> pa.Table:
    """A table as it is; no rows where nobody has written it yet. Of some queues or days; of some columns.

    Columns that a file is too old to have are null. Raises Unavailable, or Damaged.
    """
    there = [field for field in table.arrow if not columns or field.name in columns]
    found, rows = [pa.schema(there).empty_table()], [(0, {each.name: "" for each in PARTITIONS})]
    with files.at(store_at(root, "tables")) as held:
        listed = held.run(files.there(table.name, queues, since, until))
        for start in range(0, len(listed), files.FILES_AT_ONCE):
            group = listed[start : start + files.FILES_AT_ONCE]
            keys = [key for _, key in group]
            for (partition, key), body in zip(group, held.run(bodies(keys)), strict=True):
                if body is not None:
                    found.append(
                        fitted(files.decoded(key, body, [each.name for each in there]), found[0].schema)
                    )
                    rows.append(
                        (found[-1].num_rows, dict(each.split("=", 1) for each in partition.split("/")))
                    )
    told = pa.concat_tables(found)
    for each in PARTITIONS:
        folders = [pa.repeat(pa.scalar(folder[each.name]), count) for count, folder in rows]
        told = told.append_column(each.name, pa.chunked_array(folders).cast(each.type))
    return told.combine_chunks()


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows of a file with exactly these columns; what it is too old to have is null."""
    if rows.schema.equals(schema):
        return rows
    names, count = {*rows.column_names}, rows.num_rows
    columns = [rows[each.name] if each.name in names else pa.nulls(count, each.type) for each in schema]
    return pa.Table.from_arrays(columns, names=schema.names).cast(schema)


def write(rows: pa.Table, root: str, table: TableSpec) -> dict[str, int]:
    """Make the partitions that there are rows of hold exactly these; answers how many each has."""
    names = [column.name for column in PARTITIONS]
    folders = [(name, "ascending") for name in names]
    rows = rows.select(table.schema.names).cast(table.schema)
    rows = rows.sort_by([*folders, *((name, "ascending") for name in table.order)])
    counts: dict[str, int] = {}
    exchanges = []
    begin = 0
    for one in rows.group_by(names).aggregate([([], "count_all")]).sort_by(folders).to_pylist():
        folder, count = "/".join(f"{name}={one[name]}" for name in names), one["count_all"]
        draft = files.TableFileWriter(table.arrow, table.spread)
        draft.add(rows.slice(begin, count).select(table.arrow.names))
        exchanges.append(files.replace(files.key_of(table.name, folder), draft.finish()))
        counts[folder] = count
        begin += count
    with files.at(root) as held:
        held.run(together(exchanges))
    return counts
