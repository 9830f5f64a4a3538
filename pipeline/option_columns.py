"""A job's options as columns of Spark: what a write takes, and what the tables of jobs show of those that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec import Struct
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    TimestampType,
)

from osqueue.core.archive_record import ArchiveRecord
from osqueue.core.state import JobRecord
from osqueue.model.fields import DescribedField
from osqueue.model.job_options import OPTIONS

from .view_columns import comment_of

WHOLE = (ByteType, ShortType, IntegerType, LongType, NullType)
NUMBER = (*WHOLE, FloatType, DoubleType, DecimalType)


class OptionForm(Struct, frozen=True):
    """How Spark writes options of one type."""

    taken: tuple[type[DataType], ...]  # columns that a write may have
    words: str  # the same for people
    shown: DataType  # the column that a table has


FORMS: dict[type, OptionForm] = {
    str: OptionForm((StringType, NullType), "a string", StringType()),
    int: OptionForm(WHOLE, "a whole number", IntegerType()),
    float: OptionForm(NUMBER, "a number of seconds", LongType()),  # shown in milliseconds
    datetime: OptionForm(
        (TimestampType, *NUMBER), "a timestamp, or a number of seconds since 1970", TimestampType()
    ),
    dict: OptionForm((MapType, NullType), "a map of strings to strings", MapType(StringType(), StringType())),
}


class OptionColumn(Struct, frozen=True):
    """A column of an option that is kept with the job."""

    option: DescribedField
    name: str
    type: DataType
    comment: str

    def value(self, row: JobRecord | ArchiveRecord) -> Any:
        """What a row has in it."""
        found = getattr(row, self.option.column)
        return list(dict(found or ()).items()) if self.option.type is dict else found  # as Arrow takes a map


def _kept() -> Iterator[OptionColumn]:
    for option in OPTIONS.values():
        if option.column in ArchiveRecord.__struct_fields__:
            in_ms = option.type is float
            name = option.column if in_ms else option.name
            comment = comment_of(option) + (", milliseconds" if in_ms else "")
            yield OptionColumn(option, name, FORMS[option.type].shown, comment)


KEPT = tuple(_kept())
