"""``spark.read.format("osqueue")``: live jobs as rows, as of one commit of each shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from osqueue import Queue
from osqueue.commit.writer import HEAD
from osqueue.objects.layout import root_of
from osqueue.spark import register
from osqueue.stores.base import Found, Get, Put


@pytest.fixture
def place(spark: Any, tmp_path: Path) -> dict[str, str]:
    register(spark)
    return {"address": f"file://{tmp_path}/jobs?fsync=off", "queue": "emails"}


def connect(place: dict[str, str]) -> Queue[Any]:
    return Queue.connect(place["address"], place["queue"])


def listed(q: Queue[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    cursor = None
    while True:
        jobs, cursor = q.jobs(limit=1_000, cursor=cursor)
        found.update((job.job_id, job) for job in jobs if job.finished_at is None)
        if cursor is None:
            return found


def test_a_read_tells_of_every_live_job_what_the_queue_does(spark: Any, place: dict[str, str]) -> None:
    q = connect(place)
    q.configure(shards=2, backoff_base=3_600)
    for at in range(2):  # a call goes to one shard
        q.enqueue("x" * 3_000, id=f"order-{at}", max_attempts=1, priority=0)
    for _ in range(2):
        q.enqueue_many({"payload": n, "priority": 1 + n % 2, "kind": f"k{n % 3}"} for n in range(1_100))
        q.enqueue_many({"payload": n, "delay": 600 + n, "max_attempts": 1} for n in range(50))
    while len(q.jobs("failed")[0]) < 2:  # a claim is of one shard, whichever: until both orders are dead
        for lease in q.claim(15):
            lease.fail(ValueError("broken"))
    q.claim(20, worker="w1")
    q.complete_many(q.claim(5))
    wanted = listed(q)
    rows = spark.read.format("osqueue").options(**place).load().collect()
    assert len(rows) == len(wanted)
    for row in rows:
        job = wanted.pop(row.job_id)
        for name in (
            "state",
            "id",
            "priority",
            "attempt",
            "max_attempts",
            "payload_bytes",
            "error",
            "run",
            "worker",
        ):
            assert row[name] == getattr(job, name), name
        assert row.kind == (job.kind or "")
        for name in ("enqueued_at", "due_at", "started_at", "heartbeat_at", "expires_at"):
            told = row[name] and row[name].timestamp()
            assert told == (getattr(job, name) and getattr(job, name).timestamp()), name
        assert row.finished_at is row.why is row.result_bytes is None
        assert [(each.run, each.outcome, each.error_type, each.error) for each in row.attempts] == [
            (each.run, each.outcome, each.error_type, each.error) for each in job.attempts
        ]
    assert wanted == {}
    assert {row.state for row in rows} == {"queued", "processing", "scheduled", "failing", "failed"}
    assert sorted(row.payload for row in rows if row.id) == ['"' + "x" * 3_000 + '"'] * 2
    assert {row.shard for row in rows} == {0, 1}


def test_a_read_shows_one_commit_while_others_go_on(spark: Any, place: dict[str, str]) -> None:
    q = connect(place)
    q.enqueue_many({"payload": n} for n in range(5_000))
    frame = spark.read.format("osqueue").options(**place).load()
    address, name = place["address"], place["queue"]

    def disturb(batches: Any) -> Any:  # while a task reads, others claim, finish and enqueue
        from osqueue import Queue

        other = Queue.connect(address, name)
        for batch in batches:
            other.complete_many(other.claim(500))
            other.enqueue_many({"payload": "new"} for _ in range(2_000))
            yield batch

    seen = frame.mapInArrow(disturb, frame.schema).select("payload").collect()
    assert sorted(int(row.payload) for row in seen) == list(range(5_000))
    assert q.stats()["queued"] >= 6_500
    assert frame.filter("payload = '\"new\"'").count() > 0  # the next action takes a snapshot of its own


def test_columns_and_states_can_be_chosen(spark: Any, place: dict[str, str]) -> None:
    q = connect(place)
    q.enqueue_many({"payload": n} for n in range(2_000))
    q.claim(3, worker="w1")
    read = spark.read.format("osqueue").options(**place)
    assert (
        read.schema("worker string, state string").option("state", "processing").load().collect()
        == [("w1", "processing")] * 3
    )
    bare = spark.read.format("osqueue").options(**place, payload="false", state="queued, failed").load()
    assert bare.count() == 1_997
    assert bare.filter("payload is not null").count() == 0


def test_large_payloads_are_cut_into_batches_by_their_bytes_and_small_ones_by_their_number() -> None:
    from osqueue.core.rows import BodyRef
    from osqueue.core.state import JobRecord
    from osqueue.objects.snapshot import LiveJob
    from osqueue.spark.columns import BATCH_ROWS
    from osqueue.spark.live import cut

    def lives(*sizes: int) -> list[LiveJob]:
        return [LiveJob("queued", JobRecord(bytes(16), BodyRef("bodies/x", 0, size, 0), 0)) for size in sizes]

    assert [len(each) for each in cut(lives(40, 40, 40, 300, 10), 100)] == [2, 1, 1, 1]
    assert [len(each) for each in cut(lives(*[1] * (BATCH_ROWS + 1)), 1_000_000)] == [BATCH_ROWS, 1]
    assert [len(each) for each in cut(lives(*[1_000] * 30), None)] == [30]
    assert list(cut([], 100)) == []


def test_a_head_that_cannot_be_read_is_told_by_name_and_a_newer_one_too(
    spark: Any, place: dict[str, str]
) -> None:
    connect(place).enqueue(1)
    store, key = connect(place).store, root_of(place["queue"], 0) + HEAD
    kept = store.get(Get(key))
    assert isinstance(kept, Found)
    good = kept.body
    for at, said in ((30, "the head fails its checksum"), (20, "has format .*Upgrade osqueue")):
        store.put(Put(key, good[:at] + bytes([good[at] ^ 0x7F]) + good[at + 1 :]))
        with pytest.raises(Exception, match=said):
            spark.read.format("osqueue").options(**place).load().collect()
        frame = spark.range(3).selectExpr("named_struct('n', id) payload")
        with pytest.raises(Exception, match=said):
            frame.write.format("osqueue").options(**place).mode("append").save()
    store.put(Put(key, good))
    assert spark.read.format("osqueue").options(**place).load().count() == 1


def test_a_queue_that_is_not_there_yet_has_no_rows(spark: Any, place: dict[str, str]) -> None:
    assert spark.read.format("osqueue").options(**place).load().collect() == []


def test_a_wrong_option_is_told_by_spark_with_the_remedy(spark: Any, place: dict[str, str]) -> None:
    with pytest.raises(
        Exception, match=r"quue: read has no such option; it takes address, queue, state, payload"
    ):
        spark.read.format("osqueue").options(**place, quue="x").load().collect()
