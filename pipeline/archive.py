"""The archive as Spark reads it: its parts, hour by hour, their records as rows, and which parts are damaged.

Records are read natively, with a schema. The format is the library's (``osqueue.core.history``), and so is the
judgement of what is damaged: a part that Spark stumbles over is decoded with the library, which says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import fields
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from osqueue.archive import ROOT
from osqueue.core.history import RECORD_FORMAT, Record, decode_part
from osqueue.errors import OsqueueError
from osqueue.validation import is_queue_name

from .folders import Folders

SUFFIX = ".jsonl.gz"
HOUR_MS = 3_600_000
_PARTITION = re.compile(r"queue=([^/]+)/date=(\d{4}-\d\d-\d\d)/hour=(\d\d?)")


def _columns_of(record: type[Struct]) -> list[StructField]:
    """The columns of a record's fields. A field that the library adds is a column here."""
    return [StructField(field.name, _kind_of(field.type)) for field in fields(record)]


def _kind_of(kind: Any) -> DataType:
    if kind is int:
        return LongType()
    if kind in (str, str | None):
        return StringType()
    return ArrayType(StructType(_columns_of(get_args(kind)[0])))


REQUIRED = tuple(field.name for field in fields(Record) if field.required)
DAMAGED_LINE = "_damaged"
RECORD = StructType(
    [
        *_columns_of(Record),
        StructField(DAMAGED_LINE, StringType()),
        StructField("queue", StringType()),
        StructField("date", DateType()),
        StructField("hour", IntegerType()),
    ]
)

T = TypeVar("T")


class Part(Struct, frozen=True, order=True):
    """One object of the archive."""

    at_ms: int  # when its hour begins
    queue: str
    name: str
    path: str
    size: int  # bytes

    @property
    def partition(self) -> str:
        """Where its jobs go."""
        return partition_of(self.queue, self.at_ms)


class Aside(Struct, frozen=True):
    """A part that was left out."""

    part: str  # its path
    why: str


def partition_of(queue: str, at_ms: int) -> str:
    """The partition of an hour's jobs, as a folder."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return folder_of(queue, at.date(), at.hour)


def folder_of(queue: str, day: date, hour: int) -> str:
    """The same from the values of its columns."""
    return f"queue={queue}/date={day:%Y-%m-%d}/hour={hour}"


def hour_of(partition: str) -> tuple[str, int]:
    """The inverse, which takes ``hour=07`` for ``hour=7``: queue, and when the hour begins. Raises ValueError."""
    found = _PARTITION.fullmatch(partition)
    if found is None:
        raise ValueError(f"{partition} is no partition of an hour")
    queue, day, hour = found.groups()
    return queue, round(datetime.fromisoformat(f"{day}T{int(hour):02d}:00:00+00:00").timestamp() * 1000)


def queues_of(spark: SparkSession, store: str) -> list[str]:
    """The queues that have an archive."""
    there = Folders(spark).below(f"{store}/{ROOT.rstrip('/')}", 1)
    named = [each.removeprefix("queue=") for each in there if each.startswith("queue=")]
    return [each for each in named if is_queue_name(each)]


def parts(
    spark: SparkSession, store: str, queues: Sequence[str], since_ms: int | None, until_ms: int | None
) -> list[Part]:
    """The parts of a range of hours, in order; of all queues where none is named."""
    folders = Folders(spark)
    root = f"{store}/{ROOT.rstrip('/')}"
    found = []
    for queue in set(queues) or queues_of(spark, store):
        for day in folders.below(f"{root}/queue={queue}", 1):
            first = begin_of(f"queue={queue}/{day}/hour=0")
            if first is None or _outside(first, 24 * HOUR_MS, since_ms, until_ms):
                continue
            for hour in folders.below(f"{root}/queue={queue}/{day}", 1):
                at = begin_of(f"queue={queue}/{day}/{hour}")
                if at is None or _outside(at, HOUR_MS, since_ms, until_ms):
                    continue
                for each in folders.entries(f"{root}/queue={queue}/{day}/{hour}"):
                    if each.name.endswith(SUFFIX):
                        found.append(Part(at, queue, each.name, each.path, each.size))  # noqa: PERF401 - clearer
    return sorted(found)


def begin_of(partition: str) -> int | None:
    """When the hour of a partition begins; None: it is not one."""
    try:
        return hour_of(partition)[1]
    except ValueError:  # a folder of somebody else's
        return None


def _outside(at: int, length: int, since_ms: int | None, until_ms: int | None) -> bool:
    return (since_ms is not None and at + length <= since_ms) or (until_ms is not None and at >= until_ms)


def records(spark: SparkSession, store: str, which: Sequence[Part]) -> DataFrame:
    """The records of some parts, one row each, and the ``part``. Reading stops with an error at the first damage."""
    rows = _rows(spark, store, which, ignore="false")
    stop = F.raise_error(F.concat(F.lit("damaged line in "), F.col("part")))
    return rows.withColumn("job_id", F.when(_damaged(), stop).otherwise(F.col("job_id"))).drop(DAMAGED_LINE)


def _rows(spark: SparkSession, store: str, which: Sequence[Part], ignore: str) -> DataFrame:
    read = spark.read.schema(RECORD).options(
        basePath=f"{store}/{ROOT}",
        mode="PERMISSIVE",
        columnNameOfCorruptRecord=DAMAGED_LINE,
        ignoreCorruptFiles=ignore,
    )
    return read.json([each.path for each in which]).withColumn("part", F.col("_metadata.file_name"))


def _damaged() -> Column:
    """Is a row not a record of a format that this release knows?"""
    found = F.col(DAMAGED_LINE).isNotNull() | (F.col("format") > RECORD_FORMAT)
    for name in REQUIRED:
        found = found | F.col(name).isNull()
    return found


def undamaged(
    spark: SparkSession, store: str, which: Sequence[Part], act: Callable[[DataFrame], T]
) -> tuple[T, list[Aside]]:
    """Do something with the records of all parts that can be read, and say which could not.

    The first damage ends the attempt; then every part is looked into, and the rest is done anew.
    """
    aside = [Aside(each.path, "it is empty") for each in which if not each.size]
    left = [each for each in which if each.size]
    while True:
        try:
            return act(records(spark, store, left) if left else _nothing(spark)), aside
        except (PySparkException, Py4JJavaError):
            found = damage(spark, store, left)
            if not found:
                raise
            aside += found
            names = {each.part for each in found}
            left = [each for each in left if each.path not in names]


def _nothing(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], RECORD).drop(DAMAGED_LINE).withColumn("part", F.lit(""))


def damage(spark: SparkSession, store: str, which: Sequence[Part]) -> list[Aside]:
    """The damaged ones of some parts, and those that are not there any more."""
    folders = Folders(spark)
    gone = [each for each in which if not folders.exists(each.path)]
    found = [Aside(each.path, "it was deleted while it was read") for each in gone]
    there = [each for each in which if each not in gone]
    if not there:
        return found
    by_name = {f"{each.partition}/{each.name}": each for each in there}
    judge = F.udf(_judgement, "string")
    files = (
        spark.read.format("binaryFile").option("basePath", f"{store}/{ROOT}").load([p.path for p in there])
    )
    judged = files.select("path", judge("content", "path").alias("why")).filter("why is not null").collect()
    found += [Aside(by_name[_key(row.path)].path, row.why) for row in judged]
    if not found:  # the library reads them all, and Spark does not
        rows = _rows(spark, store, there, ignore="true")
        bad = rows.filter(_damaged()).select("queue", "date", "hour", "part").distinct().collect()
        for row in bad:
            each = by_name[f"{folder_of(row.queue, row.date, row.hour)}/{row.part}"]
            found.append(Aside(each.path, "Spark cannot read some of its lines"))
    return sorted(found, key=lambda each: each.part)


def _key(path: str) -> str:
    queue, day, hour, name = path.split("/")[-4:]
    return f"{queue}/{day}/hour={int(hour.removeprefix('hour='))}/{name}"


def _judgement(content: bytes, path: str) -> str | None:
    """Why a part is set aside; None: it is good."""
    try:
        decode_part(bytes(content), path.rpartition("/")[2])
    except OsqueueError as error:
        return error.message
    return None
