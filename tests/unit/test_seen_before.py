"""The reducer accepts a key under an id once: what it knows of it, and when it sends the caller to look again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import Queue, limits
from osqueue.core.ops import Cancel, Code, Complete, Completion, Enqueue, Merge, Sweep
from osqueue.core.state import Table
from osqueue.core.wire import staged_name
from osqueue.simulation.tight import limited
from osqueue.stores.memory import MemoryStore
from tests.unit.stepping import Call, writes


def again(shard: Any, key: bytes, seen: int) -> Code:
    """Enqueue a key under an id once more."""
    (outcome,) = shard.apply(Enqueue((type(shard.new())(key, b"2", client_id="a", seen=seen),)))
    return outcome.code  # type: ignore[no-any-return]


@pytest.mark.parametrize("place", ["queued", "delayed", "leased", "finished", "dead"])
def test_a_key_that_the_head_holds_is_a_duplicate(shard: Any, place: str) -> None:
    (key,) = shard.enqueue(client_id="a", seen=0, delay_ms=1_000 if place == "delayed" else 0)
    if place in ("leased", "finished", "dead"):
        (lease,) = shard.claim()
        if place == "finished":
            shard.apply(Complete((Completion(key, lease.token),)))
        if place == "dead":
            shard.now += 3 * limits.LEASE_MS_DEFAULT
            while shard.where(key) != "failed":
                shard.claim()
                shard.now += limits.LEASE_MS_DEFAULT
    assert again(shard, key, shard.state.seq) == Code.DUPLICATE
    assert shard.state.counters.enqueued == 1


def test_a_key_that_a_younger_table_may_hold_is_looked_for_again(shard: Any) -> None:
    key, _ = shard.enqueue(2, client_id="a", seen=0)
    shard.apply(Cancel(key))
    seen = shard.state.seq
    shard.apply(Sweep(flush=True))
    (table,) = shard.state.tables
    assert table.first <= key <= table.last
    assert again(shard, key, seen) == Code.RETRY  # a head seen before the table existed
    other = table.last[:-1] + bytes([table.last[-1] ^ 1])
    assert again(shard, other, seen) == Code.QUEUED  # outside its range


def test_a_key_that_a_younger_segment_may_hold_is_looked_for_again(shard: Any) -> None:
    keys = shard.enqueue(2_000, client_id="a", seen=0)
    (lane,) = shard.state.lanes
    span = lane.backlog.spans[0]
    assert span.first in keys
    inside = (int.from_bytes(span.first, "big") + 1).to_bytes(16, "big")
    assert again(shard, inside, 0) == Code.RETRY
    assert again(shard, inside, shard.state.seq) == Code.QUEUED  # it was looked into, and does not hold it


def test_a_key_is_looked_for_again_when_jobs_were_forgotten_meanwhile(shard: Any) -> None:
    (key,) = shard.enqueue(client_id="a", seen=0)
    seen = shard.state.seq
    shard.apply(Cancel(key))
    shard.apply(Sweep(flush=True))
    assert shard.apply(Merge(shard.state.tables, (), 1, True))[0].code == Code.OK
    assert shard.state.tables == ()
    assert again(shard, key, seen) == Code.RETRY
    other = key[:-1] + bytes([key[-1] ^ 1])
    assert again(shard, other, seen) == Code.RETRY  # whichever it was
    assert again(shard, other, shard.state.seq) == Code.QUEUED


def test_a_table_that_is_older_than_the_look_says_nothing_new(shard: Any) -> None:
    (key,) = shard.enqueue()
    name = staged_name("finished", shard.state.seq, 7, 0)
    table = Table(name, 0, 1, 1, bytes(16), b"\xff" * 16, 0, 0)  # it may hold any key
    shard.state = replace(shard.state, tables=(table,))
    shard.checked = False
    unknown = key[:-1] + bytes([key[-1] ^ 1])
    assert again(shard, unknown, shard.state.seq) == Code.RETRY
    assert again(shard, unknown, shard.state.seq + 1) == Code.QUEUED


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
