"""A job's options as columns of tables, of those that are kept with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

import pyarrow as pa
from msgspec import Struct

from ..core.archive_record import ArchiveRecord
from ..core.state import JobRecord
from ..model.fields import DescribedField
from ..model.job_options import OPTIONS, linked
from .view_columns import MOMENT, comment_of

SHOWN: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int32(),
    float: pa.int64(),  # in milliseconds
    datetime: MOMENT,
    dict: pa.map_(pa.string(), pa.string()),
}


class OptionColumn(Struct, frozen=True):
    """A column of an option that is kept with the job."""

    option: DescribedField
    name: str
    type: pa.DataType
    comment: str

    def values(self, rows: Sequence[JobRecord | ArchiveRecord]) -> list[Any]:
        """The column of some rows."""
        if self.name == "batch" or self.option.type is dict:
            return list(map(self.value, rows))
        return list(map(attrgetter(self.option.column), rows))

    def value(self, row: JobRecord | ArchiveRecord) -> Any:
        """What a row has in it."""
        if self.name == "batch":
            return linked(row, "batch")
        found = getattr(row, self.option.column)
        return list(dict(found or ()).items()) if self.option.type is dict else found  # as Arrow takes a map


def _kept() -> Iterator[OptionColumn]:
    for option in OPTIONS.values():
        if option.column in ArchiveRecord.__struct_fields__:
            in_ms = option.type is float
            name = option.column if in_ms else option.name
            comment = comment_of(option) + (", milliseconds" if in_ms else "")
            yield OptionColumn(option, name, SHOWN[option.type], comment)


KEPT = tuple(_kept())
