"""What callers see of a job and of its attempts, as columns of tables: their types, meanings and values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa
from msgspec import Struct

from ..model.fields import DescribedField, described_fields
from ..model.job import Attempt, Job

MOMENT = pa.timestamp("us", tz="UTC")
TYPES: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), datetime: MOMENT}
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


def list_of(fields: Iterable[tuple[str, pa.DataType]]) -> pa.DataType:
    """A list of structures, as Spark names its parts."""
    return pa.list_(pa.field("element", pa.struct(list(fields))))


ATTEMPTS_TYPE = list_of((field.name, TYPES[field.type]) for field in ATTEMPT)


def attempt_value(attempt: Struct) -> dict[str, Any]:
    """An attempt as Arrow takes it."""
    return {field.name: value_of(field, attempt) for field in ATTEMPT}


def sql_type(type: pa.DataType) -> str:
    """A column's type as Spark, Athena and Glue write it."""
    if pa.types.is_list(type):
        return f"array<{sql_type(type.value_type)}>"
    if pa.types.is_struct(type):
        return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in type)}>"
    if pa.types.is_map(type):
        return f"map<{sql_type(type.key_type)},{sql_type(type.item_type)}>"
    return _SQL[type]


_SQL = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    MOMENT: "timestamp",
}
