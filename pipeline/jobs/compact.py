"""Compaction: the archive's parts of a range of hours as the tables ``jobs`` and ``attempts``.

    spark-submit pipeline/jobs/compact.py s3://bucket/prefix s3://bucket/tables --at 2026-01-05T10:05:00Z

Spark spreads stretches of hours over its tasks (``pipeline.stretch``), batch by batch. A run over the same hours
changes nothing, so a scheduled run goes over the latest hours again and so finds parts that came late or were written
anew; where earlier runs did not get that far, or were killed, it begins with the hour at which they stopped. A part
that came late may repeat what later hours have: to mend an hour, leave out ``--until``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import SparkSession

from osqueue.archive import ROOT
from osqueue.commit.driver import BlockingDriver
from osqueue.errors import NotFound, OsqueueError, Rejected
from osqueue.inventory import keys
from osqueue.validation import queue_name
from pipeline import archive, files, stretch, unfinished
from pipeline.archive import HOUR_MS, Hour
from pipeline.jobs import command
from pipeline.jobs.command import Progress, milliseconds, moment, silent
from pipeline.places import place, store_at
from pipeline.stretch import Compacted, Stretch
from pipeline.tables import ATTEMPTS, JOBS, Table
from pipeline.unfinished import Mark

LOOK_BACK_HOURS = 3
BATCH_PARTS = 128  # parts for each core before progress is told and marks move
STRETCHES = 2  # for each core in a batch: one that got the smaller hours takes another
STRETCH_PARTS = 4  # a shorter one is not worth a task, and that its first hour looks back


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


class _Range(Struct, frozen=True):
    """What is to be done of a queue."""

    queue: str
    since_ms: int | None
    until_ms: int | None
    hours: list[Hour]  # in order; those without parts are to be emptied

    def covers(self, mark: Mark) -> bool:
        """Was all done that a mark is about, once this is?"""
        return (
            mark.queue == self.queue
            and (self.since_ms is None or self.since_ms <= mark.since_ms)
            and (self.until_ms is None or self.until_ms >= mark.until_ms)
        )


def hours_before(at: datetime, look_back: int = LOOK_BACK_HOURS) -> tuple[datetime, datetime]:
    """The hours that a run scheduled for a moment goes over: the last so many that had ended by then."""
    until = datetime.fromtimestamp(_hour(at, "at") / 1000, UTC)
    return until - timedelta(hours=look_back), until


def run(spark: SparkSession, config: Compaction, progress: Progress = silent) -> Compacted:
    """Make the partitions of a range of hours in both tables what the archive says."""
    place(config.tables, "tables")  # Spark is to read them
    address, root = store_at(config.store, "store"), store_at(config.tables, "tables")
    queues = tuple(map(queue_name, config.queues))
    since = None if config.since is None else _hour(config.since, "since")
    until = None if config.until is None else _hour(config.until, "until")
    if since is not None and until is not None and since >= until:
        raise Rejected("until: it is not an hour after since. Give a later moment.", field="until")
    with files.at(address) as store, files.at(root) as tables:
        left = tables.run(unfinished.marks())
        archived = bool(store.run(keys(ROOT, most=1)))
        todo = []
        for queue in queues or sorted({*store.run(archive.queues_of()), *_queues_there(tables)}):
            begin = _reached(tables, queue, since, left) if config.catch_up else since
            todo.append(_range(store, tables, queue, begin, since, until))
        if not archived and any(each.hours for each in todo):
            raise NotFound(
                f"store: there is no archive in {address}, and the tables have hours of this range. They stay as they "
                "are; check the address."
            )
        done = _run(spark, tables, address, root, todo, progress)
        for mark in left:
            if any(each.covers(mark) for each in todo):
                tables.run(unfinished.move(mark, None))
    return done


def _hour(at: datetime, field: str) -> int:
    return milliseconds(at, field) // HOUR_MS * HOUR_MS


# ── What there is to do ──────────────────────────────────────────────────────
def _queues_there(tables: BlockingDriver) -> set[str]:
    """The queues that the tables have."""
    return {each.partition("/")[0].removeprefix("queue=") for each in tables.run(files.partitions(JOBS.name))}


def _reached(tables: BlockingDriver, queue: str, since: int | None, left: Sequence[Mark]) -> int | None:
    """Where a queue is to be taken up, at a given hour at the latest; None: from its first, the tables have nothing."""
    there = _there(tables, JOBS, queue)
    if not there or since is None:
        return None
    return min(since, max(there), *(each.since_ms for each in left if each.queue == queue))


def _there(tables: BlockingDriver, table: Table, queue: str) -> set[int]:
    """When the hours begin that a table has of a queue."""
    found = map(archive.begin_of, tables.run(files.partitions(table.name, queue)))
    return {at for at in found if at is not None}


def _range(
    store: BlockingDriver,
    tables: BlockingDriver,
    queue: str,
    begin: int | None,
    since: int | None,
    until: int | None,
) -> _Range:
    """The hours of a range that the archive has, and from ``since`` on those of the tables, which are to be emptied.

    A range without a beginning or an end is that of the archive's hours: what is older may have been purged there.
    """
    found = {each.at_ms: each for each in store.run(archive.hours(queue, begin, until))}
    first = since if since is not None else min(found, default=None)
    end = until if until is not None else max(found, default=-HOUR_MS) + HOUR_MS
    if first is not None:
        for at in _there(tables, JOBS, queue) | _there(tables, ATTEMPTS, queue):
            if first <= at < end:
                found.setdefault(at, Hour(at, queue))
    return _Range(queue, begin, until, [found[at] for at in sorted(found)])


# ── Doing it ─────────────────────────────────────────────────────────────────
def _run(
    spark: SparkSession,
    tables: BlockingDriver,
    store: str,
    root: str,
    todo: Sequence[_Range],
    progress: Progress,
) -> Compacted:
    rest = sorted(hour for each in todo for hour in each.hours)
    total, done, parts = Compacted(), 0, sum(len(each.parts) for each in rest)
    marks: dict[str, Mark] = {}
    while rest or marks:
        ahead = {each.queue: Mark(each.queue, each.at_ms, 0) for each in reversed(rest)}
        ends = {each.queue: each.at_ms + HOUR_MS for each in rest}
        ahead = {queue: replace(mark, until_ms=ends[queue]) for queue, mark in ahead.items()}
        for queue in marks | ahead:
            tables.run(unfinished.move(marks.get(queue), ahead.get(queue)))
        marks = ahead
        if not rest:
            break
        cores = max(1, spark.sparkContext.defaultParallelism)  # more of them as a cluster grows
        batch, rest = _batch(rest, BATCH_PARTS * cores)
        total = sum(in_tasks(spark, _stretches(store, root, batch, STRETCHES * cores)), start=total)
        done += sum(len(each.parts) for each in batch)
        progress(done, parts)
    return total


def _batch(hours: Sequence[Hour], parts: float) -> tuple[list[Hour], list[Hour]]:
    """The first hours, with so many parts unless a single one has more, and the others."""
    taken = 0
    for at, each in enumerate(hours):
        taken += len(each.parts)
        if taken > parts and at:
            return list(hours[:at]), list(hours[at:])
    return list(hours), []


def _stretches(store: str, root: str, hours: Sequence[Hour], tasks: int) -> Iterator[Stretch]:
    """The same hours for about so many tasks: each has hours of one queue that follow one another."""
    enough = max(STRETCH_PARTS, sum(len(each.parts) for each in hours) / tasks)
    queues: dict[str, list[Hour]] = {}
    for each in hours:
        queues.setdefault(each.queue, []).append(each)
    for queue, rest in queues.items():
        left = rest
        while left:
            mine, left = _batch(left, enough)
            yield Stretch(store, root, queue, tuple(mine))


def in_tasks(spark: SparkSession, stretches: Iterable[Stretch]) -> list[Compacted]:
    """Each stretch in a task of its own. Raises what went wrong in one."""
    found = list(stretches)
    done = []
    for answer in spark.sparkContext.parallelize(found, len(found)).map(_answer).collect():
        if isinstance(answer, OsqueueError):
            raise answer
        done.append(answer)
    return done


def _answer(mine: Stretch) -> Compacted | OsqueueError:
    """The error as an answer: Spark would wrap it in pages of frames."""
    try:
        return stretch.compact(mine)
    except OsqueueError as error:
        return error


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
