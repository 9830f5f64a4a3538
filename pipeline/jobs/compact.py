"""Compaction: the archive's parts of a range of hours as the tables ``jobs`` and ``attempts``.

    spark-submit pipeline/jobs/compact.py s3://bucket/prefix s3://bucket/tables --at 2026-01-05T10:05:00Z

A run over the same hours changes nothing, so a scheduled run goes over the latest hours again and so finds parts that
came late or were written anew; where earlier runs did not get that far, it begins with the hour at which they stopped.
Each record stands in the hour in which it was archived first. A record that was archived twice is looked for as far
back as the job's end, before which no record of it can be; not in later hours: to mend an hour, leave out ``--until``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from osqueue.archive import ROOT
from osqueue.errors import NotFound, Rejected
from osqueue.validation import queue_name
from pipeline import archive, tables, transforms
from pipeline.archive import HOUR_MS, Aside, Part
from pipeline.folders import Folders, place
from pipeline.jobs import command
from pipeline.jobs.command import Progress, milliseconds, moment, silent
from pipeline.tables import ATTEMPTS, JOBS, Table

LOOK_BACK_HOURS = 3
BATCH_PARTS = 1_000  # whole hours are done together up to this many parts
BATCH_BYTES = 64 << 20  # or this many compressed bytes
HOLES_MS = 24 * HOUR_MS  # how far before its range a catching-up run looks for hours that are missing
KEYS = (*transforms.KEY, "date", "hour", "part")


class Compaction(Struct, frozen=True):
    """What to compact."""

    store: str  # address of the store, with archive/ in it
    tables: str  # address of the folder of the tables
    since: datetime | None = None  # from the hour of this moment on; None: from the first archived hour on
    until: datetime | None = None  # up to the end of the hour before this moment; None: up to the last one
    queues: tuple[str, ...] = ()  # none: all
    catch_up: bool = (
        False  # begin earlier than since where the tables do not reach so far, as after an outage
    )


class Compacted(Struct, frozen=True):
    """What a run did."""

    hours: int = 0  # partitions that were replaced
    emptied: int = 0  # of these, those that have no jobs now
    parts: int = 0  # that were read
    jobs: int = 0  # written
    attempts: int = 0  # written
    repeats: int = 0  # records that an earlier hour or part had
    aside: tuple[Aside, ...] = ()  # parts that were left out, and why


class _Batch(Struct, frozen=True):
    parts: list[Part]
    partitions: list[str]  # to be replaced


class _Fresh(Struct, frozen=True):
    """A batch's rows of ``jobs`` as they were staged, with those that the tables have already."""

    folder: str
    rows: int
    partitions: dict[str, str]  # and the folder again, in which each lies
    ended: dict[str, int]  # when the first job of each queue did


def hours_before(at: datetime, look_back: int = LOOK_BACK_HOURS) -> tuple[datetime, datetime]:
    """The hours that a run scheduled for a moment goes over: the last so many that had ended by then."""
    until = datetime.fromtimestamp(_hour(at, "at") / 1000, UTC)
    return until - timedelta(hours=look_back), until


def run(spark: SparkSession, config: Compaction, progress: Progress = silent) -> Compacted:
    """Replace the partitions of a range of hours in both tables."""
    store, root = place(config.store, "store"), place(config.tables, "tables")
    queues = tuple(map(queue_name, config.queues))
    since = None if config.since is None else _hour(config.since, "since")
    until = None if config.until is None else _hour(config.until, "until")
    if since is not None and until is not None and since >= until:
        raise Rejected("until: it is not an hour after since. Give a later moment.", field="until")
    if config.catch_up and since is not None:
        found = _unread(spark, store, root, queues, since, until)
    else:
        found = archive.parts(spark, store, queues, since, until)
    there = _there(spark, root, queues, found, since, until)
    if there and not Folders(spark).exists(f"{store}/{ROOT}"):
        raise NotFound(
            f"store: there is no archive in {store}, and the tables have hours of this range. They stay as they are; "
            "check the address."
        )
    total, done = Compacted(), 0
    for batch in _batches(found, there):
        with tables.staging(spark, root) as folder:
            one = _compact(spark, store, root, folder, batch)
        total = _sum(total, one)
        done += len(batch.parts)
        progress(done, len(found))
    return total


def _hour(at: datetime, field: str) -> int:
    return milliseconds(at, field) // HOUR_MS * HOUR_MS


def _sum(total: Compacted, one: Compacted) -> Compacted:
    return replace(
        total, **{name: getattr(total, name) + getattr(one, name) for name in total.__struct_fields__}
    )


def _unread(
    spark: SparkSession, store: str, root: str, queues: Sequence[str], since: int, until: int | None
) -> list[Part]:
    """The parts of a range of hours, and of earlier ones that the tables do not have: queue by queue."""
    found: list[Part] = []
    for queue in queues or archive.queues_of(spark, store):
        found += archive.parts(spark, store, [queue], _reached(spark, store, root, queue, since), until)
    return sorted(found)


def _reached(spark: SparkSession, store: str, root: str, queue: str, since: int) -> int | None:
    """Where a queue is to be taken up, at a given hour at the latest; None: from its first, the tables have nothing.

    Hours are published in the order of time, so all before the last one are there, unless a run that went over them
    again was killed. What that has left out is looked for among the hours of a day.
    """
    last = _last(spark, root, queue)
    if last is None:
        return None
    there = set(_hours(spark, root, JOBS, [queue], since - HOLES_MS).values())
    lately = archive.parts(spark, store, [queue], since - HOLES_MS, since)
    return min(since, last, *(each.at_ms for each in lately if each.at_ms not in there))


def _last(spark: SparkSession, root: str, queue: str) -> int | None:
    """When the last hour that the tables have of a queue begins."""
    for day in sorted(tables.days(spark, root, JOBS, [queue]), reverse=True):
        begin = archive.begin_of(f"{day}/hour=0")
        if begin is not None and (found := _hours(spark, root, JOBS, [queue], begin)):
            return max(found.values())
    return None


def _hours(
    spark: SparkSession, root: str, table: Table, queues: Sequence[str] = (), since: int | None = None
) -> dict[str, int]:
    """When the partitions of a table begin; from the day of a moment on."""
    day = None if since is None else datetime.fromtimestamp(since / 1000, UTC).date()
    begins = {each: archive.begin_of(each) for each in tables.partitions(spark, root, table, queues, day)}
    return {each: at for each, at in begins.items() if at is not None}


def _there(
    spark: SparkSession,
    root: str,
    queues: Sequence[str],
    found: Sequence[Part],
    since: int | None,
    until: int | None,
) -> list[str]:
    """The partitions in the range that the tables have already: those without parts now are to be emptied.

    A range without a beginning or an end is that of the archive's hours: what is older may have been purged there.
    """
    since = since if since is not None else min((each.at_ms for each in found), default=None)
    until = until if until is not None else max((each.at_ms + HOUR_MS for each in found), default=None)
    if since is None or until is None:
        return []
    there = _hours(spark, root, JOBS, queues, since) | _hours(spark, root, ATTEMPTS, queues, since)
    return sorted(each for each, at in there.items() if since <= at < until)


def _batches(found: Sequence[Part], there: Sequence[str]) -> Iterator[_Batch]:
    """Whole hours, the oldest first."""
    hours: dict[int, tuple[list[Part], set[str]]] = {}
    for part in found:
        parts, names = hours.setdefault(part.at_ms, ([], set()))
        parts.append(part)
        names.add(part.partition)
    for name in there:
        hours.setdefault(archive.hour_of(name)[1], ([], set()))[1].add(name)
    parts, names = [], set()
    for _, (more, others) in sorted(hours.items()):
        size = sum(each.size for each in [*parts, *more])
        if parts and (len(parts) + len(more) > BATCH_PARTS or size > BATCH_BYTES):
            yield _Batch(parts, sorted(names))
            parts, names = [], set()
        parts, names = [*parts, *more], names | others
    if names:
        yield _Batch(parts, sorted(names))


def _compact(spark: SparkSession, store: str, root: str, folder: str, batch: _Batch) -> Compacted:
    fresh, aside = _stage(spark, store, folder, batch.parts)
    staged = _without_repeats(spark, store, root, fresh, batch)
    jobs = attempts = 0
    leases = f"{folder}/leases"
    if staged:
        left = _staged(spark, staged)
        tables.stage(transforms.attempts(left), leases, ATTEMPTS)
        jobs = fresh.rows if staged == fresh.partitions else left.count()
        attempts = tables.read(spark, leases, ATTEMPTS).count()
    emptied = _exchange(spark, root, batch, staged, leases)
    return Compacted(
        hours=len(batch.partitions),
        emptied=emptied,
        parts=len(batch.parts) - len(aside),
        jobs=jobs,
        attempts=attempts,
        repeats=fresh.rows - jobs,
        aside=tuple(aside),
    )


def _exchange(spark: SparkSession, root: str, batch: _Batch, staged: Mapping[str, str], leases: str) -> int:
    """Exchange the hours of a batch, one after the other; answers how many have no jobs now.

    The partition of ``jobs`` goes first and comes last: where it is there, the hour is whole in both tables.
    """
    held = dict.fromkeys(tables.partitions(spark, leases, ATTEMPTS), leases)
    tables.in_order(held, ATTEMPTS, batch.partitions)
    for each in tables.in_order(staged, JOBS, batch.partitions):
        tables.publish(spark, root, {}, JOBS, [each])
        tables.publish(spark, root, {each: held[each]} if each in held else {}, ATTEMPTS, [each])
        tables.publish(spark, root, {each: staged[each]} if each in staged else {}, JOBS, [each])
    return sum(each not in staged for each in batch.partitions)


def _stage(spark: SparkSession, store: str, folder: str, parts: Sequence[Part]) -> tuple[_Fresh, list[Aside]]:
    """The records of some parts as rows of ``jobs``, and which parts were left out."""

    def write(records: DataFrame) -> None:
        Folders(spark).delete(f"{folder}/{JOBS.name}")  # of an attempt that met damage
        tables.stage(transforms.jobs(records), folder, JOBS)

    _, aside = archive.undamaged(spark, store, parts, write)
    oldest = F.unix_millis(F.min("finished_at")).alias("oldest_ms")
    told = tables.read(spark, folder, JOBS).groupBy("queue").agg(F.count("*").alias("rows"), oldest).collect()
    fresh = _Fresh(
        folder,
        sum(each.rows for each in told),
        dict.fromkeys(tables.partitions(spark, folder, JOBS), folder),
        {each.queue: each.oldest_ms for each in told},
    )
    return fresh, aside


def _staged(spark: SparkSession, staged: Mapping[str, str]) -> DataFrame:
    """The rows of staged partitions of ``jobs``."""
    frames = []
    for folder in sorted(set(staged.values())):
        base = f"{folder}/{JOBS.name}"
        paths = [f"{base}/{each}" for each, where in staged.items() if where == folder]
        frames.append(spark.read.schema(JOBS.schema).option("basePath", base).parquet(*paths))
    return reduce(DataFrame.unionByName, frames)


def _without_repeats(
    spark: SparkSession, store: str, root: str, fresh: _Fresh, batch: _Batch
) -> dict[str, str]:
    """Where each partition lies once repeated records are out of it. Only partitions that had some are rewritten."""
    own = tables.read(spark, fresh.folder, JOBS).select(*KEYS)
    everywhere = reduce(DataFrame.unionByName, _earlier(spark, store, root, fresh, batch), own)
    repeats = transforms.repeated(everywhere).join(own, [*transforms.KEY], "left_semi")
    if repeats.isEmpty():
        return fresh.partitions
    touched = [
        archive.folder_of(row.queue, row.date, row.hour)
        for row in own.join(repeats, [*transforms.KEY], "left_semi")
        .select(*JOBS.partitions.names)
        .distinct()
        .collect()
    ]
    staged, clean = dict(fresh.partitions), f"{fresh.folder}/clean"
    rows = _staged(spark, {each: staged.pop(each) for each in touched})
    tables.stage(transforms.without_repeats(rows, repeats, everywhere), clean, JOBS)
    return staged | dict.fromkeys(tables.partitions(spark, clean, JOBS), clean)


def _earlier(spark: SparkSession, store: str, root: str, fresh: _Fresh, batch: _Batch) -> Iterator[DataFrame]:
    """The keys in hours before the batch's, as far back as its jobs ended. Damaged parts are known there as well.

    Hours that the archive has purged are looked for in the table.
    """
    first = min((each.at_ms for each in batch.parts), default=0)
    before: list[Part] = []
    kept: list[str] = []
    for queue, oldest_ms in fresh.ended.items():
        since = oldest_ms // HOUR_MS * HOUR_MS
        if since < first:
            parts = archive.parts(spark, store, [queue], since, first)
            there = {each.partition for each in parts}
            hours = _hours(spark, root, JOBS, [queue], since)
            before += parts
            kept += [each for each, at in hours.items() if since <= at < first and each not in there]
    if before:
        path = f"{fresh.folder}/earlier"

        def write(records: DataFrame) -> None:
            records.select(*KEYS).write.mode("overwrite").parquet(path)

        archive.undamaged(spark, store, before, write)
        yield spark.read.parquet(path)
    if kept:
        yield _staged(spark, dict.fromkeys(kept, root)).select(*KEYS)


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point for ``spark-submit``: prints what was done as one line of JSON."""
    parser = command.parser(__doc__)
    parser.add_argument("store", help="address of the store, with archive/ in it")
    parser.add_argument("tables", help="address of the folder of the tables")
    parser.add_argument("--since", type=moment, help="the first hour (the first archived one)")
    parser.add_argument("--until", type=moment, help="the end (of the last archived hour)")
    parser.add_argument("--at", type=moment, help="when the run was scheduled, for --look-back")
    parser.add_argument(
        "--look-back", type=int, default=LOOK_BACK_HOURS, help="hours that had ended by --at (3)"
    )
    given = parser.parse_args(arguments)
    if given.at is not None and (given.since is not None or given.until is not None):
        parser.error("--at sets the hours by itself: leave out --since and --until")
    since, until = hours_before(given.at, given.look_back) if given.at else (given.since, given.until)
    config = Compaction(given.store, given.tables, since, until, tuple(given.queue), bool(given.at))
    return command.finish("compact", lambda spark: run(spark, config, command.told("archive parts")))


if __name__ == "__main__":
    sys.exit(main())
