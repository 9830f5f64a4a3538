"""The files of the tables: each partition is one, so that what it holds is replaced by one request.

    <tables>/<table>/<partition>/rows.parquet

A file is written under the condition that nobody else has written it since it was looked at, and only where it says
something else than before: the same rows give the same bytes. So a reader finds the old rows or the new ones, a task
that is repeated does no harm, and a run that has nothing to say leaves everything alone.

Flows here perform no requests themselves; ``at`` gives them the store of an address.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq

from osqueue.clock import MACHINE
from osqueue.commit.driver import BlockingDriver
from osqueue.commit.effects import Flow, Sleep
from osqueue.errors import Unavailable
from osqueue.inventory import keys
from osqueue.shards import unavailable
from osqueue.stores.address import open_store
from osqueue.stores.base import (
    Delete,
    Deleted,
    Failed,
    Found,
    Get,
    Missing,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Reply,
    Written,
)

NAME = "rows.parquet"
ROW_GROUP_ROWS = 100_000
TRIES = 4
PAUSE_SECONDS = 0.2
_DAY = re.compile(r"queue=([^/]+)/date=(\d{4}-\d\d-\d\d)(?:/|$)")


@contextmanager
def at(address: str) -> Iterator[BlockingDriver]:
    """The store of an address, for flows."""
    store = open_store(address)
    try:
        yield BlockingDriver(store, MACHINE)
    finally:
        store.close()


def key_of(table: str, partition: str) -> str:
    """Where the rows of a partition are."""
    return f"{table}/{partition}/{NAME}"


# ── What is in a file ────────────────────────────────────────────────────────
class Draft:
    """A file in the making: rows of one schema, compressed as they come. The same rows give the same bytes."""

    def __init__(self, schema: pa.Schema, spread: Sequence[str] = ()) -> None:
        """``spread`` are columns whose values hardly repeat: a dictionary of them costs time and space."""
        self._schema = schema
        self._dictionaries = [name for field in schema for name in _leaves(field) if name not in spread]
        self._waiting: list[pa.Table] = []
        self._bytes = io.BytesIO()
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def add(self, rows: pa.Table) -> None:
        """More rows, in this order."""
        self._waiting.append(rows)
        self.rows += rows.num_rows
        if sum(each.num_rows for each in self._waiting) >= ROW_GROUP_ROWS:
            self._write()

    def finish(self) -> bytes | None:
        """The file; None: it has no rows."""
        if not self.rows:
            return None
        self._write()
        assert self._writer is not None
        self._writer.close()
        return self._bytes.getvalue()

    def _write(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._bytes,
                self._schema,
                compression="zstd",
                use_dictionary=self._dictionaries,
                store_schema=False,
            )
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=ROW_GROUP_ROWS)
            self._waiting = []


def _leaves(field: pa.Field, below: str = "") -> Iterator[str]:
    """The columns that Parquet makes of a field."""
    if pa.types.is_list(field.type):
        yield from _leaves(field.type.value_field, f"{below}{field.name}.list.")
    elif pa.types.is_struct(field.type):
        for each in field.type:
            yield from _leaves(each, f"{below}{field.name}.")
    else:
        yield f"{below}{field.name}"


def columns(table: str, partition: str, names: Sequence[str]) -> Flow[pa.Table]:
    """Some columns of a partition, which is there."""
    key = key_of(table, partition)
    reply = yield Get(key)
    if not isinstance(reply, Found):
        raise unavailable(reply, key)
    return pq.read_table(io.BytesIO(reply.body), columns=list(names))


# ── Replacing them ───────────────────────────────────────────────────────────
def replace(key: str, body: bytes | None) -> Flow[bool]:
    """Make an object hold exactly this, or not be there (None). False: so it was already.

    Raises Unavailable where the store does not answer, or another run writes the same object again and again.
    """
    reply: Reply
    for tried in range(TRIES):
        if tried:
            yield Sleep(PAUSE_SECONDS * tried)
        there = yield Get(key)
        if not isinstance(there, Found | Missing):
            reply = there
        elif (there.body if isinstance(there, Found) else None) == body:
            return tried > 0  # by a request that was not answered
        elif isinstance(there, Missing):
            reply = yield PutIfAbsent(key, body or b"")
        elif body is None:
            reply = yield Delete((key,))
        else:
            reply = yield PutIfMatch(key, body, there.version)
        if isinstance(reply, Written | Deleted):
            return True
        if isinstance(reply, Failed) and reply.error.permanent:
            raise reply.error
    if isinstance(reply, Refused):
        raise Unavailable(f"{key}: another run writes the same tables. Wait for its end; then repeat.")
    raise unavailable(reply, key)


# ── What is there ────────────────────────────────────────────────────────────
def exists(root: str, table: str) -> bool:
    """Has anybody written the table?"""
    with at(root) as tables:
        return bool(tables.run(keys(f"{table}/", most=1)))


def partitions(table: str, queue: str | None = None, day: str = "") -> Flow[list[str]]:
    """The partitions of a table as the paths of their folders below it; of one queue, also from a day's folder on."""
    prefix = f"{table}/" if queue is None else f"{table}/queue={queue}/"
    found = yield from keys(prefix, after=f"{prefix}{day}" if queue is not None else "")
    named = (key.removeprefix(f"{table}/").rpartition("/") for key in found)
    return [folder for folder, _, name in named if name == NAME and _DAY.match(folder)]


def days(root: str, table: str, queues: Sequence[str] = (), since: date | None = None) -> list[str]:
    """The days that a table has, as the paths of their folders below it; of some queues, or from one on."""
    found: dict[str, None] = {}
    with at(root) as tables:
        for queue in queues or (None,):
            for partition in tables.run(partitions(table, queue)):
                day = _DAY.match(partition)
                if day is not None and (since is None or day[2] >= f"{since}"):
                    found[day[0].rstrip("/")] = None
    return list(found)
