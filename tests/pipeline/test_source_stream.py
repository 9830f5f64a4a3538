"""``spark.readStream.format("osqueue")``: finished jobs as they are archived, each part once, whatever is restarted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from osqueue import Damaged, Queue
from osqueue.clock import Machine
from osqueue.spark import OsqueueDataSource, register
from osqueue.spark.columns import SCHEMA
from osqueue.spark.tail import PARTITIONS_MAX, TailReader
from osqueue.stores.address import open_store
from osqueue.stores.base import Found, Get, List, Listed, Put
from osqueue.stores.memory import MemoryStore

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Clock(Machine):
    """A machine whose wall clock a test moves."""

    def __init__(self) -> None:
        self.ms = round(NOON.timestamp() * 1000)

    def now_ms(self) -> int:
        return self.ms

    def advance(self, hours: float) -> None:
        self.ms += round(hours * 3_600_000)


class Site:
    """A queue whose jobs are finished and archived when a test says so, and its archive where Spark can read it."""

    def __init__(self, address: str) -> None:
        self.place = {"address": address, "queue": "emails"}
        self.clock = Clock()
        self.memory = MemoryStore(
            self.clock
        )  # a file's time is the machine's own, and a part has to be of its hour
        self.q: Queue[Any] = Queue(self.memory, "emails", machine=self.clock)
        self.store = open_store(address)
        self.done = 0

    def archive(self, jobs: int) -> None:
        """Finish jobs and write one part of them. Their payload bytes tell them apart."""
        for _ in range(jobs):
            self.done += 1
            self.q.enqueue("x" * self.done, kind="k")
        self.q.complete_many(self.q.claim(jobs, worker="w1"))
        self.q.reap()
        listed = self.memory.perform(List("archive/"))
        assert isinstance(listed, Listed)
        for key in set(listed.keys) - set(self.parts()):
            found = self.memory.perform(Get(key))
            assert isinstance(found, Found)
            self.store.perform(Put(key, found.body))

    def parts(self) -> list[str]:
        listed = self.store.perform(List("archive/"))
        assert isinstance(listed, Listed)
        return list(listed.keys)

    def reader(self, **options: str) -> TailReader:
        found = OsqueueDataSource({**self.place, **options}).streamReader(SCHEMA)
        assert isinstance(found, TailReader)
        return found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(f"file://{tmp_path}/jobs?fsync=off")


def flat(lists: Iterable[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(lists))


def names(reader: TailReader, start: Any, end: Any) -> list[str]:
    return [name for each in reader.partitions(start, end) for name in each.names]


def jobs(reader: TailReader, start: Any, end: Any) -> list[int]:
    """The jobs between two offsets, by what tells them apart."""
    sizes = [
        size.as_py() - 2
        for each in reader.partitions(start, end)
        for batch in reader.read(each)
        for size in batch.column("payload_bytes")
    ]
    return sorted(sizes)


# ── Offsets ──────────────────────────────────────────────────────────────────
def test_an_archive_that_is_not_there_yet_has_an_offset_and_no_parts(site: Site) -> None:
    reader = site.reader()
    begin = reader.initialOffset()
    assert reader.latestOffset() == begin == {"before": "", "parts": []}
    assert reader.partitions(begin, begin) == []


def test_every_part_lies_between_exactly_two_offsets_however_long_the_stream_goes_on(site: Site) -> None:
    reader = site.reader()
    offsets = [reader.initialOffset()]
    for at in range(12):
        site.archive(2)
        site.clock.advance((0.3, 1, 7)[at % 3])
        if at % 2:
            offsets.append(reader.latestOffset())
    told = [names(reader, *pair) for pair in itertools.pairwise(offsets)]
    assert flat(told) == site.parts()
    assert all(told)
    found = [jobs(reader, *pair) for pair in itertools.pairwise(offsets)]
    assert sorted(flat(found)) == list(range(1, 25))
    assert len(offsets[-1]["parts"]) < 8  # it does not grow with the archive


def test_the_same_offsets_mean_the_same_parts_to_a_reader_that_has_just_started(site: Site) -> None:
    reader = site.reader()
    site.archive(3)
    first = reader.latestOffset()
    site.clock.advance(2)
    site.archive(4)
    second = reader.latestOffset()
    told = names(reader, first, second)
    site.clock.advance(2)
    site.archive(5)
    fresh = site.reader()
    assert names(fresh, first, second) == told
    assert jobs(fresh, first, second) == [4, 5, 6, 7]
    assert fresh.latestOffset() == reader.latestOffset()


def test_nothing_new_is_the_same_offset(site: Site) -> None:
    site.archive(3)
    reader = site.reader()
    assert reader.latestOffset() == reader.latestOffset() == site.reader().latestOffset()


def test_a_part_that_comes_late_into_an_hour_that_was_read_is_not_missed(site: Site) -> None:
    site.archive(1)
    first_hour = site.parts()[0].rpartition("/")[0]
    site.clock.advance(1)
    site.archive(1)
    reader = site.reader()
    before = reader.latestOffset()
    late = (
        f"{first_hour}/07-0000000000ff-0123456789ab.jsonl.gz"  # of another shard, by a reap that stood still
    )
    data = (site.store.perform(Get(site.parts()[0]))).body  # type: ignore[union-attr]
    site.store.perform(Put(late, data))
    assert names(reader, before, reader.latestOffset()) == [late]


def test_a_stream_begins_at_the_hour_it_is_told(site: Site) -> None:
    for _ in range(3):
        site.archive(2)
        site.clock.advance(1)
    reader = site.reader(since="2026-11-21T13:30:00+00:00")
    assert jobs(reader, reader.initialOffset(), reader.latestOffset()) == [3, 4, 5, 6]
    later = site.reader(since="2026-12-01")
    assert jobs(later, later.initialOffset(), later.latestOffset()) == []


def test_a_long_archive_is_cut_into_not_too_many_partitions(site: Site) -> None:
    for _ in range(PARTITIONS_MAX + 10):
        site.archive(1)
    reader = site.reader()
    cut = reader.partitions(reader.initialOffset(), reader.latestOffset())
    assert len(cut) <= PARTITIONS_MAX
    assert sum(len(each.names) for each in cut) == PARTITIONS_MAX + 10


def test_a_limit_of_parts_lets_a_stream_catch_up_in_steps_the_oldest_first(site: Site) -> None:
    for at in range(7):
        site.archive(1)
        site.clock.advance((0.2, 1, 5)[at % 3])
    reader = site.reader(parts_per_batch="3")
    start, told = reader.initialOffset(), []
    while (end := reader.latestOffset()) != start:
        assert reader.latestOffset() == end  # nothing moves before Spark has asked for the rows
        told.append(names(reader, start, end))
        assert names(site.reader(), start, end) == told[-1]  # whoever is asked, limited or not
        start = end
    assert [len(each) for each in told] == [3, 3, 1]
    assert flat(told) == site.parts()


def test_a_limited_stream_that_is_restarted_goes_on_where_it_stood(site: Site) -> None:
    for _ in range(5):
        site.archive(1)
        site.clock.advance(1)
    reader = site.reader(parts_per_batch="2")
    first = reader.latestOffset()
    fresh = site.reader(parts_per_batch="2")
    assert fresh.partitions(first, first) == []  # how Spark tells it
    assert names(fresh, first, fresh.latestOffset()) == site.parts()[2:4]


def test_a_damaged_part_stops_the_stream_by_name(site: Site) -> None:
    site.archive(1)
    (part,) = site.parts()
    site.store.perform(Put(part, b"not gzip"))
    reader = site.reader()
    with pytest.raises(Damaged, match=part):
        jobs(reader, reader.initialOffset(), reader.latestOffset())


# ── In Spark ─────────────────────────────────────────────────────────────────
# Spark starts a Python process for the source of each query, and waits 10 s for its connection. No setting changes that
# time, and the process needs more of it on a busy machine. The query stops before it has read anything.
CONNECTED_TOO_LATE = "Python worker failed to connect back"
STARTS_MAX = 30


class Consumer:
    """A stream that notes which jobs came in which batch."""

    def __init__(self, spark: Any, site: Site, folder: Path) -> None:
        register(spark)
        self.spark, self.site, self.folder = spark, site, folder
        self.batches: list[list[int]] = []
        self.fail = False

    def take(self, frame: Any, number: int) -> None:
        self.batches.append(sorted(row.payload_bytes - 2 for row in frame.collect()))
        if self.fail:
            self.fail = False
            raise RuntimeError("the consumer fails once")

    def run(self, **options: str) -> None:
        """Take all there is, or with a limit one batch. Start again if the process of the source connected too late."""
        for starts_left in reversed(range(STARTS_MAX)):
            try:
                self.start(**options).awaitTermination()
            except StreamingQueryException as error:
                if CONNECTED_TOO_LATE not in str(error) or not starts_left:
                    raise
            else:
                return

    def start(self, **options: str) -> Any:
        stream = self.spark.readStream.format("osqueue").options(**self.site.place, **options).load()
        sink = stream.writeStream.foreachBatch(self.take).option("checkpointLocation", str(self.folder))
        return sink.trigger(availableNow=True).start()


def test_a_stream_goes_on_from_its_checkpoint_without_loss_or_repeats(
    spark: Any, site: Site, tmp_path: Path
) -> None:
    consumer = Consumer(spark, site, tmp_path / "checkpoint")
    site.archive(5)
    site.clock.advance(1)
    site.archive(5)
    consumer.run()
    assert flat(consumer.batches) == list(range(1, 11))
    site.archive(5)
    site.clock.advance(5)
    site.archive(5)
    consumer.run()
    consumer.run()
    assert Counter(flat(consumer.batches)) == Counter(range(1, 21))


def test_a_limit_holds_over_restarts_and_a_record_that_was_written_twice_comes_twice_in_each_replay(
    spark: Any, site: Site, tmp_path: Path
) -> None:
    consumer = Consumer(spark, site, tmp_path / "checkpoint")
    for _ in range(3):
        site.archive(2)
    (first, *_) = site.parts()
    found = site.store.perform(Get(first))
    assert isinstance(found, Found)
    again = first.replace(
        "/00-", "/00-0"
    )  # a reap died between a part and its commit: the next wrote it with more
    site.store.perform(Put(again, found.body))
    consumer.fail = True
    with pytest.raises(Exception, match="the consumer fails once"):
        consumer.run(parts_per_batch="2")
    for _ in range(3):
        consumer.run(parts_per_batch="2")
    assert [len(batch) for batch in consumer.batches] == [4, 4, 4]
    assert consumer.batches[0] == consumer.batches[1]  # the replay
    assert Counter(flat(consumer.batches[1:])) == Counter([1, 2, 1, 2, 3, 4, 5, 6])


def test_a_batch_whose_consumer_failed_comes_again_as_it_was(spark: Any, site: Site, tmp_path: Path) -> None:
    consumer = Consumer(spark, site, tmp_path / "checkpoint")
    site.archive(5)
    consumer.fail = True
    with pytest.raises(Exception, match="the consumer fails once"):
        consumer.run()
    site.archive(3)  # what comes meanwhile is not part of the batch that is repeated
    consumer.run()
    assert consumer.batches == [[1, 2, 3, 4, 5]] * 2
    consumer.run()
    assert consumer.batches == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [6, 7, 8]]


def test_finished_jobs_come_with_their_timeline_and_fit_together_with_live_ones(
    spark: Any, site: Site, tmp_path: Path
) -> None:
    q = Queue.connect(site.place["address"], "emails")
    q.enqueue("a", kind="k", max_attempts=2)
    q.claim(worker="w1")[0].fail(ValueError("broken"), retry_in=0)
    q.claim(worker="w2")[0].complete()
    q.cancel(q.enqueue("b", delay=60).job_id)
    q.enqueue("c")
    (ended,) = (job for job in q.jobs()[0] if job.state == "completed")
    q.reap()
    consumer = Consumer(spark, site, tmp_path / "checkpoint")
    live = spark.read.format("osqueue").options(**site.place).load()
    rows: list[Any] = []
    consumer.take = lambda frame, number: rows.extend(frame.union(live).collect())  # type: ignore[method-assign]
    consumer.run()
    by_state = {row.state: row for row in rows}
    assert by_state.keys() == {"completed", "cancelled", "queued"}
    done = by_state["completed"]
    assert [(each.run, each.worker, each.outcome) for each in done.attempts] == [
        (1, "w1", "failed"),
        (2, "w2", "completed"),
    ]
    assert (done.attempt, done.max_attempts, done.error) == (2, 2, "ValueError: broken")
    assert done.finished_at.timestamp() == ended.finished_at.timestamp()
    assert by_state["cancelled"].due_at is not None
    assert by_state["queued"].payload == '"c"'
