"""What a compaction has to do: the hours of each queue, in batches, and each batch in stretches of about equal work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..commit.driver import BlockingDriver
from . import archive, files
from .archive import DAY_MS, HOUR_MS, Hour
from .stretch import HourRange
from .tables import ATTEMPTS, JOBS
from .unfinished import Mark

RANGE_PARTS_MIN = 4  # a shorter one is not worth a task, and that its first hour looks back

Window = tuple[int, int]  # moments, in milliseconds since 1970


class QueueRange(Struct, frozen=True):
    """What is to be done of a queue."""

    queue: str
    since_ms: int | None
    until_ms: int | None
    emptied: tuple[Window, ...]  # where hours that the archive has no more are to be emptied
    hours: tuple[Hour, ...]  # in order; those without parts are to be emptied

    def covers(self, mark: Mark) -> bool:
        """Is all done that a mark is about, once this is?"""
        if mark.queue != self.queue:
            return False
        if mark.emptied:
            return any(since <= mark.since_ms and mark.until_ms <= until for since, until in self.emptied)
        begun = self.since_ms is None or self.since_ms <= mark.since_ms
        return begun and (self.until_ms is None or self.until_ms >= mark.until_ms)

    def emptying(self) -> set[Mark]:
        """The marks of the hours that are to be emptied."""
        gone = [each.at_ms for each in self.hours if not each.parts]
        return {
            Mark(self.queue, since, until, emptied=True)
            for since, until in self.emptied
            if any(since <= at < until for at in gone)
        }


class Planner:
    """Looks at an archive and at tables of it."""

    def __init__(self, store: BlockingDriver, tables: BlockingDriver, left: Sequence[Mark]) -> None:
        """``left`` is what other runs have not finished."""
        self._store = store
        self._tables = tables
        self._left = left
        self._lasts: dict[tuple[str, int], int | None] = {}

    def queues(self) -> list[str]:
        """All that there are, in the archive or in the tables."""
        there = self._tables.run(archive.queues_of(f"{JOBS.name}/"))
        marked = {each.queue for each in self._left}
        return sorted({*self._store.run(archive.queues_of()), *there, *marked})

    def range(self, queue: str, since: int | None, until: int | None, catch_up: bool = False) -> QueueRange:
        """The hours of a range that the archive has, and those of the tables that it has not.

        A range without a beginning or an end is that of the archive's hours: what is older may have been purged there.
        One that catches up begins where the tables end, or another run has stopped.
        """
        left = [each for each in self._left if each.queue == queue] if catch_up else []
        begin = self._reached(queue, since, left) if catch_up else since
        found = {each.at_ms: each for each in self._store.run(archive.hours(queue, begin, until))}
        first = since if since is not None else min(found, default=0)
        end = until if until is not None else max(found, default=-HOUR_MS) + HOUR_MS
        emptied = [(first, end)] if first < end else []
        emptied += [(each.since_ms, each.until_ms) for each in left if each.emptied]
        for window in emptied:
            for table in (JOBS, ATTEMPTS):
                for at in self._tables.run(files.hours(table.name, queue, *window, found)):
                    found.setdefault(at, Hour(at, queue))
        return QueueRange(queue, begin, until, tuple(emptied), tuple(found[at] for at in sorted(found)))

    def _reached(self, queue: str, since: int | None, left: Sequence[Mark]) -> int | None:
        """Where a queue is to be taken up, at ``since`` at the latest; None: from its first hour on."""
        if since is None:
            return None
        last = self._last(queue, since)
        return None if last is None else min(since, last, *(each.since_ms for each in left))

    def _last(self, queue: str, since: int) -> int | None:
        """When the last hour begins that the tables have of a queue. Mostly a look at the latest days tells."""
        if (queue, since) not in self._lasts:
            last = self._tables.run(files.last_hour(JOBS.name, queue, since - DAY_MS))
            if last is None:
                last = self._tables.run(files.last_hour(JOBS.name, queue))
            self._lasts[queue, since] = last
        return self._lasts[queue, since]

    def skipped(self, each: QueueRange) -> set[Mark]:
        """The mark of the hours between the end of the tables and a range, if the archive has some."""
        last = None if each.since_ms is None else self._last(each.queue, each.since_ms)
        if last is None or each.since_ms is None or last + HOUR_MS >= each.since_ms:
            return set()
        gap = last + HOUR_MS, each.since_ms
        return {Mark(each.queue, *gap)} if self._store.run(archive.hours(each.queue, *gap)) else set()


def batch(hours: Sequence[Hour], parts: float) -> tuple[list[Hour], list[Hour]]:
    """The first hours, with so many parts unless a single one has more, and the others: if it can be, whole days."""
    taken = 0
    for at, each in enumerate(hours):
        taken += max(1, len(each.parts))
        if taken > parts and at:
            whole = next(
                (end for end in range(at, 0, -1) if hours[end].partition != hours[end - 1].partition), at
            )
            return list(hours[:whole]), list(hours[whole:])
    return list(hours), []


def stretches(store: str, tables: str, hours: Sequence[Hour], tasks: int) -> Iterator[HourRange]:
    """Hours for about so many tasks: each has hours of one queue that follow one another."""
    enough = max(RANGE_PARTS_MIN, sum(max(1, len(each.parts)) for each in hours) / tasks)
    queues: dict[str, list[Hour]] = {}
    for each in hours:
        queues.setdefault(each.queue, []).append(each)
    for queue, rest in queues.items():
        left = rest
        while left:
            mine, left = batch(left, enough)
            yield HourRange(store, tables, queue, tuple(mine))


def ahead(rest: Sequence[Hour]) -> set[Mark]:
    """The marks of what is left to do, queue by queue."""
    spans: dict[str, Window] = {}
    for each in rest:
        since, _ = spans.get(each.queue, (each.at_ms, 0))
        spans[each.queue] = since, each.at_ms + HOUR_MS
    return {Mark(queue, *span) for queue, span in spans.items()}
