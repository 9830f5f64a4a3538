"""What callers see of a job and of its attempts, as columns of Spark: their types, meanings and values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct
from pyspark.sql.types import (
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from osqueue.model.fields import DescribedField, described_fields
from osqueue.model.job import Attempt, Job

TYPES: dict[type, DataType] = {
    str: StringType(),
    int: LongType(),
    bool: BooleanType(),
    datetime: TimestampType(),
}
JOB = described_fields(Job)
ATTEMPT = tuple(described_fields(Attempt).values())


def comment_of(field: DescribedField) -> str:
    """A field's meaning, as a column has it."""
    meaning = (field.about.description or "").rstrip(".")
    return meaning[:1].lower() + meaning[1:]


def value_of(field: DescribedField, row: Struct) -> Any:
    """What a row has of a field, as Arrow takes it: a time in microseconds; what is not there is null."""
    found = getattr(row, field.column)
    if field.optional and not found:
        return None
    return found * 1000 if field.type is datetime else found


def column_of(field: DescribedField) -> StructField:
    """A field as a column."""
    return StructField(field.name, TYPES[field.type], True, {"comment": comment_of(field)})


ATTEMPT_TYPE = StructType([column_of(field) for field in ATTEMPT])


def attempt_value(attempt: Struct) -> dict[str, Any]:
    """An attempt as Arrow takes it."""
    return {field.name: value_of(field, attempt) for field in ATTEMPT}
