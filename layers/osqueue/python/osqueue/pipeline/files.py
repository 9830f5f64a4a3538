"""The files of the tables: a partition is one, so that what it holds is replaced by one request.

    <tables>/<table>/<partition>/rows.parquet
    <tables>/<table>/<partition>/rows-<HH>.parquet      an hour of so many jobs that it has a file of its own

A file is written under the condition that nobody else has written it since it was looked at, which is before the rows
were read that it is made of, and only where it says something else than before: the same rows give the same bytes. So a
reader finds the old rows or the new ones, and a task that is repeated, or wakes up late, does no harm.

Flows here perform no requests themselves; ``at`` gives them the store of an address.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from ..clock import MACHINE
from ..commit.driver import BlockingDriver
from ..commit.effects import All, Flow, Sleep
from ..errors import Damaged, Unavailable
from ..objects.archive import bodies
from ..objects.inventory import keys
from ..objects.layout import unavailable
from ..stores.address import open_store
from ..stores.base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Missing,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Written,
)
from . import archive
from .archive import DAY_MS, HOUR_MS

ROW_GROUP_ROWS = 100_000
SMALL_ROWS = (
    1_000  # a file of fewer has neither dictionaries nor statistics: to read all of it takes less time
)
PAUSES_SECONDS = (0.2, 0.8, 3.2)  # before a request is repeated that had no answer
FILES_AT_ONCE = 32  # that are read
_FILE = re.compile(r"(queue=[^/]+/date=\d{4}-\d\d-\d\d)/rows(?:-([01]\d|2[0-3]))?\.parquet")


class RetryingDriver(BlockingDriver):
    """Asks again where a store did not answer, unless it would matter that a request is carried out twice."""

    def perform(self, effect: Any, deadline: float = math.inf) -> Any:
        reply = super().perform(effect, deadline)
        if isinstance(effect, All):
            return tuple(map(self._again, effect.requests, reply))
        return self._again(effect, reply)

    def _again(self, request: Any, reply: Any) -> Any:
        for pause in PAUSES_SECONDS:
            if not isinstance(reply, Failed) or reply.error.permanent:
                break
            if not isinstance(request, Get | List | Put | Delete):
                break
            self.machine.sleep(pause)
            reply = self.store.perform(request)
        return reply


@contextmanager
def at(address: str) -> Iterator[RetryingDriver]:
    """The store of an address, for flows."""
    store = open_store(address)
    try:
        yield RetryingDriver(store, MACHINE)
    finally:
        store.close()


def key_of(table: str, partition: str, hour: int | None = None) -> str:
    """Where the rows of a partition are, or of an hour that has a file of its own."""
    return (
        f"{table}/{partition}/rows.parquet"
        if hour is None
        else f"{table}/{partition}/rows-{hour:02d}.parquet"
    )


class TableFile(Struct, frozen=True):
    """What the key of a file tells."""

    partition: str
    day_ms: int  # when its day begins
    hour: int | None  # that it has for itself, 0 to 23; None: it has all others


def _file_at(table: str, key: str) -> TableFile | None:
    """Which file of a table a key is; None: it is somebody else's."""
    found = _FILE.fullmatch(key.removeprefix(f"{table}/"))
    day_ms = None if found is None else archive.begin_of(f"{found[1]}/hour=0")
    if found is None or day_ms is None:
        return None
    return TableFile(found[1], day_ms, int(found[2]) if found[2] else None)


# ── What is in a file ────────────────────────────────────────────────────────
class TableFileWriter:
    """A file in the making: rows of one schema, compressed as they come. The same rows give the same bytes."""

    def __init__(self, schema: pa.Schema, spread: Sequence[str] = ()) -> None:
        """``spread`` are columns whose values hardly repeat: a dictionary of them costs time and space."""
        self._schema = schema
        self._spread = spread
        self._waiting: list[pa.Table] = []
        self._bytes = io.BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def add(self, rows: pa.Table) -> None:
        """More rows, in this order."""
        self._waiting.append(rows)
        self.rows += rows.num_rows
        while sum(each.num_rows for each in self._waiting) >= ROW_GROUP_ROWS:
            self._write()

    def few(self) -> pa.Table:
        """The rows themselves, of which there are fewer than fill a row group."""
        assert self._writer is None, "some of them are in the file already"
        return pa.concat_tables(self._waiting)

    def finish(self) -> bytes | None:
        """The file; None: it has no rows."""
        if not self.rows:
            return None
        if self._waiting:
            self._write()
        assert self._writer is not None
        self._writer.close()
        return self._bytes.getvalue()

    def _write(self) -> None:
        """One row group, cut by its number of rows alone: where those came from is not seen in the bytes."""
        if self._writer is None:
            large = self.rows >= SMALL_ROWS
            repeating = [
                name for field in self._schema for name in _leaves(field) if name not in self._spread
            ]
            self._writer = pq.ParquetWriter(
                self._bytes,
                self._schema,
                compression="zstd",
                use_dictionary=repeating if large else False,
                write_statistics=large,
                store_schema=False,
            )
        waiting = pa.concat_tables(self._waiting)
        self._writer.write_table(
            waiting.slice(0, ROW_GROUP_ROWS).combine_chunks(), row_group_size=ROW_GROUP_ROWS
        )
        rest = waiting.slice(ROW_GROUP_ROWS)
        self._waiting = [rest] if rest.num_rows else []


def _leaves(field: pa.Field, below: str = "") -> Iterator[str]:
    """The columns that Parquet makes of a field."""
    if pa.types.is_list(field.type):
        yield from _leaves(field.type.value_field, f"{below}{field.name}.list.")
    elif pa.types.is_struct(field.type):
        for each in field.type:
            yield from _leaves(each, f"{below}{field.name}.")
    else:
        yield f"{below}{field.name}"


def columns(keys_: Sequence[str], names: Sequence[str]) -> Flow[dict[str, pa.Table]]:
    """Columns that every file has, of those files that are there, by their keys. Raises Unavailable, or Damaged."""
    found = {}
    for start in range(0, len(keys_), FILES_AT_ONCE):
        group = keys_[start : start + FILES_AT_ONCE]
        for key, body in zip(group, (yield from bodies(group)), strict=True):
            if body is not None:
                rows = found[key] = decoded(key, body, names)
                if missing := {*names} - {*rows.column_names}:
                    raise Damaged(
                        f"{key} has no column {min(missing)}. Delete it, and compact its day again."
                    )
    return found


def decoded(key: str, body: bytes, names: Sequence[str] | None = None) -> pa.Table:
    """A file's rows, or some columns of them. Raises Damaged where it is no file of a table."""
    try:
        file = pq.ParquetFile(pa.BufferReader(body), pre_buffer=False)  # a third of the time of pq.read_table
        return file.read(columns=None if names is None else list(names), use_threads=False)
    except (
        pa.ArrowException,
        OSError,
        UnicodeDecodeError,
    ) as error:  # OSError: a page, or the end; nothing is read
        why = " ".join(str(error).split()).rstrip(" .")
        raise Damaged(f"{key} cannot be read: {why}. Delete it, and compact its day again.") from error


# ── Replacing them ───────────────────────────────────────────────────────────
class Unsettled(Unavailable):
    """A write did not take effect, or another run's came first: look again, and repeat."""


class ObjectVersion(Struct, frozen=True):
    """What an object was at some moment; None: it was not there."""

    version: str | None = None
    digest: bytes | None = None


def look(key: str) -> Flow[ObjectVersion]:
    """What an object is now. Raises Unavailable."""
    seen, _ = yield from opened(key)
    return seen


def opened(key: str) -> Flow[tuple[ObjectVersion, bytes | None]]:
    """What an object is now, and what it holds. Raises Unavailable."""
    reply = yield Get(key)
    if isinstance(reply, Found):
        return ObjectVersion(reply.version, _digest(reply.body)), reply.body
    if isinstance(reply, Missing):
        return ObjectVersion(), None
    raise unavailable(reply, key)


def exchange(key: str, seen: ObjectVersion, body: bytes | None) -> Flow[None]:
    """Make an object hold exactly this, or not be there (None), if it still is what was seen.

    Nothing is written where it says this already. Raises Unavailable, and Unsettled where it may be repeated, after
    another look at it and at what the body is made of.
    """
    if seen.digest == _digest(body):
        return
    if seen.version is None:
        reply = yield PutIfAbsent(key, body or b"")
    elif body is None:
        reply = yield DeleteIfMatch(key, seen.version)
    else:
        reply = yield PutIfMatch(key, body, seen.version)
    if isinstance(reply, Written | Deleted):
        return
    if isinstance(reply, Failed) and reply.error.permanent:
        raise reply.error
    now = yield from look(key)  # the answer may have been lost, or somebody else has written the same
    if now.digest == _digest(body):
        return
    if now == seen:
        raise Unsettled(unavailable(reply, key).message)
    raise met(key)


def met(key: str) -> Unsettled:
    """What another run has written meanwhile has come first."""
    return Unsettled(f"{key}: another run writes the same tables. Wait for its end; then repeat.")


def replace(key: str, body: bytes | None) -> Flow[None]:
    """The same for what has just been looked at: whoever writes last is right. Raises what ``exchange`` raises."""
    for pause in PAUSES_SECONDS:
        try:
            return (yield from exchange(key, (yield from look(key)), body))
        except Unsettled:
            yield Sleep(pause)
    return (yield from exchange(key, (yield from look(key)), body))


def _digest(body: bytes | None) -> bytes | None:
    return None if body is None else hashlib.sha256(body).digest()


# ── What is there ────────────────────────────────────────────────────────────
def exists(root: str, table: str) -> bool:
    """Has anybody written the table?"""
    with at(root) as tables:
        return bool(tables.run(keys(f"{table}/", most=1)))


def hours(
    table: str,
    queue: str,
    since_ms: int | None = None,
    until_ms: int | None = None,
    known: Collection[int] = (),
) -> Flow[set[int]]:
    """When the hours of a range begin that a table has of a queue. A day is not opened of which all are known."""
    found, shared = set(), dict[str, int]()
    for key in (yield from archive.days_of(f"{table}/", queue, since_ms, until_ms)):
        if (file := _file_at(table, key)) is None:
            continue
        day = range(file.day_ms, file.day_ms + DAY_MS, HOUR_MS)
        asked = [at for at in day if archive.inside(at, since_ms, until_ms)]
        if file.hour is not None:
            found |= {day[file.hour]} & {*asked}
        elif any(at not in known for at in asked):
            shared[key] = file.day_ms
    for key, told in (yield from columns([*shared], ("hour",))).items():
        found |= {shared[key] + hour * HOUR_MS for hour in told["hour"].unique().to_pylist()}
    return {at for at in found if archive.inside(at, since_ms, until_ms)}


def last_hour(table: str, queue: str, since_ms: int | None = None) -> Flow[int | None]:
    """When the last hour begins that a table has of a queue, on the day of a moment or later."""
    there = yield from archive.days_of(f"{table}/", queue, since_ms, None)
    for key in reversed(there):
        if (file := _file_at(table, key)) is not None:
            return max((yield from hours(table, queue, file.day_ms, file.day_ms + DAY_MS)), default=None)
    return None


def there(
    table: str, queues: Sequence[str] = (), since: date | None = None, until: date | None = None
) -> Flow[list[tuple[str, str]]]:
    """The files that a table has, each as its partition and its key; of some queues, or of some days."""
    since_ms, end_ms = map(_begin_of, (since, until))
    found = []
    for queue in queues or (yield from archive.queues_of(f"{table}/")):
        for key in (yield from archive.days_of(f"{table}/", queue, since_ms, end_ms)):
            file = _file_at(table, key)
            if file and (end_ms is None or file.day_ms < end_ms):
                found.append((file.partition, key))
    return found


def _begin_of(day: date | None) -> int | None:
    return (
        None if day is None else round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    )


def days(
    root: str, table: str, queues: Sequence[str] = (), since: date | None = None, until: date | None = None
) -> list[str]:
    """The partitions of these files: the days that a table has."""
    with at(root) as tables:
        found = tables.run(there(table, queues, since, until))
    return list(dict.fromkeys(partition for partition, _ in found))
