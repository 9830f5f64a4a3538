"""Archives with payloads and results: tables leave them out, the data source of Spark tells the payloads."""

from __future__ import annotations

from pyspark.sql.types import StructType

from osqueue.pipeline.engines.base import Engine
from osqueue.pipeline.tables import ATTEMPTS, JOBS
from osqueue.spark.columns import SCHEMA, ArrowBatcher
from tests.pipeline.past import Archive, job, jobs, read, run

SECRET = "abracadabra"


def test_tables_of_records_with_and_without_payloads_are_the_same(engine: Engine, archive: Archive) -> None:
    whole = job(1, 8.9, payload=f'"{SECRET}"', result=f'"{SECRET}"', result_codec="json")
    left = job(2, 8.9, left_out={"payload": "too large"})
    archive.write(9, "00-a", [whole, job(3, 8.9), left])
    assert run(engine, archive).jobs == 3
    assert [number for number, *_ in jobs(archive)] == [1, 2, 3]
    for table in (JOBS, ATTEMPTS):
        assert SECRET not in str(read(archive.tables, table))
    files = [path.read_bytes() for path in archive.tables.rglob("*") if path.is_file()]
    assert files
    assert not any(SECRET.encode() in each for each in files)


def test_the_payload_of_a_finished_job_is_a_column_where_the_archive_has_it() -> None:
    told = [
        job(1, 8.9, payload='{"n":1}'),
        job(2, 8.9, payload="gaFuAQ==", codec="msgpack"),
        job(3, 8.9, payload="AA==", codec="own"),
        job(4, 8.9),
    ]
    batch = ArrowBatcher(StructType([SCHEMA["payload"]])).of_finished(told)
    assert batch.column("payload").to_pylist() == ['{"n":1}', '{"n":1}', None, None]
