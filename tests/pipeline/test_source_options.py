"""What the data source takes and refuses, by name and with the remedy; how rows become jobs."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402

from osqueue import NotSupported, Queue, Rejected  # noqa: E402
from osqueue.spark import OsqueueDataSource  # noqa: E402
from osqueue.spark.columns import SCHEMA, payload_text, wanted  # noqa: E402
from osqueue.spark.writer import BulkDataSourceWriter, StagedRows  # noqa: E402

pytestmark = pytest.mark.usefixtures("spark")  # DDL is read by a session


def source(**options: str) -> OsqueueDataSource:
    return OsqueueDataSource({"address": "file:///tmp/nowhere", "queue": "emails", **options})


def writer(folder: Path, ddl: str, **options: str) -> BulkDataSourceWriter:
    made = OsqueueDataSource({"address": f"file://{folder}?fsync=off", "queue": "q", **options})
    found = made.writer(schema_of(ddl), overwrite=False)
    assert isinstance(found, BulkDataSourceWriter)
    return found


def schema_of(ddl: str) -> StructType:
    return StructType.fromDDL(ddl)


def rows(ddl: str, *values: tuple[Any, ...]) -> Any:
    schema = to_arrow_schema(schema_of(ddl))
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, each, strict=True)) for each in values], schema)


def written(folder: Path, ddl: str, *values: tuple[Any, ...], **options: str) -> Queue[Any]:
    """The queue after a write of one partition."""
    bulk = writer(folder, ddl, **options)
    bulk.commit([bulk.write(iter([rows(ddl, *values)]))])
    return Queue.connect(f"file://{folder}?fsync=off", "q", serializer=options.get("serializer", "json"))


def payloads(q: Queue[Any]) -> list[Any]:
    return [lease.payload for lease in q.claim(1_000)]


# ── Options ──────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"adress": "x"}, "adress", "no such option; it takes address, queue"),
        ({"address": ""}, "address", "Add option('address'"),
        ({"queue": ""}, "queue", "Add option('queue'"),
        ({"queue": "No Queue"}, "queue", "is not a queue name"),
        ({"address": "memory://jobs"}, "address", "Use file:///folder or s3://bucket/prefix"),
        ({"address": "https://api.example.com"}, "address", "Give the store's own address"),
        ({"address": "gcs://bucket"}, "address", "write gs://bucket/prefix in the place of gcs://"),
        ({"address": "s3://bucket?endpiont=x"}, "endpiont", "it takes endpoint, region"),
        ({"path": "somewhere"}, "path", "this source has none"),
        ({"state": "queued,done"}, "state", "'done' is none of queued, processing"),
        ({"payload": "yes"}, "payload", "neither true nor false"),
        ({"batch_id": "x"}, "batch_id", "read has no such option"),
    ],
)
def test_a_read_refuses_an_option_by_its_name(options: dict[str, str], field: str, said: str) -> None:
    with pytest.raises(Rejected) as caught:
        source(**options).reader(SCHEMA)
    assert caught.value.field == field
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"since": "yesterday"}, "since"),
        ({"since": "1914-07-28"}, "since"),
        ({"parts_per_batch": "0"}, "parts_per_batch"),
        ({"parts_per_batch": "some"}, "parts_per_batch"),
        ({"state": "queued"}, "state"),
    ],
)
def test_a_stream_refuses_an_option_by_its_name(options: dict[str, str], field: str) -> None:
    with pytest.raises(Rejected) as caught:
        source(**options).streamReader(SCHEMA)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("ddl", "options", "field", "said"),
    [
        ("n int", {}, "n", "struct(…) AS payload"),
        ("kind string", {}, "payload", "Make one: df.select(struct('*')"),
        ("payload string, id string", {}, "id", "give the write a batch_id"),
        ("payload string, priority string", {}, "priority", "it is string, and has to be a whole number"),
        ("payload string, kind int", {}, "kind", "has to be a string"),
        ("payload string, at timestamp_ntz", {}, "at", "has to be a timestamp"),
        ("payload binary", {}, "serializer", "say what wrote it"),
        ("payload variant", {}, "payload", "to_json(payload)"),
        (
            "payload struct<v variant>",
            {},
            "payload",
            "payload.v: variant is not taken. Write to_json(payload)",
        ),
        ("payload array<variant>", {}, "payload", "payload[]: variant is not taken"),
        ("payload map<string, variant>", {}, "payload", "payload{}: variant is not taken"),
        (
            "payload struct<t interval month>",
            {},
            "payload",
            "payload.t: interval month is not taken. Cast it to string",
        ),
        ("payload map<interval year, int>", {}, "payload", "payload's keys: interval year is not taken"),
        (
            "payload struct<a struct<id int, id int>>",
            {},
            "payload",
            "payload.a.id: it stands there twice. Rename one",
        ),
        ("payload map<struct<a int>, int>", {}, "payload", "payload's keys: struct<a:int> is not taken"),
        ("payload array<map<array<int>, int>>", {}, "payload", "payload[]'s keys: array<int> is not taken"),
        (
            "payload struct<m map<boolean, int>>",
            {},
            "payload",
            "payload.m's keys: boolean is not taken. Make strings",
        ),
        ("payload string", {"serializer": "yaml"}, "serializer", "Use 'json' or 'msgpack'"),
        ("payload string", {"serializer": ""}, "serializer", "1 to 32 characters"),
        ("payload string", {"batch_id": "x" * 257}, "batch_id", "1 to 256 printable"),
        ("payload string", {"batchid": "x"}, "batchid", "it takes address, queue, batch_id, serializer"),
    ],
)
def test_a_write_refuses_columns_and_options_by_name_before_anything_runs(
    ddl: str, options: dict[str, str], field: str, said: str
) -> None:
    with pytest.raises(Rejected) as caught:
        source(**options).writer(schema_of(ddl), overwrite=False)
    assert caught.value.field == field
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"batch_id": "x"}, "batch_id", "one for each micro-batch"),
        (
            {"since": "2026-11-21"},
            "since",
            "writeStream has no such option; it takes address, queue, serializer",
        ),
        ({"serializer": ""}, "serializer", "1 to 32 characters"),
    ],
)
def test_a_streams_sink_refuses_an_option_by_its_name(options: dict[str, str], field: str, said: str) -> None:
    with pytest.raises(Rejected) as caught:
        source(**options, checkpointLocation="/somewhere", queryName="q").streamWriter(
            schema_of("payload string"), overwrite=False
        )
    assert caught.value.field == field
    assert said in str(caught.value)


def test_overwriting_is_refused() -> None:
    with pytest.raises(NotSupported, match=r"outputMode: jobs are only ever added"):
        source().streamWriter(schema_of("payload string"), overwrite=True)
    with pytest.raises(NotSupported, match=r"mode: jobs are only ever added. Use mode\('append'\)"):
        source().writer(schema_of("payload string"), overwrite=True)


def test_a_read_of_columns_that_are_not_there_is_refused() -> None:
    with pytest.raises(Rejected, match="there is no column 'owner'"):
        wanted(schema_of("job_id string, owner string"))
    with pytest.raises(Rejected, match="column 'priority' is int, not string"):
        wanted(schema_of("priority string"))
    assert [column.name for column in wanted(schema_of("state string, job_id string"))] == ["state", "job_id"]


def test_every_column_says_what_it_means() -> None:
    assert all(field.metadata["comment"] for field in SCHEMA)


# ── Payloads ─────────────────────────────────────────────────────────────────
def test_a_string_is_taken_as_the_json_it_holds(tmp_path: Path) -> None:
    q = written(tmp_path, "payload string", ('{"n": 1}',), ('"text"',), ("[1,2]",), (None,))
    assert payloads(q) == [{"n": 1}, "text", [1, 2], None]


def test_a_struct_becomes_json_with_whatever_is_in_it(tmp_path: Path) -> None:
    ddl = (
        "payload struct<a int, b array<struct<c string>>, m map<string, map<string, int>>, d date, t timestamp,"
        " x decimal(9,2)>"
    )
    value = {
        "a": 1,
        "b": [{"c": "é"}, {"c": None}],
        "m": {"k": {"deep": 2}},
        "d": date(2026, 11, 21),
        "t": datetime(2026, 11, 21, 12, tzinfo=UTC),
        "x": Decimal("1.50"),
    }
    (got,) = payloads(written(tmp_path, ddl, (value,)))
    assert got == {
        "a": 1,
        "b": [{"c": "é"}, {"c": None}],
        "m": {"k": {"deep": 2}},
        "d": "2026-11-21",
        "t": "2026-11-21T12:00:00Z",
        "x": "1.50",
    }


@pytest.mark.parametrize(
    ("ddl", "value"), [("payload int", 7), ("payload boolean", True), ("payload double", 0.5)]
)
def test_a_plain_value_is_a_payload_too(tmp_path: Path, ddl: str, value: Any) -> None:
    assert payloads(written(tmp_path, ddl, (value,), (None,))) == [value, None]


def test_bytes_are_taken_as_they_are_under_the_serialisers_name(tmp_path: Path) -> None:
    packed = b"\x81\xa1n\x01"
    q = written(tmp_path, "payload binary", (packed,), serializer="msgpack")
    assert payloads(q) == [{"n": 1}]
    bulk = writer(tmp_path, "payload binary", serializer="mine")
    bulk.commit([bulk.write(iter([rows("payload binary", (b"anything",))]))])
    assert payload_text(b"anything", "mine") is None


def test_json_and_structs_are_packed_where_that_is_wished(tmp_path: Path) -> None:
    q = written(tmp_path, "payload string", ('{"n": 1}',), serializer="msgpack")
    assert payloads(q) == [{"n": 1}]
    q = written(tmp_path, "payload struct<n int>", ({"n": 2},), serializer="msgpack")
    assert payloads(q) == [{"n": 2}]


# ── Rows ─────────────────────────────────────────────────────────────────────
def test_every_column_reaches_the_job_and_null_is_its_default(tmp_path: Path) -> None:
    ddl = "payload string, kind string, priority int, max_attempts bigint, result_ttl double, delay decimal(9,3)"
    q = written(
        tmp_path, ddl, ("1", "welcome", 2, 7, 90.5, Decimal("60.5")), ("2", None, None, None, None, None)
    )
    (plain, full), _ = q.jobs()
    assert (full.kind, full.priority, full.max_attempts, full.state) == ("welcome", 2, 7, "scheduled")
    assert full.due_at is not None
    assert (full.due_at - full.enqueued_at).total_seconds() == 60.5
    assert (plain.kind, plain.priority, plain.max_attempts, plain.state) == (None, 5, 3, "queued")


def test_a_timestamp_tells_when(tmp_path: Path) -> None:
    moment = datetime(2222, 2, 2, 2, 2, 2, 222_000, tzinfo=UTC)
    q = written(
        tmp_path, "payload string, at timestamp", ("1", moment), ("2", datetime(1999, 1, 1, tzinfo=UTC))
    )
    (past, later), _ = q.jobs()
    assert (later.due_at, later.state) == (moment, "scheduled")
    assert past.state == "queued"
    q = written(tmp_path / "numbers", "payload string, at bigint", ("1", 7_956_144_122))
    assert q.jobs()[0][0].due_at == datetime.fromtimestamp(7_956_144_122, UTC)


@pytest.mark.parametrize(
    ("ddl", "value", "said"),
    [
        ("payload string", ("{",), "payload: it is no JSON"),
        ("payload string, priority int", ("1", 12), "priority: 12 is not a whole number from 0 to 9"),
        ("payload string, kind string", ("1", "x" * 65), "kind: "),
        ("payload string, max_attempts int", ("1", 0), "max_attempts: 0 is not"),
        (
            "payload string, result_ttl double",
            ("1", float("nan")),
            "result_ttl: nan is not a number of seconds",
        ),
        ("payload string, delay double", ("1", -1.0), "delay: -1.0 is not a number of seconds"),
        ("payload string, delay int, at bigint", ("1", 5, 5), "at: give either delay or at, not both"),
    ],
)
def test_a_bad_row_fails_the_write_with_its_place_and_its_field(
    tmp_path: Path, ddl: str, value: tuple[Any, ...], said: str
) -> None:
    bulk = writer(tmp_path, ddl)
    good = ("1", *(None for _ in value[1:]))
    with pytest.raises(Rejected) as caught:
        bulk.write(iter([rows(ddl, *[good] * 1_500), rows(ddl, good, value)]))
    assert said in str(caught.value)
    assert "row 1,501 of partition 0; nothing of this write becomes visible" in str(caught.value)
    assert Queue.connect(f"file://{tmp_path}", "q").stats()["queued"] == 0


@pytest.mark.parametrize("more", ["", ", priority int"])
def test_a_value_that_python_does_not_have_fails_the_write_with_its_place(tmp_path: Path, more: str) -> None:
    ddl = f"payload struct<t timestamp>{more}"
    bulk = writer(tmp_path, ddl)
    there = pa.timestamp("us", "America/New_York")  # where the first hours of the year 1 are in the year 0
    moments = pa.array([0, -62_135_596_800_000_000], there)
    columns = [pa.StructArray.from_arrays([moments], ["t"]), pa.array([5, 5], pa.int32())]
    names = ["payload", "priority"] if more else ["payload"]
    batch = pa.RecordBatch.from_arrays(columns[: len(names)], names)
    with pytest.raises(
        Rejected, match=r"^payload: .*OverflowError.*Cast .*\(row 1 of partition 0; nothing"
    ) as told:
        bulk.write(iter([batch]))
    assert told.value.field == "payload"


def test_text_that_is_no_utf_8_fails_the_write_with_its_place(tmp_path: Path) -> None:
    buffers = pa.array([b"1", b"\xff"]).buffers()
    texts = pa.StringArray.from_buffers(2, buffers[1], buffers[2])
    bulk = writer(tmp_path, "payload string")
    with pytest.raises(Rejected, match=r"^payload: .*UnicodeDecodeError.*row 1 of partition 0"):
        bulk.write(iter([pa.RecordBatch.from_arrays([texts], ["payload"])]))


@pytest.mark.parametrize(
    ("codec", "value", "said"),
    [
        ("json", b"{", "json did not write it"),
        ("msgpack", b"\x81", "msgpack did not write it"),
        ("json", None, "it is null"),
    ],
)
def test_bytes_that_the_serialiser_did_not_write_fail_the_write(
    tmp_path: Path, codec: str, value: bytes | None, said: str
) -> None:
    bulk = writer(tmp_path, "payload binary", serializer=codec)
    with pytest.raises(Rejected, match=f"payload: .*{said}"):
        bulk.write(iter([rows("payload binary", (value,))]))


def test_of_a_task_that_runs_twice_only_what_is_handed_to_the_commit_counts(tmp_path: Path) -> None:
    bulk = writer(tmp_path, "payload int")
    batch = rows("payload int", *[(at,) for at in range(2_500)])
    speculative, counted = bulk.write(iter([batch])), bulk.write(iter([batch]))
    assert isinstance(speculative, StagedRows)
    q = Queue.connect(f"file://{tmp_path}?fsync=off", "q")
    assert q.stats()["queued"] == 0
    bulk.commit([counted])
    assert q.stats()["queued"] == 2_500
    got = []
    while leases := q.claim(1_000):
        got.extend(lease.payload for lease in leases)
        q.complete_many(leases)
    assert got == list(range(2_500))


def test_payloads_of_any_serialiser_are_told_as_json_where_they_have_such_a_form() -> None:
    assert payload_text(b'{"n":1}', "json") == '{"n":1}'
    assert json.loads(payload_text(b"\x81\xa1n\xc4\x01x", "msgpack") or "") == {"n": "eA=="}
    assert payload_text(b"\x81\x01\x02", "msgpack") == '{"1":2}'
    assert payload_text(b"\xd4\x05x", "msgpack") is None  # an extension type
    assert payload_text(None, "json") is None
