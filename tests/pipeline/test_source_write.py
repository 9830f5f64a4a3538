"""``df.write.format("osqueue")``: everything visible in one commit, or nothing, whatever happens to the tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from osqueue import NotSupported, Queue
from osqueue.spark import OsqueueDataSource, register
from osqueue.spark.writer import BulkDataSourceWriter

PAYLOAD = "named_struct('n', id, 'pad', repeat('x', 2000))"  # over 1 KB: staged long before the task's end


@pytest.fixture
def place(spark: Any, tmp_path: Path) -> dict[str, str]:
    register(spark)
    return {"address": f"file://{tmp_path}/jobs?fsync=off", "queue": "emails"}


def connect(place: dict[str, str]) -> Queue[Any]:
    return Queue.connect(place["address"], place["queue"])


def write(frame: Any, place: dict[str, str], name: str = "osqueue", **options: str) -> None:
    frame.write.format(name).options(**place, **options).mode("append").save()


def numbers(place: dict[str, str]) -> list[int]:
    """The payloads of all queued jobs, by claiming them."""
    q = connect(place)
    found: list[int] = []
    while leases := q.claim(1_000):
        found.extend(lease.payload["n"] for lease in leases)
        q.complete_many(leases)
    return sorted(found)


def commits(place: dict[str, str]) -> int:
    return int(connect(place).stats()["commits"])


def staged(tmp_path: Path) -> int:
    return sum(path.is_file() for path in tmp_path.rglob("bodies/*"))


def test_twenty_thousand_rows_become_visible_in_one_commit(spark: Any, place: dict[str, str]) -> None:
    connect(place).enqueue({"n": -1})
    before = commits(place)
    seen = Path(place["address"].removeprefix("file://").partition("?")[0]) / ".seen"

    class Watched(OsqueueDataSource):  # defined here, so that it is pickled by value
        @classmethod
        def name(cls) -> str:
            return "osqueue_watched"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            from osqueue.spark import options

            class Writer(BulkDataSourceWriter):
                def commit(self, messages: Any) -> None:
                    from osqueue import Queue

                    q = Queue.connect(place["address"], place["queue"])
                    stats = q.stats()
                    super().commit(messages)
                    after = q.stats()
                    told = [stats["queued"], stats["commits"], after["queued"], after["commits"]]
                    seen.write_text(" ".join(map(str, told)))

            return Writer(options.write_options(self.options), schema, overwrite)

    spark.dataSource.register(Watched)
    frame = spark.range(20_000, numPartitions=5).selectExpr(
        "named_struct('n', id) payload", "int(id % 3) priority", "concat('k', id % 2) kind"
    )
    write(frame, place, "osqueue_watched")
    assert seen.read_text() == f"1 {before} 20001 {before + 1}"
    assert numbers(place) == list(range(-1, 20_000))


def test_a_task_that_fails_once_leaves_exactly_one_copy(
    spark: Any, place: dict[str, str], tmp_path: Path
) -> None:
    marker = tmp_path / "failed"

    def fail_once(batches: Any) -> Any:
        from pyspark import TaskContext

        for at, batch in enumerate(batches):
            if at == 8 and TaskContext.get().partitionId() == 1 and not marker.exists():
                marker.touch()
                raise RuntimeError("this task fails once")
            yield batch

    frame = spark.range(2_000, numPartitions=2).selectExpr(f"{PAYLOAD} payload")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        write(frame.mapInArrow(fail_once, frame.schema), place)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert marker.exists()
    assert staged(tmp_path) > 20  # one for each batch of 100, and those of the task that failed
    assert numbers(place) == list(range(2_000))


def test_a_worker_killed_after_it_staged_everything_leaves_exactly_one_copy(
    spark: Any, place: dict[str, str], tmp_path: Path
) -> None:
    marker = tmp_path / "killed"

    class Killed(OsqueueDataSource):
        @classmethod
        def name(cls) -> str:
            return "osqueue_killed"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            from osqueue.spark import options

            class Writer(BulkDataSourceWriter):
                def write(self, iterator: Any) -> Any:
                    message = super().write(iterator)
                    if not marker.exists():
                        marker.touch()
                        os.kill(os.getpid(), signal.SIGKILL)
                    return message

            return Writer(options.write_options(self.options), schema, overwrite)

    spark.dataSource.register(Killed)
    write(spark.range(500, numPartitions=1).selectExpr(f"{PAYLOAD} payload"), place, "osqueue_killed")
    assert marker.exists()
    assert staged(tmp_path) == 2  # those of the killed worker, and those that count
    assert numbers(place) == list(range(500))


def test_a_write_that_fails_leaves_nothing_visible(spark: Any, place: dict[str, str], tmp_path: Path) -> None:
    connect(place).enqueue({"n": -1})
    before = commits(place)
    frame = spark.range(4_000, numPartitions=2).selectExpr(
        f"{PAYLOAD} payload", "int(if(id = 3999, 12, 5)) priority"
    )
    with pytest.raises(Exception, match="priority: 12 is not a whole number from 0 to 9"):
        write(frame, place, batch_id="bad")
    assert staged(tmp_path) > 0
    assert commits(place) == before
    assert numbers(place) == [-1]
    write(spark.range(10).selectExpr(f"{PAYLOAD} payload"), place, batch_id="bad")  # it never happened
    assert numbers(place) == list(range(10))


def test_a_second_run_of_a_batch_enqueues_nothing(spark: Any, place: dict[str, str]) -> None:
    frame = spark.range(3_000, numPartitions=3).selectExpr("named_struct('n', id) payload")
    for _ in range(2):
        write(frame, place, batch_id="2026-11-21")
    assert connect(place).stats()["queued"] == 3_000
    write(frame, place, batch_id="2026-11-22")
    assert connect(place).stats()["queued"] == 6_000


def test_the_micro_batches_of_a_stream_count_once_each(
    spark: Any, place: dict[str, str], tmp_path: Path
) -> None:
    spark.range(1_000).selectExpr("id").write.parquet(f"{tmp_path}/in")
    failures = iter([True])

    def enqueue(frame: Any, number: int) -> None:
        jobs = frame.selectExpr("named_struct('n', id) payload")
        write(jobs, place, batch_id=f"orders-{number}")
        if next(failures, False):
            raise RuntimeError("after the commit, before Spark knows")

    def run() -> None:
        stream = spark.readStream.schema("id bigint").parquet(f"{tmp_path}/in")
        query = stream.writeStream.foreachBatch(enqueue).option("checkpointLocation", f"{tmp_path}/at")
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="after the commit"):
        run()
    run()
    assert numbers(place) == list(range(1_000))


def test_rows_are_spread_over_the_shards_of_a_queue(spark: Any, place: dict[str, str]) -> None:
    q = connect(place)
    q.configure(shards=3)
    write(spark.range(600, numPartitions=6).selectExpr("named_struct('n', id) payload"), place, batch_id="b")
    rows = spark.read.format("osqueue").options(**place).load().groupBy("shard").count().collect()
    assert sorted(map(tuple, rows)) == [(0, 200), (1, 200), (2, 200)]
    assert numbers(place) == list(range(600))


def test_a_map_of_strings_becomes_headers_and_is_read_as_one(spark: Any, place: dict[str, str]) -> None:
    columns = ("named_struct('n', id) payload", "if(id = 0, null, map('tenant', concat('t', id))) headers")
    write(spark.range(3).selectExpr(*columns), place)
    q = connect(place)
    assert {lease.payload["n"]: lease.headers for lease in q.claim(2)} == {0: {}, 1: {"tenant": "t1"}}
    rows = spark.read.format("osqueue").options(**place).load().select("headers").collect()
    assert sorted(str(row.headers) for row in rows) == ["{'tenant': 't1'}", "{'tenant': 't2'}", "{}"]


def test_an_empty_frame_enqueues_nothing(spark: Any, place: dict[str, str]) -> None:
    write(spark.range(0).selectExpr("named_struct('n', id) payload"), place)
    assert connect(place).stats()["queued"] == 0


def test_over_s3_a_write_a_read_and_a_second_run_do_the_same(
    spark: Any, s3_endpoint: str, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ):  # workers have the session's, which began before
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    register(spark)
    place = {"address": f"s3://{s3_bucket}/jobs?endpoint={s3_endpoint}&region=us-east-1", "queue": "emails"}
    frame = spark.range(3_000, numPartitions=2).selectExpr(
        "named_struct('n', id, 'pad', if(id % 500 = 0, repeat('x', 2000), '')) payload", "id % 10 = 9 late"
    )
    frame = frame.selectExpr("payload", "if(late, 3600, null) delay")
    for _ in range(2):
        write(frame, place, batch_id="one")
    stats = connect(place).stats()
    assert (stats["queued"], stats["scheduled"]) == (2_700, 300)
    rows = spark.read.format("osqueue").options(**place).load()
    sums = rows.selectExpr("get_json_object(payload, '$.n') n", "payload_bytes").selectExpr(
        "count(distinct n) n", "max(payload_bytes) most"
    )
    assert sums.collect()[0].n == 3_000
    assert sums.collect()[0].most > 2_000


# ── Streams ──────────────────────────────────────────────────────────────────
class Stream:
    """A stream of numbers into a queue, which begins again from its checkpoint."""

    def __init__(self, spark: Any, place: dict[str, str], folder: Path) -> None:
        self.spark, self.place, self.folder = spark, place, folder

    def feed(self, start: int, end: int) -> None:
        self.spark.range(start, end, numPartitions=2).write.mode("append").parquet(f"{self.folder}/in")

    def run(self, **options: str) -> None:
        rows = (
            self.spark.readStream.schema("id bigint")
            .option("maxFilesPerTrigger", 2)
            .parquet(f"{self.folder}/in")
        )
        sink = rows.selectExpr("named_struct('n', id) payload").writeStream.format("osqueue")
        sink = sink.options(**self.place, **options).option("checkpointLocation", f"{self.folder}/at")
        query = sink.queryName("numbers").trigger(availableNow=True).start()
        query.awaitTermination()

    def forget_last(self) -> None:
        """As if Spark had died after the last micro-batch was attached and before it noted that."""
        commits = sorted((self.folder / "at/commits").glob("[0-9]*"), key=lambda path: int(path.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


def test_the_micro_batches_of_a_stream_become_jobs_once_however_often_they_are_replayed(
    spark: Any, place: dict[str, str], tmp_path: Path
) -> None:
    stream = Stream(spark, place, tmp_path / "stream")
    stream.feed(0, 100)
    stream.feed(100, 200)
    stream.run()
    assert connect(place).stats()["queued"] == 200
    jobs, _ = connect(place).jobs(limit=1_000)
    assert (
        len({job.enqueued_at for job in jobs}) == 2
    )  # each micro-batch has a plan of its own, however long it runs
    stream.forget_last()
    stream.feed(200, 300)
    stream.run()
    assert numbers(place) == list(range(300))
    receipts = [path for path in tmp_path.rglob("batches/emails/*") if path.is_file()]
    assert len(receipts) == 3


def test_a_stream_with_another_checkpoint_is_another_stream(
    spark: Any, place: dict[str, str], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        stream = Stream(spark, place, tmp_path / name)
        stream.feed(0, 50)
        stream.run()
    assert numbers(place) == sorted([*range(50), *range(50)])


def test_a_micro_batch_with_a_bad_row_leaves_nothing_and_stops_the_stream(
    spark: Any, place: dict[str, str], tmp_path: Path
) -> None:
    stream = Stream(spark, place, tmp_path / "stream")
    stream.feed(0, 50)
    with pytest.raises(Exception, match="batch_id: a stream has one for each micro-batch"):
        stream.run(batch_id="mine")
    assert connect(place).stats()["queued"] == 0
    stream.run()
    assert numbers(place) == list(range(50))


def test_a_micro_batch_without_rows_writes_nothing_and_one_of_an_unknown_stream_is_refused(
    place: dict[str, str], tmp_path: Path
) -> None:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    source = OsqueueDataSource(dict(place))
    writer = source.streamWriter(StructType.fromDDL("payload string"), overwrite=False)
    empty, one = (
        pa.RecordBatch.from_pydict({"payload": rows}, pa.schema([("payload", pa.string())]))
        for rows in ([], ["1"])
    )
    writer.commit([writer.write(iter([empty]))], 0)
    assert not list(tmp_path.rglob("batches"))
    with pytest.raises(NotSupported, match="writeStream: this Spark does not tell"):
        writer.commit([writer.write(iter([one]))], 1)


def test_of_two_attempts_of_one_task_only_the_one_that_spark_names_counts(place: dict[str, str]) -> None:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL("payload string")
    writer = OsqueueDataSource({**place, "batch_id": "b"}).writer(schema, overwrite=False)
    rows = pa.RecordBatch.from_pydict({"payload": [f'{{"n": {n}}}' for n in range(500)]})
    _, second = (
        writer.write(iter([rows])) for _ in range(2)
    )  # speculative execution runs both to their ends
    writer.commit([second])
    assert numbers(place) == list(range(500))


def test_a_write_goes_on_when_an_executor_is_killed_and_its_bulk_joins_once(tmp_path: Path) -> None:
    program = Path(__file__).with_name("killed_executor.py")
    root = program.parents[2]
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["killed"]
    assert told["executors"] >= 2  # who was killed, and who took over
    assert told["bodies"] > 4  # one of each of the four tasks, and of those that were lost
    assert told["commits"] == 1
    assert told["each once"]
