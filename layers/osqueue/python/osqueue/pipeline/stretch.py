"""A stretch: some hours of one queue, day after day, from archive parts to the files of both tables.

It runs in one task, with the library's own decoder and stores, and needs nothing of other tasks. The library says what
is damaged; such a part is set aside and the rest goes on.

Each record stands in the hour in which it was archived first. A record that was archived twice is looked for as far
back as its job's end, before which no record of it can be: in the parts of those hours, or in the table where the
archive has purged them. More than a month back nobody looks: a reaper that was away for longer repeats nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from ..commit.driver import BlockingDriver
from ..core.archive_record import ArchiveRecord, decode_part
from ..errors import Damaged, NewerFormat
from ..limits import CLOCK_AHEAD_MS_MAX
from ..masking import printable
from ..objects.archive import PARTS_AT_ONCE, bodies
from . import archive, files, transforms
from .archive import DAY_MS, HOUR_MS, Hour
from .day_files import DayFiles, by_hour
from .files import TableFileWriter
from .tables import ATTEMPTS, JOBS

LOOK_BACK_MS_MAX = 31 * DAY_MS
OUT_OF_RANGE = (pa.ArrowException, OverflowError)
OWN_FILE_ROWS = 10_000  # jobs; few enough for a file of 23 such hours to be written within a second
GROUP_ROWS = 10_000  # records that become rows together, of whatever hours they are
WRITTEN = (ATTEMPTS, JOBS)  # as they are written, leases first: where a new hour has jobs, it is whole
DELETED = "it was deleted while it was read"


class HourRange(Struct, frozen=True):
    """What one task does."""

    store: str  # address of the archive's store
    tables: str  # address of the tables
    queue: str
    hours: tuple[Hour, ...]  # in order

    def __repr__(self) -> str:
        return f"HourRange({printable(self.store)}, {printable(self.tables)}, {self.queue})"


class SkippedPart(Struct, frozen=True):
    """A part that was left out."""

    part: str  # its address
    why: str

    @staticmethod
    def of(store: str, part: str, why: str) -> SkippedPart:
        """Return the part of the store at an address."""
        return SkippedPart(f"{printable(store, options=False)}/{part}", why)

    def key(self, store: str) -> str:
        """Return the part's key in this store."""
        return self.part.removeprefix(f"{printable(store, options=False)}/")


class Compacted(Struct, frozen=True):
    """What was done."""

    hours: int = 0  # that are as they should be now
    emptied: int = 0  # of these, those that have no jobs
    parts: int = 0  # that were read
    jobs: int = 0  # rows
    attempts: int = 0  # rows
    repeats: int = 0  # records that an earlier hour or part had
    clock_suspect: int = 0  # of the jobs, those with moments that the store's clock does not allow
    aside: tuple[SkippedPart, ...] = ()  # parts that were left out, and why

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def compact(stretch: HourRange) -> Compacted:
    """Make the tables say of some hours what their parts do. Raises Unavailable."""
    with files.at(stretch.store) as store, files.at(stretch.tables) as tables, _without_cycles():
        task = _Task(stretch, store, tables)
        days = (tuple(hours) for _, hours in groupby(stretch.hours, lambda hour: hour.partition))
        return sum(map(task.day, days), start=Compacted())


def unreadable(store: BlockingDriver, parts: Sequence[str]) -> dict[str, str]:
    """Why some parts still cannot be read; those that can be are left out. Raises Unavailable."""
    found = {}
    with _without_cycles():
        for part, records, why in _decoded(store, parts):
            try:
                transforms.rows({part: records})
            except OUT_OF_RANGE as error:
                found[part] = _beyond(error)
            if why:
                found[part] = why
    return found


@contextmanager
def _without_cycles() -> Iterator[None]:
    """Records hold no cycles, and to look for some among millions of them takes as long as all the rest."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Drafts:
    """The rows of a day in the making."""

    def __init__(self) -> None:
        self._hours: dict[tuple[str, int], TableFileWriter] = {}
        self.rows = {table.name: 0 for table in WRITTEN}
        self.suspect = 0

    def add(self, parts: dict[str, list[ArchiveRecord]]) -> None:
        rows = transforms.rows(parts)
        self.suspect += len(rows.jobs) - rows.jobs["clock_suspect"].null_count
        for table, told in ((ATTEMPTS, rows.attempts), (JOBS, rows.jobs)):
            self.rows[table.name] += told.num_rows
            for hour, mine in by_hour(told).items():
                if (table.name, hour) not in self._hours:
                    self._hours[table.name, hour] = TableFileWriter(table.arrow, table.spread)
                self._hours[table.name, hour].add(mine)

    def file(self, table: str, hour: int) -> bytes | None:
        """The rows of an hour as a file; they are not kept. None: there are none."""
        draft = self._hours.pop((table, hour), None)
        return None if draft is None else draft.finish()

    def few(self, table: str) -> dict[int, pa.Table]:
        """Those of all other hours."""
        return {hour: draft.few() for (name, hour), draft in self._hours.items() if name == table}


class _Task:
    def __init__(self, stretch: HourRange, store: BlockingDriver, tables: BlockingDriver) -> None:
        self._hour_range = stretch
        self._store = store
        self._tables = tables
        self._keys: dict[int, set[str]] = {}  # of the records of some hours, by when the hour begins
        self._archived: dict[int, dict[int, tuple[str, ...]]] = {}  # by day: the parts of its hours
        self._in_table: dict[int, set[int]] = {}  # by day: other hours of it that the table has
        self._shared: tuple[int, dict[int, set[str]]] | None = (
            None  # a day, and its hours' keys in the file they share
        )
        self._emptied: set[int] = set()  # when hours begin that are in the table no more

    def day(self, hours: Sequence[Hour]) -> Compacted:
        """Do hours of one day, and do them anew where a file was not written or another run was faster."""
        for pause in files.PAUSES_SECONDS:
            try:
                return self._day(hours)
            except files.Unsettled:
                self._shared = None
                self._in_table.clear()
                self._tables.machine.sleep(pause)
        return self._day(hours)

    def _day(self, hours: Sequence[Hour]) -> Compacted:
        """Parts become rows together; if a value is out of range, each by itself, and the one with it is set aside."""
        try:
            return self._in_groups(hours, GROUP_ROWS)
        except OUT_OF_RANGE:
            return self._in_groups(hours, 1)

    def _in_groups(self, hours: Sequence[Hour], group_rows: int) -> Compacted:
        numbers = [archive.hour_of_day(each.at_ms) for each in hours]
        tables = {table.name: DayFiles(self._tables, table, hours[0].partition, numbers) for table in WRITTEN}
        hours = self._listed_again(hours)  # what others have written there so far is made of no later parts
        drafts, group = _Drafts(), dict[str, list[ArchiveRecord]]()
        aside: list[SkippedPart] = []
        emptied = repeats = 0
        decoded = _decoded(self._store, [part for hour in hours for part in hour.parts])
        for hour, number in zip(hours, numbers, strict=True):
            mine: set[str] = set()
            oldest_ms, kept = hour.at_ms, 0
            for part, records in self._read(islice(decoded, len(hour.parts)), aside):
                ended_ms = min(each.finished_ms for each in records) - CLOCK_AHEAD_MS_MAX
                oldest_ms = max(min(oldest_ms, ended_ms), hour.at_ms - LOOK_BACK_MS_MAX)
                known = [mine, *self._earlier(oldest_ms // HOUR_MS * HOUR_MS, hour.at_ms)]
                fresh, told = _fresh(records, known)
                group[part] = fresh
                if sum(map(len, group.values())) >= group_rows:
                    now, group = group, {}
                    try:
                        drafts.add(now)
                    except OUT_OF_RANGE as error:
                        if group_rows > 1:
                            raise
                        aside.append(SkippedPart.of(self._hour_range.store, part, _beyond(error)))
                        continue
                mine |= told
                kept += len(fresh)
                repeats += len(records) - len(fresh)
            if kept >= OWN_FILE_ROWS:
                drafts.add(group)
                group = {}
                for name, table in tables.items():
                    if (body := drafts.file(name, number)) is not None:
                        table.write_own(number, body)
            emptied += not kept
            self._keys = {at: held for at, held in self._keys.items() if at + HOUR_MS > oldest_ms}
            self._keys[hour.at_ms] = mine
            if not kept:
                self._emptied.add(hour.at_ms)
        drafts.add(group)
        for name, table in tables.items():
            table.write_shared(drafts.few(name))
        return Compacted(
            hours=len(hours),
            emptied=emptied,
            parts=sum(len(each.parts) for each in hours) - len(aside),
            jobs=drafts.rows[JOBS.name],
            attempts=drafts.rows[ATTEMPTS.name],
            repeats=repeats,
            clock_suspect=drafts.suspect,
            aside=tuple(aside),
        )

    def _read(
        self, parts: Iterator[DecodedPart], aside: list[SkippedPart]
    ) -> Iterator[tuple[str, list[ArchiveRecord]]]:
        """The records of those parts that have some and can be read."""
        for part, records, why in parts:
            if why:
                aside.append(SkippedPart.of(self._hour_range.store, part, why))
            elif records:
                yield part, records

    def _earlier(self, since_ms: int, until_ms: int) -> list[set[str]]:
        """The keys of the records of a range of hours."""
        for at in range(since_ms, until_ms, HOUR_MS):
            if at not in self._keys:
                self._keys[at] = self._remembered(at)
        return [held for at in range(since_ms, until_ms, HOUR_MS) if (held := self._keys[at])]

    def _remembered(self, at_ms: int) -> set[str]:
        """The keys of an hour from the archive; if that has purged it, from the table."""
        day_ms = at_ms // DAY_MS * DAY_MS
        if day_ms not in self._archived:
            self._archived[day_ms] = self._listed(day_ms)
        archived = self._archived[day_ms]
        if at_ms in archived:
            parts = self._read(_decoded(self._store, archived[at_ms]), [])
            return {transforms.key(each) for _, records in parts for each in records}
        if at_ms in self._emptied:
            return set()
        if day_ms not in self._in_table:
            queue, window = self._hour_range.queue, (day_ms, day_ms + DAY_MS)
            self._in_table[day_ms] = self._tables.run(files.hours(JOBS.name, queue, *window, archived))
        if at_ms not in self._in_table[day_ms]:
            return set()
        hour = archive.hour_of_day(at_ms)
        own = self._in_file(day_ms, hour).get(hour, set())
        if self._shared is None or self._shared[0] != day_ms:
            self._shared = day_ms, self._in_file(day_ms)
        return own | self._shared[1].get(hour, set())

    def _in_file(self, day_ms: int, own: int | None = None) -> dict[int, set[str]]:
        """The keys of the records in a file of the table, by hour."""
        place = files.key_of(JOBS.name, archive.partition_of(self._hour_range.queue, day_ms), own)
        found: dict[int, set[str]] = {}
        for rows in self._tables.run(files.columns([place], ("job_id", "run", "hour"))).values():
            for job, run, hour in zip(*rows.to_pydict().values(), strict=True):
                found.setdefault(hour, set()).add(f"{job}{run}")
        return found

    def _listed(self, day_ms: int) -> dict[int, tuple[str, ...]]:
        """The parts of a day's hours. One list serves all that look back."""
        there = self._store.run(archive.hours(self._hour_range.queue, day_ms, day_ms + DAY_MS))
        return {each.at_ms: each.parts for each in there}

    def _listed_again(self, hours: Sequence[Hour]) -> list[Hour]:
        """Hours of one day, with the parts that came since they were planned. One that is gone is read in vain."""
        day_ms = hours[0].at_ms // DAY_MS * DAY_MS
        now = self._archived[day_ms] = self._listed(day_ms)
        return [
            replace(each, parts=archive.in_order({*each.parts, *now.get(each.at_ms, ())})) for each in hours
        ]


DecodedPart = tuple[str, list[ArchiveRecord], str]  # its key, its records, and why it has none to be trusted


def _decoded(store: BlockingDriver, parts: Sequence[str]) -> Iterator[DecodedPart]:
    """Each part's records, and why it has none to be trusted."""
    for start in range(0, len(parts), PARTS_AT_ONCE):
        group = parts[start : start + PARTS_AT_ONCE]
        for part, body in zip(group, store.run(bodies(group)), strict=True):
            why = DELETED if body is None else "" if body else "it is empty"
            records: list[ArchiveRecord] = []
            if body:
                try:
                    records = decode_part(body, part)
                except (Damaged, NewerFormat) as error:
                    why = error.message
            yield part, records, why


def _beyond(error: Exception) -> str:
    return f"a value is out of range: {error}"


def _fresh(records: list[ArchiveRecord], known: Sequence[set[str]]) -> tuple[list[ArchiveRecord], set[str]]:
    """Those of a part whose keys are not known, each once; and the keys of all."""
    keys = list(map(transforms.key, records))
    told = set(keys)
    if len(told) == len(keys) and all(held.isdisjoint(told) for held in known):
        return records, told
    fresh, once = [], set[str]()
    for key, record in zip(keys, records, strict=True):
        if key not in once and not any(key in held for held in known):
            fresh.append(record)
        once.add(key)
    return fresh, told
