"""Compaction: the archive's parts of a range of hours as the tables ``jobs`` and ``attempts``.

    spark-submit pipeline/jobs/compact.py s3://bucket/prefix s3://bucket/tables --at 2026-01-05T10:05:00Z

An engine spreads stretches of hours over its cores (``pipeline.stretch``), batch by batch. A run over the same hours
changes nothing, so a scheduled run goes over the latest hours again and so finds parts that came late or were written
anew; where earlier runs did not get that far, or were killed, it begins with the hour at which they stopped. A part
that came late may repeat what later hours have: to mend an hour, leave out ``--until``.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from ...commit.driver import BlockingDriver
from ...errors import Damaged, NotFound, OsqueueError, Rejected
from ...masking import printable
from ...model.validation import queue_name
from ...objects.archive import ROOT
from ...objects.inventory import keys
from .. import files, plan, stretch, unfinished
from ..archive import DAY_MS, HOUR_MS
from ..engines.base import Engine
from ..places import store_at
from ..plan import Planner, QueueRange
from ..stretch import Compacted, HourRange, SkippedPart
from ..unfinished import Mark, Unread
from . import command
from .command import Progress, milliseconds, moment, silent

LOOK_BACK_HOURS = 3
BATCH_PARTS = 512  # parts for each core before progress is told and marks move


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


def hours_before(at: datetime, look_back: int = LOOK_BACK_HOURS) -> tuple[datetime, datetime]:
    """The hours that a run scheduled for a moment goes over: the last so many that had ended by then."""
    until = datetime.fromtimestamp(_hour(at, "at") / 1000, UTC)
    return until - timedelta(hours=look_back), until


class _Outcome(Struct):
    """What became of all stretches."""

    done: Compacted = Compacted()
    damaged: dict[str, set[str]] = {}  # what is said of files that cannot be read, by queue
    undone: set[Mark] = set()  # marks of what they left


def run(engine: Engine, config: Compaction, progress: Progress = silent) -> Compacted:
    """Make both tables say of a range of hours what the archive does.

    A file of the tables that cannot be read stops its own queue. Raises Damaged once all others are done.
    """
    engine.place(config.tables, "tables")  # the engine is to read them
    address, root = store_at(config.store, "store"), store_at(config.tables, "tables")
    queues = tuple(map(queue_name, config.queues))
    since = None if config.since is None else _hour(config.since, "since")
    until = None if config.until is None else _hour(config.until, "until")
    if since is not None and until is not None and since >= until:
        raise Rejected("until: it is not an hour after since. Give a later moment.", field="until")
    with files.at(address) as store, files.at(root) as tables:
        left, unread = tables.run(unfinished.marks()), tables.run(unfinished.set_aside())
        retried = {each for each in unread if config.catch_up and (not queues or each.hour.queue in queues)}
        still = stretch.unreadable(store, sorted(each.part for each in retried))
        mended = {each.hour for each in retried if each.part not in still}
        planner = Planner(store, tables, [*left, *mended])
        todo, gaps, damaged = list[QueueRange](), set[Mark](), dict[str, set[str]]()
        for queue in queues or planner.queues():
            try:
                found = planner.range(queue, since, until, config.catch_up)
                gaps |= planner.skipped(found)
            except Damaged as error:
                damaged[queue] = {error.message}
            else:
                todo.append(found)
        archived = bool(store.run(keys(ROOT, most=1)))
        if any(each.hours for each in todo) and not archived:
            raise NotFound(
                f"store: there is no archive in {printable(address)}, and the tables have hours of this range. They"
                " stay as they are; check the address."
            )
        tables.run(unfinished.move(set(), gaps))
        outcome = _run(engine, tables, address, root, todo, unread, progress)
        damaged |= outcome.damaged
        covered: set[Mark | Unread] = {mark for mark in left if any(each.covers(mark) for each in todo)}
        covered -= outcome.undone
        todo = [each for each in todo if each.queue not in damaged]
        told = {each.key(address) for each in outcome.done.aside}
        for mine in unread - unfinished.unread(told):
            deleted = archived and still.get(mine.part) == stretch.DELETED
            if deleted or any(each.covers(mine.hour) for each in todo):
                covered.add(mine)
                still.pop(mine.part, None)
        tables.run(unfinished.move(covered, set()))
    if damaged:
        said = " ".join(message for queue in sorted(damaged) for message in sorted(damaged[queue]))
        raise Damaged(f"{said} Queues that are done in part: {', '.join(sorted(damaged))}; all others are.")
    others = (SkippedPart.of(address, part, why) for part, why in still.items() if part not in told)
    return outcome.done + Compacted(aside=tuple(others))


def _hour(at: datetime, field: str) -> int:
    return milliseconds(at, field) // HOUR_MS * HOUR_MS


def _run(
    engine: Engine,
    tables: BlockingDriver,
    store: str,
    root: str,
    todo: Sequence[QueueRange],
    unread: Set[Unread],
    progress: Progress,
) -> _Outcome:
    # Queue by queue: a task has many hours that follow one another, however thin they are.
    rest = [hour for each in todo for hour in each.hours]
    outcome, done, parts = _Outcome(), 0, sum(len(each.parts) for each in rest)
    emptying = {mark for each in todo for mark in each.emptying()}
    marks: set[Mark] = set()
    while rest:
        now = plan.ahead(rest) | emptying | outcome.undone
        tables.run(unfinished.move(marks, now))
        marks = now
        cores = engine.cores
        batch, rest = plan.batch(rest, BATCH_PARTS * cores)
        stretches = list(plan.stretches(store, root, batch, cores))
        for mine, answer in zip(stretches, in_tasks(engine, stretches), strict=True):
            if isinstance(answer, Damaged):
                outcome.damaged.setdefault(mine.queue, set()).add(answer.message)
                midnight_ms = mine.hours[0].at_ms // DAY_MS * DAY_MS  # all hours of its day are in the file
                outcome.undone.add(Mark(mine.queue, midnight_ms, mine.hours[-1].at_ms + HOUR_MS))
            else:
                outcome.done += answer
        aside = unfinished.oldest(unread | unfinished.unread(each.key(store) for each in outcome.done.aside))
        tables.run(unfinished.move(unread, aside))  # before the marks of these hours move on
        unread = aside
        done += sum(len(each.parts) for each in batch)
        progress(done, parts)
    outcome.undone |= {each for each in emptying if each.queue in outcome.damaged}
    tables.run(unfinished.move(marks, outcome.undone))
    return outcome


def in_tasks(engine: Engine, stretches: Sequence[HourRange]) -> list[Compacted | Damaged]:
    """Each stretch in a task of its own; Damaged is that of a file it could not read. Raises what else went wrong."""
    done: list[Compacted | Damaged] = []
    for answer in engine.spread(_answer, stretches):
        if isinstance(answer, OsqueueError) and not isinstance(answer, Damaged):
            raise answer
        done.append(answer)
    return done


def _answer(mine: HourRange) -> Compacted | OsqueueError:
    """The error as an answer: it has tried for long enough, and Spark would wrap it in pages of frames."""
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
    if given.look_back < 1:
        parser.error("--look-back is less than 1: give hours, such as 3")
    if given.at is not None and (given.since is not None or given.until is not None):
        parser.error("--at sets the hours by itself: leave out --since and --until")
    since, until = hours_before(given.at, given.look_back) if given.at else (given.since, given.until)
    config = Compaction(given.store, given.tables, since, until, tuple(given.queue), bool(given.at))

    def act(engine: Engine) -> Compacted:
        return run(engine, config, command.told("archive parts"))

    command.finish(given.engine, command.archive_of(config.store), act)
    return 0
