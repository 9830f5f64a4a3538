"""Definitions for Athena and Glue: every column of every table, and of what a record of the archive holds."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec import Struct

from osqueue.cli.app import app
from osqueue.core.archive_record import ArchiveRecord, AttemptRecord, encode_part
from osqueue.errors import NotSupported, Rejected
from osqueue.objects.archive import ROOT
from osqueue.pipeline import catalog
from osqueue.pipeline.tables import PARTITIONS, TABLES
from osqueue.pipeline.view_columns import sql_type
from tests.pipeline.past import Archive, at

PLACES = ("s3://bucket/tables", "s3://other/jobs")


def test_every_column_is_defined_with_its_type() -> None:
    told = {table.name: catalog.athena(table, "osqueue") for table in catalog.catalogue(PLACES[0])}
    assert told.keys() == {table.name for table in TABLES}
    for table in TABLES:
        head, _, rest = told[table.name].partition("PARTITIONED BY")
        for text, columns in ((head, table.columns), (rest, PARTITIONS)):
            found = re.findall(r"^  `(\w+)` (\S+)(?: COMMENT .*?)?,?$", text, re.MULTILINE)
            assert found == [(column.name, sql_type(column.type)) for column in columns]
        assert f"LOCATION 's3://bucket/tables/{table.name}/'" in rest


def test_partitions_lie_where_the_template_says(archive: Archive) -> None:
    from osqueue.pipeline.archive import partition_of

    tables = {table.name: table for table in catalog.catalogue(*PLACES, queues=["emails", "2024"])}
    folders = {"queue": "emails", "date": "2026-01-05"}
    template = tables["jobs"].properties["storage.location.template"]
    wanted = f"s3://bucket/tables/jobs/{partition_of('emails', at(7))}"
    assert re.sub(r"\$\{(\w+)\}", lambda name: folders[name[1]], template) == wanted
    properties = tables["archive"].properties
    hour = format(7, f"0{properties['projection.hour.digits']}d")
    part = archive.path(7, "part").relative_to(archive.store).as_posix()
    folder = re.sub(
        r"\$\{(\w+)\}",
        lambda name: {**folders, "hour": hour}[name[1]],
        properties["storage.location.template"],
    )
    assert folder == f"s3://other/jobs/{part.rpartition('/')[0]}"
    assert part.startswith(ROOT)
    assert properties["projection.queue.values"] == "emails,2024"
    assert "projection.hour.type" not in tables["jobs"].properties


def test_without_queues_a_query_names_one() -> None:
    for table in catalog.catalogue(*PLACES):
        assert table.properties["projection.queue.type"] == "injected"
        assert "projection.queue.values" not in table.properties


def filled(type: type[Struct], **known: Any) -> Any:
    """A record in which nothing has its default, so that nothing is left out."""
    values = {int: 77, str: "x", str | None: "y", dict[str, str]: {"a": "b"}}
    return type(**{f.name: known.get(f.name) or values[f.type] for f in msgspec.structs.fields(type)})


def test_the_archive_has_the_columns_that_records_have() -> None:
    whole = filled(ArchiveRecord, attempts=(filled(AttemptRecord),))
    record = json.loads(gzip.decompress(encode_part([whole])))
    (archive,) = (table for table in catalog.catalogue(*PLACES) if table.name == "archive")
    types = {column.name: sql_type(column.type) for column in archive.columns}
    assert list(types) == list(record)
    lease_types = re.findall(r"(\w+):(\w+)", types["attempts"])
    assert [name for name, _ in lease_types] == list(record["attempts"][0])
    known = {int: "bigint", str: "string"}
    flat = {name: type for name, type in types.items() if name not in ("attempts", "headers", "left_out")}
    assert flat == {name: known[type(record[name])] for name in flat}
    assert dict(lease_types) == {name: known[type(value)] for name, value in record["attempts"][0].items()}


def test_glue_gets_the_same_as_tables_of_json() -> None:
    ended = CliRunner().invoke(app, ["pipeline", "ddl", PLACES[0], "--store", PLACES[1], "--glue"])
    assert (ended.exit_code, ended.stderr) == (0, "")
    told = {each["Name"]: each for each in map(json.loads, ended.stdout.splitlines())}
    assert told.keys() == {*(table.name for table in TABLES), "archive"}
    for table in TABLES:
        columns = told[table.name]["StorageDescriptor"]["Columns"]
        assert [(each["Name"], each["Type"]) for each in columns] == [
            (column.name, sql_type(column.type)) for column in table.columns
        ]
        assert max(len(each["Comment"]) for each in columns) <= 255  # Glue takes no more


def test_a_database_is_named_in_every_statement() -> None:
    ended = CliRunner().invoke(app, ["pipeline", "ddl", PLACES[0], "--database", "ours"])
    assert ended.exit_code == 0
    assert ended.stdout.count("CREATE EXTERNAL TABLE IF NOT EXISTS `ours`.`") == len(TABLES)
    refused = CliRunner().invoke(app, ["pipeline", "ddl", PLACES[0], "--database", "a`b"])
    assert (refused.exit_code, refused.stdout) == (2, "")


@pytest.mark.parametrize(
    ("places", "error", "field"),
    [
        (("file:///tables",), NotSupported, "tables"),
        (("s3://bucket/tables", "/store"), NotSupported, "store"),
        (("s3://bucket/tables?region=x",), Rejected, "tables"),
        (("s3://",), Rejected, "tables"),
    ],
)
def test_what_athena_cannot_read_is_refused_by_name(
    places: tuple[str, ...], error: type[Rejected], field: str
) -> None:
    with pytest.raises(error) as told:
        list(catalog.catalogue(*places))
    assert told.value.field == field
