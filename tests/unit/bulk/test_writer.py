"""Bulks that many processes stage and one attaches, in one commit of each shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Queue, Rejected, Throttled, Unavailable, limits
from osqueue.bulk.writer import BulkPlan, BulkWriter, StagedJobs
from osqueue.clock import Machine
from osqueue.core.encoding import encode_segment, staged_name
from osqueue.core.job_ops import AttachBulk, AttachSpans, JobSpec
from osqueue.core.ops import Code
from osqueue.core.queue_ops import RaiseGcFloor
from osqueue.core.state import MIXED, JobRecord
from osqueue.stores.base import Get, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from simulation.tight import limited
from tests.support.staged import LOST, Meddled, head_writes, stage, store_keys, waiting


# ── The operation ────────────────────────────────────────────────────────────
def part(shard: Any, count: int, kind: str = "", due_ms: int = 0) -> AttachSpans:
    name = staged_name("segments", shard.state.seq, shard.chance.getrandbits(64))
    jobs = [JobRecord(shard.key(), b"1", shard.now, kind=kind, due_ms=due_ms) for _ in range(count)]
    shard.objects[name], span = encode_segment(jobs, name)
    return AttachSpans(5, kind, (span,), delayed=due_ms > 0)


def test_several_lanes_and_delayed_jobs_join_in_one_commit(shard: Any) -> None:
    parts = (part(shard, 3, "a"), part(shard, 4, "b"), part(shard, 5, due_ms=shard.now + 1_000))
    assert shard.apply(AttachBulk(parts))[0].code == Code.QUEUED
    assert [lane.kind for lane in shard.state.lanes] == ["a", "b"]
    assert shard.state.counters.enqueued == 12
    assert sum(span.count for span in shard.state.delayed.spans) == 5


def test_more_kinds_than_lanes_join_in_one_commit_and_are_found(shard: Any) -> None:
    parts = tuple(part(shard, 2, f"k{at}") for at in range(2 * limits.LANES_MAX))
    assert shard.apply(AttachBulk(parts))[0].code == Code.QUEUED
    assert {lane.kind for lane in shard.state.lanes} == {f"k{at}" for at in range(limits.LANES_MAX)} | {MIXED}
    for kind in ("k3", "k31"):
        assert [lease.job.kind for lease in shard.claim(5, (kind,))] == [kind, kind]
    assert len(shard.claim(1_000)) == 2 * len(parts) - 4


def test_one_segment_of_delayed_jobs_too_many_keeps_all_of_them_out(shard: Any) -> None:
    with limited({"DELAYED_SPANS_MAX": 1}):
        due = shard.now + 1_000
        assert (
            shard.apply(AttachBulk((part(shard, 1, "a"), part(shard, 1, due_ms=due))))[0].code == Code.QUEUED
        )
        before = shard.state
        parts = (part(shard, 1, "a"), part(shard, 1, "b"), part(shard, 1, due_ms=due))
        assert shard.apply(AttachBulk(parts))[0].code == Code.DELAYED_LIMIT
        assert (shard.state.lanes, shard.state.delayed) == (before.lanes, before.delayed)
        assert shard.apply(AttachBulk(parts[:2]))[0].code == Code.QUEUED


def test_lanes_that_have_run_empty_make_room(shard: Any) -> None:
    for at in range(16):
        shard.enqueue(kind=f"k{at}")
    shard.claim(16)
    parts = tuple(part(shard, 1, f"n{at}") for at in range(16))
    assert shard.apply(AttachBulk(parts))[0].code == Code.QUEUED
    assert {lane.kind for lane in shard.state.lanes} == {f"n{at}" for at in range(16)}


def test_one_segment_from_before_the_collectors_floor_keeps_all_of_them_out(shard: Any) -> None:
    old = part(shard, 2, "a")
    shard.enqueue()
    young = part(shard, 2, "b")
    shard.apply(RaiseGcFloor(1))
    assert shard.apply(AttachBulk((young, old)))[0].code == Code.STALE
    assert not shard.state.lanes[0].backlog.spans


def test_too_many_segments_of_delayed_jobs_keep_the_other_lanes_out(shard: Any) -> None:
    parts = tuple(part(shard, 1, due_ms=shard.now + 60_000) for _ in range(65))
    assert shard.apply(AttachBulk((part(shard, 1, "a"), *parts)))[0].code == Code.DELAYED_LIMIT
    assert not shard.state.lanes


# ── Staging and attaching ────────────────────────────────────────────────────
def test_what_is_staged_is_visible_to_nobody_until_it_is_attached_and_then_all_at_once() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    Queue(store, "q").enqueue("first")
    staged = [stage(bulks, 2_000), stage(bulks, 3_000, priority=1)]
    assert waiting(store) == 1
    assert head_writes(store, lambda s: BulkWriter(s, "q").attach(staged)) == 1
    assert waiting(store) == 5_001


def test_jobs_of_a_lane_stand_in_the_order_in_which_they_were_handed_over() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    first, second = stage(bulks, 30), stage(bulks, 20)
    bulks.attach([second, first])
    with Queue(store, "q") as q:
        got = [lease.payload for lease in q.claim(50)]
    assert got == [*range(20), *range(30)]


def test_large_payloads_come_back_whole() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    stager = bulks.stager(bulks.plan(), 0)
    payload = b'"' + b"x" * 5_000 + b'"'
    stager.add([JobSpec(key, payload) for key in stager.keys(3)])
    bulks.attach([stager.finish()])
    assert [lease.payload for lease in Queue(store, "q").claim(3)] == ["x" * 5_000] * 3


def test_delays_count_from_the_plan_and_everything_is_enqueued_at_its_moment(machine: Any) -> None:
    store = MemoryStore(machine)
    bulks = BulkWriter(store, "q", machine)
    plan = bulks.plan()
    machine.advance(30)
    stager = bulks.stager(plan, 0)
    (one, two) = stager.keys(2)
    stager.add([JobSpec(one, b"1", delay_ms=60_000), JobSpec(two, b"2", at_ms=plan.now_ms - 1)])
    bulks.attach([stager.finish()])
    q = Queue(store, "q", machine=machine)
    jobs, _ = q.jobs()
    assert {job.state for job in jobs} == {"scheduled", "queued"}
    assert {job.enqueued_at.timestamp() * 1000 for job in jobs} == {plan.now_ms}
    machine.advance(30)
    q.reap()
    assert q.stats()["queued"] == 2


def test_each_shard_gets_its_part_in_one_commit() -> None:
    store = MemoryStore()
    q = Queue(store, "q")
    q.configure(shards=3)
    bulks = BulkWriter(store, "q")
    assert len(bulks.plan().born) == 3
    for shard in range(3):  # so that there are heads
        bulks.attach([stage(bulks, 1, shard)])
    staged = [stage(bulks, 100, shard % 3) for shard in range(6)]
    assert head_writes(store, lambda s: BulkWriter(s, "q").attach(staged)) == 3
    assert waiting(store) == 603


# ── Many processes ───────────────────────────────────────────────────────────
def stage_mixed(bulks: BulkWriter, plan: BulkPlan, task: int, jobs: int) -> StagedJobs:
    """Of each task: jobs of several kinds and priorities, half of them delayed, one with a large payload."""
    stager = bulks.stager(plan, 0)
    payloads = [b"%d" % (task * jobs + at) + b" " * (3_000 if at == 5 else 0) for at in range(jobs)]
    stager.add(
        [
            JobSpec(
                key, payload, kind=f"k{at % 3}", priority=3 + at % 2, delay_ms=60_000 + at if at % 2 else 0
            )
            for at, (key, payload) in enumerate(zip(stager.keys(jobs), payloads, strict=True))
        ]
    )
    return stager.finish()


def drained(q: Queue[Any]) -> list[Any]:
    found: list[Any] = []
    while leases := q.claim(1_000):
        found.extend(lease.payload for lease in leases)
        q.complete_many(leases)
    return found


def test_two_hundred_processes_with_delayed_jobs_of_every_kind_join_in_one_commit(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    q.enqueue(-1)
    bulks = BulkWriter(store, "q", machine)
    plan = bulks.plan()
    staged = [stage_mixed(bulks, plan, task, 12) for task in range(200)]
    assert head_writes(store, lambda s: BulkWriter(s, "q", machine).attach(staged, "b")) == 1
    stats = q.stats()
    assert (stats["queued"], stats["scheduled"]) == (1_201, 1_200)
    now = [*range(0, 2_400, 2)]
    assert sorted(drained(q)) == [-1, *now]
    machine.advance(61)
    for _ in range(5):
        q.reap()
    assert sorted(drained(q)) == [*range(1, 2_400, 2)]


def test_merged_segments_of_delayed_jobs_are_as_old_as_what_they_were_made_of(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    q.enqueue("first")
    bulks = BulkWriter(store, "q", machine)
    plan = bulks.plan()
    staged = [stage_mixed(bulks, plan, task, 6) for task in range(20)]
    for _ in range(30):
        machine.advance(3_600)
        q.enqueue("later")
        q.reap()
    with pytest.raises(Throttled, match="longer than a day"):  # its segments have been collected
        bulks.attach(staged, "b")
    staged = [stage_mixed(bulks, bulks.plan(), task, 6) for task in range(20)]
    for _ in range(3):
        q.enqueue("later")
    bulks.attach(staged)
    listed = {key for key in store_keys(store) if "/segments/" in key}
    state = bulks.plan()
    born = {int(key.rpartition("/")[2].partition("-")[0], 16) for key in listed}
    assert max(born) < state.born[0] - 3


def test_more_delayed_jobs_than_a_shard_has_room_for_are_refused_before_anything_is_visible() -> None:
    with limited({"SEGMENT_BYTES_MAX": 2_000}):
        store = MemoryStore()
        bulks = BulkWriter(store, "q")
        plan = bulks.plan()
        staged = [stage_mixed(bulks, plan, task, 60) for task in range(80)]
        with pytest.raises(
            Throttled, match=r"delay: the bulk has \d+ segments of delayed jobs .* Add shards"
        ):
            bulks.attach(staged, "b")
    assert waiting(store) == 0
    assert not bulks.is_decided("b")


def test_a_store_that_does_not_tell_its_time_is_told_of_and_not_asked_for_ever() -> None:
    class Timeless(MemoryStore):
        def clock_ms(self) -> int | None:
            return None

    def fail(request: StoreRequest, perform: Callable[[StoreRequest], StoreReply]) -> StoreReply:
        return LOST if isinstance(request, Get) and request.key.endswith("/clock") else perform(request)

    with pytest.raises(Unavailable, match="did not return its time: the reply was lost"):
        BulkWriter(Meddled(Timeless(), fail), "q", Hasty()).plan()


class Hasty(Machine):
    """Nobody waits in a test."""

    def sleep(self, seconds: float) -> None:
        pass


def test_nothing_staged_enqueues_nothing() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    assert bulks.attach([], "empty").jobs == 0
    assert bulks.attach([stage(bulks, 5)], "empty").repeated
    assert waiting(store) == 0


def test_a_group_is_staged_at_home_or_refused_by_name() -> None:
    store = MemoryStore()
    queue: Queue[Any] = Queue(store, "q")
    bulks = BulkWriter(store, "q")
    stager = bulks.stager(bulks.plan(), 0)
    (key,) = stager.keys(1)
    with pytest.raises(Rejected, match=r"^group: 'a' is not at home in shard 0.*--group-shards 1"):
        stager.add([JobSpec(key, b"1", group="a")])
    queue.configure(group_shards=1)
    stager = bulks.stager(bulks.plan(), 0)
    stager.add([JobSpec(key, b"1", group="a") for key in stager.keys(2)])
    bulks.attach([stager.finish()], "b")
    assert len(queue.claim(5)) == 1
