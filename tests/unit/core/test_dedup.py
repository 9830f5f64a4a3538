"""The reducer accepts a key under an id once: what it knows of it, and when it sends the caller to look again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Queue, limits
from osqueue.core import dedup
from osqueue.core.encoding import staged_name
from osqueue.core.job_ops import CancelJob, ClaimJobs, CompleteJobs, Completion, EnqueueJobs, JobSpec
from osqueue.core.ops import Code
from osqueue.core.queue_ops import MergeTables, RunTimers
from osqueue.core.state import TableRef
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.stepping import Call, writes


def again(shard: Any, key: bytes, seen: int) -> Code:
    """Enqueue a key under an id once more."""
    (outcome,) = shard.apply(EnqueueJobs((type(shard.new())(key, b"2", client_id="a", seen=seen),)))
    return outcome.code  # type: ignore[no-any-return]


@pytest.mark.parametrize("place", ["queued", "delayed", "leased", "finished", "dead"])
def test_a_key_that_the_head_holds_is_a_duplicate(shard: Any, place: str) -> None:
    (key,) = shard.enqueue(client_id="a", seen=0, delay_ms=1_000 if place == "delayed" else 0)
    if place in ("leased", "finished", "dead"):
        (lease,) = shard.claim()
        if place == "finished":
            shard.apply(CompleteJobs((Completion(key, lease.token),)))
        if place == "dead":
            shard.now += 3 * limits.LEASE_MS_DEFAULT
            while shard.where(key) != "failed":
                shard.claim()
                shard.now += limits.LEASE_MS_DEFAULT
    assert again(shard, key, shard.state.seq) == Code.DUPLICATE
    assert shard.state.counters.enqueued == 1


def test_a_key_is_looked_for_in_younger_tables(shard: Any) -> None:
    key, _ = shard.enqueue(2, client_id="a", seen=0)
    shard.apply(CancelJob(key))
    seen = shard.state.seq
    shard.apply(RunTimers(flush=True))
    (table,) = shard.state.tables
    assert table.first <= key <= table.last
    assert again(shard, key, seen) == Code.DUPLICATE  # a head seen before the table existed
    inside = (int.from_bytes(table.first, "big") + 1).to_bytes(16, "big")
    assert again(shard, inside, seen) == Code.QUEUED  # read, and not found
    other = table.last[:-1] + bytes([table.last[-1] ^ 1])
    assert again(shard, other, seen) == Code.QUEUED  # outside its range


def test_a_key_is_looked_for_in_younger_segments(shard: Any) -> None:
    keys = shard.enqueue(2_000, client_id="a", seen=0)
    (lane,) = shard.state.lanes
    span = lane.backlog.spans[0]
    assert span.first in keys
    inside = (int.from_bytes(span.first, "big") + 1).to_bytes(16, "big")
    assert again(shard, span.first, 0) == Code.DUPLICATE
    assert again(shard, inside, 0) == Code.QUEUED  # read, and not found


@pytest.mark.parametrize("kind", ["too large to be read for this", "not read yet"])
def test_a_key_that_a_younger_object_may_hold_is_looked_for_again(shard: Any, kind: str) -> None:
    keys = shard.enqueue(2_000, client_id="a", seen=0)
    span = shard.state.lanes[0].backlog.spans[0]
    assert span.first in keys
    inside = (int.from_bytes(span.first, "big") + 1).to_bytes(16, "big")
    request = shard.request(EnqueueJobs((JobSpec(inside, b"2", client_id="a", seen=0),)))
    before = dedup.WHOLE_BYTES_MAX
    try:
        if kind.startswith("too"):
            dedup.WHOLE_BYTES_MAX = span.size - 1
        done = shard.commit([request], load=kind.startswith("too"))
    finally:
        dedup.WHOLE_BYTES_MAX = before
    assert done.outcomes[request.identity][0].code == Code.RETRY
    assert again(shard, inside, shard.state.seq) == Code.QUEUED  # the caller looked, and did not find it


# ── What leaves its object in the very commit ────────────────────────────────
def test_a_job_that_becomes_due_in_the_same_commit_is_not_accepted_again(shard: Any) -> None:
    with limited({"DELAYED_BYTES_MAX": 100}):
        seen = shard.state.seq
        (key, *_) = shard.enqueue(3, client_id="a", seen=seen, delay_ms=50_000)
        assert any(span.first <= key <= span.last for span in shard.state.delayed.spans)
        shard.now += 60_000
        assert again(shard, key, seen) == Code.DUPLICATE
        assert shard.state.counters.enqueued == 3


def test_a_job_that_is_claimed_in_the_same_commit_is_not_accepted_again(shard: Any) -> None:
    with limited({"READY_BYTES_MAX": 600, "TAIL_BYTES_MAX": 300}):
        shard.enqueue(8)
        seen = shard.state.seq
        _, key, _ = shard.enqueue(3, client_id="a", seen=seen)
        while not any(span.first <= key <= span.last for span in shard.state.lanes[0].backlog.spans):
            shard.enqueue()
        while shard.state.lanes[0].backlog.ready or not _covers(shard.state.lanes[0].backlog.spans[0], key):
            shard.claim()
        claim = shard.request(ClaimJobs(1, "w", 30_000), env="a")
        late = shard.request(EnqueueJobs((JobSpec(key, b"2", client_id="a", seen=seen),)), env="b")
        done = shard.commit([claim, late])
        assert done.outcomes[claim.identity][0].leases
        assert done.outcomes[late.identity][0].code == Code.DUPLICATE


def _covers(span: Any, key: bytes) -> bool:
    return bool(span.first <= key <= span.last)


def test_a_key_is_looked_for_again_when_jobs_were_forgotten_meanwhile(shard: Any) -> None:
    (key,) = shard.enqueue(client_id="a", seen=0)
    seen = shard.state.seq
    shard.apply(CancelJob(key))
    shard.apply(RunTimers(flush=True))
    assert shard.apply(MergeTables(shard.state.tables, (), 1, True))[0].code == Code.OK
    assert shard.state.tables == ()
    assert again(shard, key, seen) == Code.RETRY
    other = key[:-1] + bytes([key[-1] ^ 1])
    assert again(shard, other, seen) == Code.RETRY  # whichever it was
    assert again(shard, other, shard.state.seq) == Code.QUEUED


def test_a_table_that_is_older_than_the_look_says_nothing_new(shard: Any) -> None:
    (key,) = shard.enqueue()
    name = staged_name("finished", shard.state.seq, 7, 0)
    size = dedup.WHOLE_BYTES_MAX + 1
    table = TableRef(name, 0, 1, size, bytes(16), b"\xff" * 16, 0, 0, named=1)  # it may hold any key
    shard.state = replace(shard.state, tables=(table,))
    shard.checked = False
    unknown = key[:-1] + bytes([key[-1] ^ 1])
    assert again(shard, unknown, shard.state.seq) == Code.RETRY
    shard.state = replace(shard.state, tables=(replace(table, named=0),))  # none of its jobs has an id
    assert again(shard, unknown, shard.state.seq - 1) == Code.QUEUED
    other = key[:-1] + bytes([key[-1] ^ 2])
    shard.state = replace(shard.state, tables=(table,))
    assert again(shard, other, shard.state.seq + 1) == Code.QUEUED


# ── Objects that are written anew ────────────────────────────────────────────
def named(q: Queue[Any], payload: Any) -> Call:
    """A call that is about to commit a job under the id "a"."""
    q.claim(kinds=["none"])  # it has seen the head
    return Call(q, q._enqueue(payload, id="a")).until(writes("/head"))


def test_a_segment_that_is_rewritten_is_as_young_as_what_it_tells_of(machine: Any) -> None:
    """Else a caller who looked for a job before it came would not be told to look again."""
    store = MemoryStore(machine)
    worker, canceller, slow, fast = (Queue[Any](store, "mail", machine=machine) for _ in range(4))
    worker.enqueue("before", delay=1e6)
    canceller.claim()  # it has seen the head, and will not look at it again before it cancels
    worker.enqueue("between", delay=1e6)
    creator = named(slow, "one")
    later = named(fast, "two")  # it saw the job nowhere
    with limited({"TOMBSTONES_MAX": 1, "READY_BYTES_MAX": 300, "TAIL_BYTES_MAX": 300}):
        for at in range(12):
            worker.enqueue(at)
        assert creator.finish().status == "queued"
        jobs = [str(worker.enqueue(at).job_id) for at in range(12)]
        assert (
            worker.cancel(jobs[0]) == "cancelled"
        )  # it leaves a tombstone in the segment of the one before it
        assert canceller.cancel(jobs[2]) == "cancelled"  # one too many: the segment is rewritten
        assert later.finish().status == "duplicate"
        payloads: list[Any] = []
        while leases := worker.claim(5):
            payloads += [lease.payload for lease in leases]
    assert [each for each in payloads if each in ("one", "two")] == ["one"]
