"""What the jobs ask of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from msgspec import Struct

from ..tables import TableSpec

T = TypeVar("T")
R = TypeVar("R")


class Relation(Struct, frozen=True):
    """Some rows, not computed yet. In a query, ``FROM {relation}`` reads them."""

    reference: str

    def __str__(self) -> str:
        return self.reference


class Answer(Protocol):
    """The answer to somebody's question in the engine's own SQL."""

    @property
    def names(self) -> list[str]:
        """Of its columns."""

    @property
    def numbers(self) -> list[bool]:
        """Which columns are numbers."""

    def texts(self, most: int) -> list[list[str | None]]:
        """The first rows, as text. Raises Rejected."""

    def objects(self) -> Iterator[str]:
        """Every row as an object of JSON, with nulls. Raises Rejected."""


class Engine(Protocol):
    """Runs SQL over tables, and functions over pieces of work."""

    @property
    def name(self) -> str:
        """As ``--engine`` takes it."""

    @property
    def cores(self) -> int:
        """How many pieces of work it does at once."""

    def place(self, address: str, field: str) -> str:
        """The address of a folder of tables that this engine can use. Raises Rejected, naming the field."""

    def read(
        self,
        root: str,
        table: TableSpec,
        queues: Sequence[str] = (),
        since: date | None = None,
        columns: Sequence[str] = (),
        until: date | None = None,
    ) -> Relation:
        """A table as it is: no rows where nobody has written it yet. Of some queues, from a day on, or before one.

        ``columns`` are all that are asked for, beside those of its folders: the others may be left out.
        """

    def ask(self, root: str, query: str) -> Answer:
        """The answer to a question over the tables, which are views of their names. Raises Rejected."""

    def of(self, rows: pa.Table) -> Relation:
        """Rows of this process."""

    def sql(self, query: str) -> Relation:
        """What a query answers."""

    def kept(self, relation: Relation) -> AbstractContextManager[Relation]:
        """The same rows, computed once for all who ask for them."""

    def arrow(self, relation: Relation) -> pa.Table:
        """The rows, in this process. Moments are in UTC."""

    def define(self, name: str, function: Callable[..., str], texts: int) -> None:
        """Make a function of so many texts known to SQL. It lies in a module, so that workers find it."""

    def spread(self, function: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
        """Apply a function to each piece of work, wherever there is room. It lies in a module, as workers find it."""


def rows(engine: Engine, relation: Relation) -> list[dict[str, Any]]:
    """The rows, each by the names of its columns."""
    found: list[dict[str, Any]] = engine.arrow(relation).to_pylist()
    return found
