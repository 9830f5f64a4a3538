"""A job takes the place of the one that waits under its id."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.core import spill
from osqueue.core.archive_record import wants_record
from osqueue.core.encoding import decode_blocks
from osqueue.core.job_ops import (
    CancelJob,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    JobSpec,
    ReplaceJobs,
    Replacement,
    UniqueRule,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import RaiseGcFloor
from osqueue.core.rows import BodyRef
from osqueue.core.state import FinishedJob, State
from osqueue.core.tables import known_until_ms
from simulation.tight import limited
from tests.support.shard import Shard

SMALL = {"READY_BYTES_MAX": 800, "TAIL_BYTES_MAX": 800, "BLOCK_BYTES_MAX": 400}
DEBOUNCE = UniqueRule("waiting", "debounce", max_wait_ms=60_000)


def under(shard: Shard, name: str = "a", **fields: Any) -> JobSpec:
    """A job under an id."""
    return shard.new(**{"client_id": name, "seen": shard.state.seq, **fields})


def swap(shard: Shard, old: CancelJob | bytes, **fields: Any) -> tuple[Code, bytes]:
    """Replace a job; what came of it, and the new key."""
    new = under(shard, **fields)
    evidence = CancelJob(old) if isinstance(old, bytes) else old
    return shard.apply(ReplaceJobs((Replacement(evidence, new),)))[0].code, new.key


def evident(shard: Shard, key: bytes) -> CancelJob:
    """Where a job lies in a segment, as its caller would have read it."""
    spans = [span for lane in shard.state.lanes for span in lane.backlog.spans]
    for span in (*spans, *shard.state.delayed.spans):
        for offset, block in decode_blocks(shard.objects[span.name][span.offset :], span.length, span.name):
            for index, job in enumerate(block.jobs):
                if job.key == key:
                    return CancelJob(key, job, span.name, span.offset + offset, index)
    raise AssertionError("it is in no segment")


def row_of(state: State, key: bytes) -> FinishedJob:
    return next(row for row in state.finished if row.key == key)


def test_the_new_one_stands_where_the_old_one_stood(shard: Shard) -> None:
    first, old, last = shard.enqueue(3)
    shard.now += 5_000
    code, new = swap(shard, old, payload=b"2")
    assert code == Code.QUEUED
    assert shard.drain() == [first, new, last]
    assert shard.state.leases[new].job.payload == b"2"


def test_it_was_enqueued_when_the_first_was_and_counts_those_before(shard: Shard) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0)
    then = shard.now
    for _ in range(3):
        shard.now += 1_000
        _, old = swap(shard, old)
    (lease,) = shard.claim()
    assert (lease.job.enqueued_ms, lease.job.replaced) == (then, 3)


def test_the_old_one_names_its_successor_and_the_archive_hears_nothing_of_it(shard: Shard) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0)
    _, new = swap(shard, old)
    row = row_of(shard.state, old)
    assert row.successor == new
    assert not wants_record(row)
    assert shard.apply(CancelJob(old))[0].code == Code.RETRY  # whoever saw it waiting looks again


def test_options_are_those_of_the_new_one(shard: Shard) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0, delay_ms=60_000, priority=1)
    code, new = swap(shard, old, priority=7, kind="mail")
    assert code == Code.QUEUED
    assert [(lane.priority, lane.kind) for lane in shard.state.lanes] == [(7, "mail")]
    code, new = swap(shard, new, delay_ms=9_000)
    assert code == Code.SCHEDULED
    assert [job.key for job in shard.state.delayed.jobs] == [new]
    assert not shard.state.lanes


def test_debouncing_postpones_until_the_most_wait_is_over(shard: Shard) -> None:
    old = under(shard, delay_ms=5_000, unique=DEBOUNCE)
    shard.apply(EnqueueJobs((old,)))
    first, key = shard.now, old.key
    for _ in range(20):
        shard.now += 4_000
        code, key = swap(shard, key, delay_ms=5_000, unique=DEBOUNCE)
        due = shard.state.delayed.jobs[0].due_ms if shard.state.delayed.jobs else 0
        assert due == (min(shard.now + 5_000, first + 60_000) if shard.now < first + 60_000 else 0)
    assert code == Code.QUEUED
    assert shard.drain() == [key]


def test_a_most_wait_that_was_said_once_is_not_forgotten(shard: Shard) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0, delay_ms=5_000, unique=DEBOUNCE)
    then = shard.now
    shard.now += 4_000
    _, old = swap(shard, old, delay_ms=50_000, unique=UniqueRule("waiting", "debounce"))
    shard.now += 4_000
    swap(shard, old, delay_ms=90_000, unique=replace(DEBOUNCE, max_wait_ms=99_000))
    assert shard.state.delayed.jobs[0].due_ms == then + 60_000


def test_the_window_is_that_of_the_first_and_keeps_it_known(shard: Shard) -> None:
    (old,) = shard.enqueue(
        client_id="a", seen=0, result_ttl_ms=1, unique=UniqueRule(window_ms=limits.UNIQUE_WINDOW_MS_MAX)
    )
    then = shard.now
    shard.now += 1_000
    _, new = swap(shard, old, unique=UniqueRule(window_ms=5), result_ttl_ms=1)
    shard.apply(CancelJob(new))
    last = then + limits.UNIQUE_WINDOW_MS_MAX + limits.EXPIRED_KNOWN_MS
    assert known_until_ms(row_of(shard.state, new)) == last
    assert known_until_ms(row_of(shard.state, old)) < last


def test_several_of_one_call_follow_one_another(shard: Shard) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0)
    one, two = under(shard), under(shard, payload=b"2")
    items = (Replacement(CancelJob(old), one), Replacement(CancelJob(one.key), two))
    assert shard.apply(ReplaceJobs(items))[0].codes == [Code.QUEUED, Code.QUEUED]
    assert row_of(shard.state, one.key).successor == two.key
    assert shard.drain() == [two.key]


def test_out_of_a_segment_it_comes_behind_those_that_are_ready(shard: Shard) -> None:
    with limited(SMALL):
        keys = shard.enqueue(40)
        shard.enqueue(20)
        old = keys[30]
        code, new = swap(shard, evident(shard, old))
        assert code == Code.QUEUED
        order = shard.drain()
        assert old not in order
        assert order.count(new) == 1
        assert order.index(new) < 30
        assert [key for key in order if key != new][:39] == [key for key in keys if key != old]


def test_out_of_a_segment_it_passes_no_job_of_its_ordered_group(shard: Shard) -> None:
    with limited(SMALL):
        keys = shard.enqueue(40, group="order")
        shard.enqueue(20)
        old = keys[30]
        _, new = swap(shard, evident(shard, old))
        order = []
        while leases := shard.claim(1):
            order += [lease.job.key for lease in leases if lease.job.group]
            shard.apply(CompleteJobs(tuple(Completion(each.job.key, each.token) for each in leases)))
        assert order == [*(key for key in keys if key != old), new]


def test_so_does_one_out_of_a_segment_of_delayed_jobs(shard: Shard) -> None:
    with limited({"DELAYED_BYTES_MAX": 800}):
        keys = shard.enqueue(40, delay_ms=60_000)
        assert shard.state.delayed.spans
        old = next(key for key in keys if key not in {job.key for job in shard.state.delayed.jobs})
        code, new = swap(shard, evident(shard, old))
        assert code == Code.QUEUED
        assert shard.drain() == [new]
        shard.now += 61_000
        assert sorted(set(shard.drain()) - {new}) == sorted(key for key in keys if key != old)


def test_one_that_has_moved_on_is_looked_for_again(shard: Shard) -> None:
    with limited(SMALL):
        keys = shard.enqueue(40)
        old = keys[12]
        evidence = evident(shard, old)
        while old not in shard.state.leases:
            shard.claim()
        before = shard.state
        assert swap(shard, evidence)[0] == Code.RETRY
        assert shard.state is before


def test_there_is_only_so_much_room_for_tombstones(shard: Shard) -> None:
    with limited({**SMALL, "TOMBSTONES_MAX": 2}):
        keys = shard.enqueue(60)
        codes = [swap(shard, evident(shard, key))[0] for key in keys[30:33]]
        assert codes == [Code.QUEUED, Code.QUEUED, Code.RETRY]


@pytest.mark.parametrize("where", ["queued", "scheduled"])
def test_one_whose_start_deadline_is_over_is_not_brought_back(shard: Shard, where: str) -> None:
    (old,) = shard.enqueue(
        client_id="a", seen=0, start_within_ms=1_000, delay_ms=500 if where == "scheduled" else 0
    )
    shard.now += 90_000
    assert swap(shard, old)[0] == Code.RETRY
    assert row_of(shard.state, old).successor is None
    assert not shard.drain()


def test_a_repeat_of_it_is_known(shard: Shard) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0)
    new = under(shard)
    op = ReplaceJobs((Replacement(CancelJob(old), new),))
    assert shard.apply(op)[0].code == Code.QUEUED
    assert shard.apply(op)[0].code == Code.DUPLICATE
    assert shard.drain() == [new.key]


def test_where_there_is_no_room_for_it_the_old_one_stays(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0)
    monkeypatch.setattr(spill, "DELAYED_SPANS_MAX", 0)
    assert swap(shard, old, delay_ms=5_000)[0] == Code.DELAYED_LIMIT
    assert shard.where(old) == "queued"


def test_a_staged_payload_that_may_be_gone_is_refused(shard: Shard) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0)
    shard.apply(RaiseGcFloor(shard.state.seq))
    staged: Any = BodyRef(f"bodies/{0:012d}-{7:016x}", 0, 5, 0)
    assert swap(shard, old, payload=staged)[0] == Code.STALE
    assert shard.where(old) == "queued"


def test_of_a_crowd_each_replaces_the_one_before(shard: Shard) -> None:
    (old,) = shard.enqueue(client_id="a", seen=0)
    keys = [swap(shard, old)[1] for _ in range(5)]
    assert [row_of(shard.state, key).successor for key in (old, *keys[:-1])] == keys
    (lease,) = shard.claim()
    assert (lease.job.key, lease.job.replaced) == (keys[-1], 5)
    assert swap(shard, old)[0] == Code.RETRY
