"""The pipeline on Spark: on a cluster, or on the cores of this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import count
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import NumericType

from ...errors import Rejected
from .. import files
from ..places import place
from ..tables import TABLES, TableSpec
from .base import Relation

TASKS_A_CORE = 4  # a piece of work may take less time than its task
ZONE = "spark.sql.session.timeZone"
T = TypeVar("T")
R = TypeVar("R")


class SparkEngine:
    """A session."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        """Raises Rejected for a session in another time zone: it would count on other days and in other hours."""
        zone = spark.conf.get(ZONE)
        if zone not in ("UTC", "Etc/UTC", "GMT"):
            raise Rejected(
                f'spark: its {ZONE} is {zone}, and hours and days are UTC. Call spark.conf.set("{ZONE}", "UTC").',
                field="spark",
            )
        self._spark = spark
        self._frames: dict[str, DataFrame] = {}
        self._numbers = count()

    @property
    def cores(self) -> int:
        return max(1, self._spark.sparkContext.defaultParallelism)  # more of them as a cluster grows

    def place(self, address: str, field: str) -> str:
        return place(address, field)

    def read(
        self,
        root: str,
        table: TableSpec,
        queues: Sequence[str] = (),
        since: date | None = None,
        columns: Sequence[str] = (),  # Spark sees by itself which are asked for
        until: date | None = None,
    ) -> Relation:
        return self._named(read(self._spark, root, table, queues, since, until))

    def ask(self, root: str, query: str) -> SparkAnswer:
        views(self._spark, self.place(root, "tables"))
        with _refused():
            return SparkAnswer(self._spark.sql(query))

    def of(self, rows: pa.Table) -> Relation:
        return self._named(self._spark.createDataFrame(rows, from_arrow_schema(rows.schema)))

    def sql(self, query: str) -> Relation:
        return self._named(self._spark.sql(query))

    def _named(self, frame: DataFrame) -> Relation:
        """A frame as a view of a name that nobody else uses in this session."""
        name = f"osqueue_{id(self)}_{next(self._numbers)}"
        frame.createOrReplaceTempView(name)
        self._frames[name] = frame
        return Relation(name)

    @contextmanager
    def kept(self, relation: Relation) -> Iterator[Relation]:
        held = self._frames[relation.reference].persist()
        try:
            yield relation
        finally:
            held.unpersist()

    def arrow(self, relation: Relation) -> pa.Table:
        return self._frames[relation.reference].toArrow()

    def define(self, name: str, function: Callable[..., str], texts: int) -> None:
        self._spark.udf.register(name, function, "string")

    def spread(self, function: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
        tasks = max(1, min(len(pieces), TASKS_A_CORE * self.cores))
        return self._spark.sparkContext.parallelize(pieces, tasks).map(function).collect()

    def close(self) -> None:
        """Forget the frames. The session goes on."""
        for name in self._frames:
            self._spark.catalog.dropTempView(name)
        self._frames.clear()


class SparkAnswer:
    """A frame."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.names = frame.columns
        self.numbers = [isinstance(field.dataType, NumericType) for field in frame.schema]

    def texts(self, most: int) -> list[list[str | None]]:
        named = self._frame.toDF(
            *(f"c{place}" for place in range(len(self.names)))
        )  # a name may be there twice
        with _refused():
            return [
                list(row)
                for row in named.select(*(named[each].cast("string") for each in named.columns)).take(most)
            ]

    def objects(self) -> Iterator[str]:
        row = functions.to_json(functions.struct("*"), {"ignoreNullFields": "false"})
        with _refused():
            for each in self._frame.select(row).toLocalIterator():
                yield each[0]


@contextmanager
def _refused() -> Iterator[None]:
    """What Spark says of its own error, without the frames of Java. Raises Rejected."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = str(error).strip()
        found = re.search(r"\[[A-Z0-9_.]+\] [^\n]*", said)
        told = (found[0] if found else said.partition("\n")[0]).partition(" SQLSTATE:")[0].rstrip()
        raise Rejected(
            f"query: {told} Mend it; docs/pipeline-tables.md lists the tables.", field="query"
        ) from error


def read(
    spark: SparkSession,
    root: str,
    table: TableSpec,
    queues: Sequence[str] = (),
    since: date | None = None,
    until: date | None = None,
) -> DataFrame:
    """A table as it is; no rows where nobody has written it yet.

    Of some queues or days, only those folders are looked into: to list a table of years takes minutes on S3.
    """
    root = place(root, "tables")
    path = f"{root}/{table.name}"
    places = [path]
    if queues or since is not None or until is not None:
        places = [f"{path}/{each}" for each in files.days(root, table.name, queues, since, until)]
    elif not files.exists(root, table.name):
        places = []
    schema = from_arrow_schema(table.schema)
    if not places:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", path).parquet(*places)


def views(spark: SparkSession, root: str) -> None:
    """Every table as a view of its name, for SQL."""
    for table in TABLES:
        read(spark, root, table).createOrReplaceTempView(table.name)
