"""The pipeline on this machine, by DuckDB: no Java, and any store that the library can open.

Tables are read by the library into memory. Moments are without a time zone here, and in UTC. Other processes help with
pieces of work on the cores that are idle.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from itertools import count
from typing import Any, TypeVar

import duckdb
import msgspec
import pyarrow as pa

from ...errors import Rejected
from .. import tables
from ..places import store_at
from ..tables import TABLES, TableSpec
from ..view_columns import MOMENT
from .base import Relation
from .helpers import Helpers

T = TypeVar("T")
R = TypeVar("R")

# What Spark has and DuckDB has not, or under another name.
MACROS = {
    "unix_millis(moment)": "epoch_ms(moment)",
    "timestamp_millis(ms)": "make_timestamp(cast(ms AS bigint) * 1000)",
    "sequence(first, last, step)": "generate_series(first, last, step)",
    "explode(list)": "unnest(list)",
    "get(list, place)": "list[place + 1]",
}
CORES_MAX = (
    8  # a process takes 150 MB and more, and a container may have less time and memory than it sees cores
)
_PLAIN = pa.timestamp("us")  # a moment as it is here
_SUM = pa.decimal128(38, 0)  # what sums of whole numbers are


def cores_here() -> int:
    """How many cores to use: those of the machine, or that ``taskset`` leaves this process, and not too many."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on macOS
    return min(CORES_MAX, len(allowed(0)) if allowed else os.cpu_count() or 1)


class LocalEngine:
    """A database in memory, and processes that do pieces of work beside this one."""

    name = "local"

    def __init__(self, cores: int = 1) -> None:
        """On one core no other process is started."""
        self.cores = cores
        self._helpers = Helpers(cores - 1)  # this process works, too
        self._database = duckdb.connect()
        self._numbers = count()
        self._functions: set[str] = set()
        for head, body in MACROS.items():
            self._database.execute(f"CREATE MACRO {head} AS {body}")

    def place(self, address: str, field: str) -> str:
        return store_at(address, field)

    def read(
        self,
        root: str,
        table: TableSpec,
        queues: Sequence[str] = (),
        since: date | None = None,
        columns: Sequence[str] = (),
        until: date | None = None,
    ) -> Relation:
        return self.of(tables.read(root, table, queues, since, columns, until))

    def of(self, rows: pa.Table) -> Relation:
        name = self._name()
        self._database.register(name, rows.cast(_with(rows.schema, MOMENT, _PLAIN)))
        return Relation(name)

    def ask(self, root: str, query: str) -> LocalAnswer:
        root = self.place(root, "tables")
        for table in TABLES:
            self._database.execute(f"CREATE OR REPLACE VIEW {table.name} AS FROM {self.read(root, table)}")
        try:
            found = self._database.sql(query)
            if found is None:  # a statement that answers nothing
                raise Rejected("query: it asks nothing. Give a SELECT.", field="query")
            return LocalAnswer(_zoned(found.to_arrow_table()))
        except duckdb.Error as error:
            told = str(error).partition("\n")[0]
            raise Rejected(
                f"query: {told} Mend it; docs/pipeline-tables.md lists the tables.", field="query"
            ) from error

    def sql(self, query: str) -> Relation:
        return Relation(f"({query})")

    @contextmanager
    def kept(self, relation: Relation) -> Iterator[Relation]:
        name = self._name()
        self._database.execute(f"CREATE TABLE {name} AS SELECT * FROM {relation}")
        try:
            yield Relation(name)
        finally:
            self._database.execute(f"DROP TABLE {name}")

    def _name(self) -> str:
        return f"frame_{next(self._numbers)}"

    def arrow(self, relation: Relation) -> pa.Table:
        return _zoned(self._database.sql(f"SELECT * FROM {relation}").to_arrow_table())

    def define(self, name: str, function: Callable[..., str], texts: int) -> None:
        if name in self._functions:
            return
        self._functions.add(name)
        options: dict[str, Any] = {"null_handling": "special"}  # null is handed to the function
        self._database.create_function(name, function, ["VARCHAR"] * texts, "VARCHAR", **options)

    def spread(self, function: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
        if self.cores == 1 or len(pieces) < 2:
            return list(map(function, pieces))
        return self._helpers.share(function, pieces)

    def close(self) -> None:
        """Give the memory back, and end the processes."""
        self._helpers.close()
        self._database.close()


class LocalAnswer:
    """Rows in memory."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.names = rows.column_names
        self.numbers = [_is_number(field.type) for field in rows.schema]

    def texts(self, most: int) -> list[list[str | None]]:
        columns = [
            [_text(value) for value in column.to_pylist()] for column in self._rows.slice(0, most).columns
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    def objects(self) -> Iterator[str]:
        columns = [[_plain(value) for value in column.to_pylist()] for column in self._rows.columns]
        for row in zip(*columns, strict=True):
            yield msgspec.json.encode(dict(zip(self.names, row, strict=True)), enc_hook=str).decode()


def _is_number(type: pa.DataType) -> bool:
    return any(is_one(type) for is_one in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))


def _plain(value: object) -> object:
    """A value as Spark writes it in JSON."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def _text(value: object) -> str | None:
    """A value as a cell of a table."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
    if isinstance(value, bool | list | dict):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return str(value)


def _zoned(rows: pa.Table) -> pa.Table:
    """Rows as they are outside: moments in UTC, sums of whole numbers as whole numbers."""
    return rows.cast(_with(_with(rows.schema, _PLAIN, MOMENT), _SUM, pa.int64()))


def _with(schema: pa.Schema, old: pa.DataType, new: pa.DataType) -> pa.Schema:
    """A schema with another type in the place of one."""
    return pa.schema([field.with_type(new) if field.type == old else field for field in schema])
