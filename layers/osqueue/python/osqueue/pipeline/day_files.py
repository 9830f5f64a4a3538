"""What a table has of some hours of a day, and how it comes to hold what the archive says of them.

The hours of a day share a file. One of many jobs (``stretch.OWN_FILE_ROWS``) has a file of its own, so that a late
part never costs more than so many rows of each other hour. Who does some hours leaves the others as they are, also
where somebody else is just writing these: only rows of the same hours are in each other's way.

An hour that grows past the limit, or falls below it, changes files by two requests: in between it is there twice, and
never not at all. Two runs that do not agree on its size each write where it goes first, and look where the other would
have put it afterwards. So one of them at least sees the other, and begins again with what the archive says then. Each
looks also whether its own is still there: what it did not have to write, the other may have taken for old and deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from ..commit.driver import BlockingDriver
from ..objects.inventory import keys
from . import files
from .files import ObjectVersion, TableFileWriter, Unsettled
from .tables import TableSpec, fitted

HourRows = Mapping[int, pa.Table]  # by the hour of the day, 0 to 23


class DayFiles:
    """Of one table: looked at before the parts are read whose rows it is given. Raises Unavailable, or Damaged."""

    def __init__(
        self, tables: BlockingDriver, table: TableSpec, partition: str, hours: Collection[int]
    ) -> None:
        """``hours`` are those that are done."""
        self._tables, self._table, self._partition = tables, table, partition
        self._hours = {*hours}
        self._moved: set[int] = set()  # of these, those that have a file of their own now
        there = self._there()
        self._shared = ObjectVersion()
        self._rows: HourRows = {}
        if self._key() in there:
            self._look()
        self._before = self._mine()
        self._own = {
            hour: tables.run(files.look(self._key(hour))) for hour in self._hours if self._key(hour) in there
        }

    def write_own(self, hour: int, body: bytes) -> None:
        """Give an hour a file of its own. Raises Unsettled."""
        seen = self._own.pop(hour, ObjectVersion())
        self._tables.run(files.exchange(self._key(hour), seen, body))
        self._moved.add(hour)

    def write_shared(self, rows: HourRows) -> None:
        """Make the file that hours share hold these of those that are done, and no others. Raises Unsettled."""
        if self._moved:
            self._look_again()  # somebody may have put one of them there meanwhile
        pauses = iter(files.PAUSES_SECONDS)
        while True:
            seen_before = self._shared
            try:
                self._exchange(rows)
                break
            except Unsettled:
                self._look_again()
                if (
                    self._shared == seen_before
                ):  # else others have done some of their hours: the turn is ours before long
                    if (pause := next(pauses, None)) is None:
                        raise
                    self._tables.machine.sleep(pause)
        for hour, seen in self._own.items():
            self._tables.run(files.exchange(self._key(hour), seen, None))
        if self._moved or rows:
            there = self._there()
            if not {*map(self._key, self._moved)} <= there:
                raise files.met(self._key())
            if rows and not there.isdisjoint(map(self._key, self._hours - self._moved)):
                raise files.met(self._key())
        if rows and self._own:
            self._look()
            if self._mine() != rows:
                raise files.met(self._key())

    def _key(self, hour: int | None = None) -> str:
        return files.key_of(self._table.name, self._partition, hour)

    def _there(self) -> set[str]:
        return {*self._tables.run(keys(f"{self._table.name}/{self._partition}/"))}

    def _look(self) -> None:
        self._shared, body = self._tables.run(files.opened(self._key()))
        self._rows = (
            {} if body is None else by_hour(fitted(files.decoded(self._key(), body), self._table.arrow))
        )

    def _look_again(self) -> None:
        """What others have done to other hours is theirs; an hour of ours in which something changed is begun again."""
        self._look()
        if self._mine() != self._before:
            raise files.met(self._key())

    def _mine(self) -> HourRows:
        return {hour: rows for hour, rows in self._rows.items() if hour in self._hours}

    def _exchange(self, rows: HourRows) -> None:
        whole = {**{hour: old for hour, old in self._rows.items() if hour not in self._hours}, **rows}
        draft = TableFileWriter(self._table.arrow, self._table.spread)
        for hour in sorted(whole):
            draft.add(whole[hour])
        self._tables.run(files.exchange(self._key(), self._shared, draft.finish()))


def by_hour(rows: pa.Table) -> dict[int, pa.Table]:
    """Rows of a day that are in the order of its hours, cut into these."""
    runs = pc.run_end_encode(rows["hour"].combine_chunks())
    found, begin = {}, 0
    for hour, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        found[hour] = rows.slice(begin, end - begin)
        begin = end
    return found
