"""The tables and the archive as definitions for Athena, and as inputs for Glue: from the columns that ``tables`` has.

Partitions are projected, so nobody has to add them. Of a queue's name nothing is known but those that are given:
without any, a query has to say ``WHERE queue = '…'``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from ..core.archive_record import ArchiveRecord, AttemptRecord
from ..errors import NotSupported, Rejected
from ..model.validation import queue_name
from ..objects.archive import ROOT
from ..stores.address import archive_of
from .tables import PARTITIONS, TABLES, TableColumn
from .view_columns import list_of, sql_type

HOURS = (*PARTITIONS, TableColumn("hour", pa.int32(), "the hour, 0 to 23, UTC"))  # the archive's folders
DAYS = "NOW-3YEARS,NOW"  # what a query looks through that names no days
_COLUMNS: dict[Any, pa.DataType] = {
    int: pa.int64(),
    str: pa.string(),
    str | None: pa.string(),
    dict[str, str]: pa.map_(pa.string(), pa.string()),
}
_LEASES = list_of((each.encode_name, _COLUMNS[each.type]) for each in msgspec.structs.fields(AttemptRecord))
_COLUMNS[tuple[AttemptRecord, ...]] = _LEASES


class StorageFormat(Struct, frozen=True):
    """How Athena reads files."""

    serde: str
    input: str
    output: str = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"


PARQUET = StorageFormat(
    "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
)
JSON_LINES = StorageFormat(
    "org.apache.hive.hcatalog.data.JsonSerDe", "org.apache.hadoop.mapred.TextInputFormat"
)


class CatalogTable(Struct, frozen=True):
    """One table as a catalogue has it."""

    name: str
    location: str  # its folder, with a slash at the end
    columns: tuple[TableColumn, ...]
    partitions: tuple[TableColumn, ...]
    format: StorageFormat
    properties: dict[str, str]


def catalogue(tables: str, store: str | None = None, queues: Sequence[str] = ()) -> Iterator[CatalogTable]:
    """All tables below an address, and the archive of a store. Raises Rejected."""
    root, names = _bucket(tables, "tables"), tuple(map(queue_name, queues))
    for table in TABLES:
        location = f"{root}/{table.name}/"
        properties = _projected(location, PARTITIONS, names)
        yield CatalogTable(table.name, location, table.columns, PARTITIONS, PARQUET, properties)
    if store is not None:
        location = f"{_bucket(archive_of(store) or store, 'store')}/{ROOT}"
        properties = _projected(location, HOURS, names)
        yield CatalogTable("archive", location, tuple(archive_columns()), HOURS, JSON_LINES, properties)


def _bucket(address: str, field: str) -> str:
    if not address.startswith("s3://"):
        raise NotSupported(
            f"{field}: Athena reads s3:// only. Give an address like s3://bucket/prefix.", field=field
        )
    place = address.removeprefix("s3://")
    if "?" in place or not place.strip("/") or re.search("[@:]", place.partition("/")[0]):
        raise Rejected(f"{field}: write bucket and prefix alone, like s3://bucket/prefix.", field=field)
    return address.rstrip("/")


def archive_columns() -> Iterator[TableColumn]:
    """The columns of the archive. What has its default is left out of a record, and null."""
    for field in msgspec.structs.fields(ArchiveRecord):
        default = "" if field.default in (msgspec.NODEFAULT, None, "", ()) else f"null: {field.default}"
        yield TableColumn(field.encode_name, _COLUMNS[field.type], default)


def _projected(location: str, partitions: Sequence[TableColumn], queues: Sequence[str]) -> dict[str, str]:
    """How a query knows which folders there are."""
    listed = {"projection.queue.type": "enum", "projection.queue.values": ",".join(queues)}
    hours = {
        "projection.hour.type": "integer",
        "projection.hour.range": "0,23",
        "projection.hour.digits": "2",
    }
    folders = "/".join(f"{column.name}=${{{column.name}}}" for column in partitions)
    return {
        "projection.enabled": "true",
        **(listed if queues else {"projection.queue.type": "injected"}),
        "projection.date.type": "date",
        "projection.date.format": "yyyy-MM-dd",
        "projection.date.range": DAYS,
        **(hours if any(column.name == "hour" for column in partitions) else {}),
        "storage.location.template": f"{location}{folders}",
    }


# ── As text ──────────────────────────────────────────────────────────────────
def athena(table: CatalogTable, database: str) -> str:
    """A definition for Athena."""
    properties = ",\n".join(
        f"  {_quoted(name)} = {_quoted(value)}" for name, value in table.properties.items()
    )
    return (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS `{database}`.`{table.name}` (\n{_columns(table.columns)}\n)\n"
        f"PARTITIONED BY (\n{_columns(table.partitions)}\n)\n"
        f"ROW FORMAT SERDE {_quoted(table.format.serde)}\n"
        f"STORED AS INPUTFORMAT {_quoted(table.format.input)}\n"
        f"OUTPUTFORMAT {_quoted(table.format.output)}\n"
        f"LOCATION {_quoted(table.location)}\n"
        f"TBLPROPERTIES (\n{properties}\n);"
    )


def _columns(columns: Sequence[TableColumn]) -> str:
    return ",\n".join(
        f"  `{column.name}` {sql_type(column.type)}"
        + (f" COMMENT {_quoted(column.comment)}" if column.comment else "")
        for column in columns
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def glue(table: CatalogTable) -> dict[str, Any]:
    """A ``TableInput`` for Glue."""

    def columns(of: Sequence[TableColumn]) -> list[dict[str, str]]:
        return [
            {"Name": each.name, "Type": sql_type(each.type), "Comment": each.comment[:255]} for each in of
        ]

    return {
        "Name": table.name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"EXTERNAL": "TRUE", **table.properties},
        "PartitionKeys": columns(table.partitions),
        "StorageDescriptor": {
            "Columns": columns(table.columns),
            "Location": table.location,
            "InputFormat": table.format.input,
            "OutputFormat": table.format.output,
            "SerdeInfo": {"SerializationLibrary": table.format.serde},
        },
    }
