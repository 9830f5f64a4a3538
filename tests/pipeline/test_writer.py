"""Which shard the rows of a task go to, and what a write without rows leaves."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import StructType  # noqa: E402

from osqueue import Queue  # noqa: E402
from osqueue.spark import OsqueueDataSource, register  # noqa: E402
from osqueue.spark.writer import RowStager, StagedRows  # noqa: E402

pytestmark = pytest.mark.usefixtures("spark")  # DDL is read by a session
SHARDS = 4


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    return {"address": f"file://{tmp_path}/jobs?fsync=off", "queue": "emails"}


def queue(place: dict[str, str]) -> Queue[Any]:
    return Queue.connect(place["address"], place["queue"])


def writer(place: dict[str, str], kind: str = "writer", **options: str) -> Any:
    source = OsqueueDataSource({**place, **options})
    return getattr(source, kind)(StructType.fromDDL("payload int"), overwrite=False)


def staged(stager: RowStager, payloads: Sequence[int]) -> StagedRows:
    """What one attempt of a task answers, which has the writer from the driver as bytes."""
    column = pa.array(payloads, pa.int32())
    batch = pa.RecordBatch.from_arrays([column], names=["payload"])
    sent: RowStager = pickle.loads(pickle.dumps(stager))  # noqa: S301 - its own
    answer = sent.write(iter([batch]))
    assert isinstance(answer, StagedRows)
    return answer


def write(place: dict[str, str], payloads: Sequence[int], **options: str) -> None:
    bulk = writer(place, **options)
    bulk.commit([staged(bulk, payloads)])


def batches(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("batches/emails/*") if path.is_file()]


# ── Shards ───────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_writes_of_one_partition_go_to_all_shards(place: dict[str, str], kind: str) -> None:
    queue(place).configure(shards=SHARDS)
    shards = set()
    for _ in range(60):  # one of four shards is missed by all of them in 1 of 8 million runs
        answer = staged(writer(place, kind), [1])
        assert answer.staged is not None
        shards.add(answer.staged.shard)
    assert shards == set(range(SHARDS))


def test_every_attempt_of_a_task_goes_to_the_same_shard(place: dict[str, str]) -> None:
    queue(place).configure(shards=SHARDS)
    for _ in range(8):
        bulk = writer(place)
        assert (
            len({answer.staged.shard for answer in (staged(bulk, [1]) for _ in range(3)) if answer.staged})
            == 1
        )


# ── Writes without rows ──────────────────────────────────────────────────────
def test_a_batch_without_rows_is_not_decided_and_a_later_run_enqueues_its_own(
    place: dict[str, str], tmp_path: Path
) -> None:
    write(place, [], batch_id="2026-11-21T10")
    assert not batches(tmp_path)
    write(place, [1, 2, 3], batch_id="2026-11-21T10")
    write(place, [1, 2, 3], batch_id="2026-11-21T10")
    write(place, [], batch_id="2026-11-21T10")
    assert queue(place).stats()["queued"] == 3
    assert len(batches(tmp_path)) == 1


def test_a_frame_without_rows_leaves_the_batch_to_a_later_one(spark: Any, place: dict[str, str]) -> None:
    register(spark)
    frames = spark.range(0), spark.range(5), spark.range(7)
    for frame in frames:
        jobs = frame.selectExpr("struct(id) AS payload").write.format("osqueue")
        jobs.options(**place, batch_id="b").mode("append").save()
    assert queue(place).stats()["queued"] == 5


def test_a_run_without_rows_finishes_what_another_has_decided_meanwhile(
    place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from osqueue.bulk.receipts import BulkReceipts

    empty, other = writer(place, batch_id="b"), writer(place, batch_id="b")
    answer = staged(other, [1, 2])
    with monkeypatch.context() as dying:
        dying.setattr(BulkReceipts, "settle", lambda *_: pytest.fail("it dies once the batch is decided"))
        with pytest.raises(pytest.fail.Exception):
            other.commit([answer])
    assert queue(place).stats()["queued"] == 0
    empty.commit([staged(empty, [])])
    assert queue(place).stats()["queued"] == 2
