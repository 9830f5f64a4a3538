"""Bulks that many processes stage and one attaches: all of it in one commit of each shard, once, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Queue, Throttled, Unavailable, Unknown
from osqueue.bulk import BulkWriter, Staged, place_of
from osqueue.core.ops import Attach, AttachAll, Code, New, RaiseGcFloor
from osqueue.core.state import Job
from osqueue.core.wire import encode_segment, staged_name
from osqueue.stores.base import (
    Delete,
    Failed,
    List,
    Listed,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Reply,
    Request,
)
from osqueue.stores.faulty import FaultyStore
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore

LOST = Failed(Unavailable("the reply was lost"))


class Meddled(WrappedStore):
    """Does something of the test's own with each request."""

    def __init__(self, inner: Any, meddle: Callable[[Request, Callable[[Request], Reply]], Reply]) -> None:
        super().__init__(inner)
        self._meddle = meddle

    def perform(self, request: Request) -> Reply:
        return self._meddle(request, self.inner.perform)

    async def perform_async(self, request: Request) -> Reply:
        return self.perform(request)


class Crash(BaseException):
    """The process ends here."""


def stage(bulks: BulkWriter, jobs: int, shard: int = 0, **fields: Any) -> Staged:
    stager = bulks.stager(bulks.plan(), shard)
    stager.add([New(key, b"%d" % at, **fields) for at, key in enumerate(stager.keys(jobs))])
    return stager.finish()


def waiting(store: Any, queue: str = "q") -> int:
    return int(Queue(store, queue).stats()["queued"])


def head_writes(store: MemoryStore, run: Callable[[Any], Any]) -> int:
    """How many heads a call writes."""
    seen: list[str] = []

    def note(request: Request, perform: Callable[[Request], Reply]) -> Reply:
        if isinstance(request, PutIfAbsent | PutIfMatch | Put) and request.key.endswith("/head"):
            seen.append(request.key)
        return perform(request)

    run(Meddled(store, note))
    return len(seen)


# ── The operation ────────────────────────────────────────────────────────────
def part(shard: Any, count: int, kind: str = "", due_ms: int = 0) -> Attach:
    name = staged_name("segments", shard.state.seq, shard.chance.getrandbits(64))
    jobs = [Job(shard.key(), b"1", shard.now, kind=kind, due_ms=due_ms) for _ in range(count)]
    shard.objects[name], span = encode_segment(jobs, name)
    return Attach(5, kind, (span,), delayed=due_ms > 0)


def test_several_lanes_and_delayed_jobs_join_in_one_commit(shard: Any) -> None:
    parts = (part(shard, 3, "a"), part(shard, 4, "b"), part(shard, 5, due_ms=shard.now + 1_000))
    assert shard.apply(AttachAll(parts))[0].code == Code.QUEUED
    assert [lane.kind for lane in shard.state.lanes] == ["a", "b"]
    assert shard.state.counters.enqueued == 12
    assert sum(span.count for span in shard.state.delayed.spans) == 5


def test_one_lane_too_many_keeps_all_of_them_out(shard: Any) -> None:
    for at in range(15):
        shard.enqueue(kind=f"k{at}")
    assert shard.apply(AttachAll((part(shard, 1, "k3"), part(shard, 1, "new"))))[0].code == Code.QUEUED
    before = shard.state
    parts = (part(shard, 1, "k3"), part(shard, 1, "newer"))
    assert shard.apply(AttachAll(parts))[0].code == Code.LANES
    assert shard.state.lanes == before.lanes
    assert shard.apply(AttachAll((part(shard, 1, "k3"), part(shard, 1, "new"))))[0].code == Code.QUEUED


def test_lanes_that_have_run_empty_make_room(shard: Any) -> None:
    for at in range(16):
        shard.enqueue(kind=f"k{at}")
    shard.claim(16)
    parts = tuple(part(shard, 1, f"n{at}") for at in range(16))
    assert shard.apply(AttachAll(parts))[0].code == Code.QUEUED


def test_one_segment_from_before_the_collectors_floor_keeps_all_of_them_out(shard: Any) -> None:
    old = part(shard, 2, "a")
    shard.enqueue()
    young = part(shard, 2, "b")
    shard.apply(RaiseGcFloor(1))
    assert shard.apply(AttachAll((young, old)))[0].code == Code.STALE
    assert not shard.last.changed


def test_too_many_segments_of_delayed_jobs_keep_the_other_lanes_out(shard: Any) -> None:
    parts = tuple(part(shard, 1, due_ms=shard.now + 60_000) for _ in range(65))
    assert shard.apply(AttachAll((part(shard, 1, "a"), *parts)))[0].code == Code.DELAYED_LIMIT
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
    stager.add([New(key, payload) for key in stager.keys(3)])
    bulks.attach([stager.finish()])
    assert [lease.payload for lease in Queue(store, "q").claim(3)] == ["x" * 5_000] * 3


def test_delays_count_from_the_plan_and_everything_is_enqueued_at_its_moment(machine: Any) -> None:
    store = MemoryStore(machine)
    bulks = BulkWriter(store, "q", machine)
    plan = bulks.plan()
    machine.advance(30)
    stager = bulks.stager(plan, 0)
    (one, two) = stager.keys(2)
    stager.add([New(one, b"1", delay_ms=60_000), New(two, b"2", at_ms=plan.now_ms - 1)])
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


def test_nothing_staged_enqueues_nothing() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    assert bulks.attach([], "empty").jobs == 0
    assert bulks.attach([stage(bulks, 5)], "empty").repeated
    assert waiting(store) == 0


# ── Once ─────────────────────────────────────────────────────────────────────
def test_a_second_run_of_a_batch_enqueues_nothing() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    assert not bulks.is_decided("monday")
    assert not bulks.attach([stage(bulks, 10)], "monday").repeated
    assert bulks.is_decided("monday")
    again = bulks.attach([stage(bulks, 99)], "monday")
    assert (again.jobs, again.repeated) == (10, True)
    assert bulks.resume("monday").jobs == 10
    assert waiting(store) == 10
    bulks.attach([stage(bulks, 5)], "tuesday")
    assert waiting(store) == 15


@pytest.mark.parametrize("shards", [1, 3])
def test_wherever_a_run_dies_the_next_one_finishes_the_batch_and_adds_nothing_twice(shards: int) -> None:
    deaths = 0
    for die_at in range(200):
        store = MemoryStore()
        Queue(store, "q").configure(shards=shards)
        bulks = BulkWriter(store, "q")
        staged = [stage(bulks, 10, shard) for shard in range(shards)]
        requests = 0

        def die(request: Request, perform: Callable[[Request], Reply], at: int = die_at) -> Reply:
            nonlocal requests
            requests += 1
            if requests == at // 2 + 1:
                if at % 2:  # after it had its effect
                    perform(request)
                raise Crash
            return perform(request)

        try:
            BulkWriter(Meddled(store, die), "q").attach(staged, "b")
        except Crash:
            deaths += 1
        else:
            assert deaths > 10
            return
        for _ in range(2):
            BulkWriter(store, "q").attach([stage(bulks, 10, shard) for shard in range(shards)], "b")
            assert waiting(store) == 10 * shards
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("seed", range(30))
def test_a_store_that_fails_and_loses_replies_makes_nothing_twice(seed: int, machine: Any) -> None:
    store = MemoryStore(machine)
    Queue(store, "q", machine=machine).enqueue("first")
    bulks = BulkWriter(store, "q", machine)
    staged = [stage(bulks, 10)]
    faulty = FaultyStore(store, error_rate=0.3, lost_reply_rate=0.3, seed=seed, machine=machine)
    try:
        BulkWriter(faulty, "q", machine).attach(staged, "b")
    except Unavailable:
        BulkWriter(store, "q", machine).attach([stage(bulks, 10)], "b")
    assert waiting(store) == 11


@pytest.mark.parametrize("seed", range(30))
def test_without_a_batch_id_a_lost_reply_makes_nothing_twice_either(seed: int, machine: Any) -> None:
    store = MemoryStore(machine)
    Queue(store, "q", machine=machine).enqueue("first")
    staged = [stage(BulkWriter(store, "q", machine), 10)]
    faulty = FaultyStore(store, lost_reply_rate=0.5, seed=seed, machine=machine)
    with contextlib.suppress(Unavailable):
        BulkWriter(faulty, "q", machine).attach(staged)
    assert waiting(store) in (1, 11)


def test_of_two_runs_at_once_one_decides_and_both_finish() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    Queue(store, "q").enqueue("first")
    mine, theirs = [stage(bulks, 10)], [stage(bulks, 20)]
    answers = []

    def overtake(request: Request, perform: Callable[[Request], Reply]) -> Reply:
        if isinstance(request, PutIfAbsent) and request.key == place_of("q", "b") and not answers:
            answers.append(BulkWriter(store, "q").attach(theirs, "b"))
        return perform(request)

    mine_done = BulkWriter(Meddled(store, overtake), "q").attach(mine, "b")
    assert (mine_done.jobs, mine_done.repeated) == (20, True)
    assert (answers[0].jobs, answers[0].repeated) == (20, False)
    assert waiting(store) == 21


def test_two_runs_that_send_the_same_requests_at_once_attach_once() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    Queue(store, "q").enqueue("first")
    staged = [stage(bulks, 10)]
    done = []

    def overtake(request: Request, perform: Callable[[Request], Reply]) -> Reply:
        if isinstance(request, PutIfMatch) and request.key.endswith("/head") and not done:
            done.append(BulkWriter(store, "q").resume("b"))
        return perform(request)

    BulkWriter(Meddled(store, overtake), "q").attach(staged, "b")
    assert done[0].repeated
    assert waiting(store) == 11


def dead_after_deciding(store: Any, machine: Any, jobs: int = 10, committed: bool = False) -> Staged:
    """A run that died after it wrote the batch down: before its commit, or right after it."""
    bulks = BulkWriter(store, "q", machine)
    staged = stage(bulks, jobs)

    def die(request: Request, perform: Callable[[Request], Reply]) -> Reply:
        if isinstance(request, PutIfMatch) and request.key.endswith("/head"):
            if committed:
                perform(request)
            raise Crash
        return perform(request)

    with pytest.raises(Crash):
        BulkWriter(Meddled(store, die), "q", machine).attach([staged], "b")
    return staged


def forget_writers(store: Any, machine: Any) -> None:
    """Let the head forget its idle writers: others crowd them out."""
    machine.advance(600)
    for _ in range(1_000):
        Queue(store, "q", machine=machine).enqueue("crowd")
        machine.advance(1)


def test_a_batch_whose_writer_is_forgotten_is_known_by_its_jobs(machine: Any) -> None:
    store = MemoryStore(machine)
    Queue(store, "q", machine=machine).enqueue("first")
    dead_after_deciding(store, machine, committed=True)
    forget_writers(store, machine)
    before = waiting(store)
    BulkWriter(store, "q", machine).resume("b")
    assert waiting(store) == before == 1_011


def test_a_batch_of_which_nobody_can_tell_says_where_to_look_and_adds_nothing(machine: Any) -> None:
    store = MemoryStore(machine)
    Queue(store, "q", machine=machine).enqueue("first")
    dead_after_deciding(store, machine)
    forget_writers(store, machine)
    with pytest.raises(Unknown, match=r"batch_id: .* delete the object batches/q/"):
        BulkWriter(store, "q", machine).resume("b")
    assert waiting(store) == 1_001
    store.perform(Delete((place_of("q", "b"),)))
    BulkWriter(store, "q", machine).attach([stage(BulkWriter(store, "q", machine), 10)], "b")
    assert waiting(store) == 1_011


def test_a_batch_that_is_done_is_known_long_after_its_jobs_and_its_writer_are_forgotten(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    bulks = BulkWriter(store, "q", machine)
    bulks.attach([stage(bulks, 10, result_ttl_ms=1_000)], "b")
    q.complete_many(q.claim(10))
    forget_writers(store, machine)
    for _ in range(60):
        machine.advance(3_600)
        q.reap()
    again = bulks.attach([stage(bulks, 10)], "b")
    assert (again.jobs, again.repeated) == (10, True)
    assert waiting(store) == 1_000


# ── Refused ──────────────────────────────────────────────────────────────────
def crowded_lanes(q: Queue[Any], count: int = 16) -> None:
    for at in range(count):
        q.enqueue("x", kind=f"k{at}")


def test_a_bulk_that_the_queue_does_not_take_says_why_and_may_be_run_again() -> None:
    store = MemoryStore()
    q = Queue(store, "q")
    crowded_lanes(q)
    bulks = BulkWriter(store, "q")
    with pytest.raises(Throttled, match="kind: shard 0 would have jobs of more than 16"):
        bulks.attach([stage(bulks, 3, kind="new"), stage(bulks, 3, kind="k1")], "b")
    assert waiting(store) == 16
    assert not bulks.is_decided("b")
    q.complete_many(q.claim(16))
    assert not bulks.attach([stage(bulks, 3, kind="new")], "b").repeated
    assert waiting(store) == 3


def test_one_shard_without_room_keeps_every_shards_part_out() -> None:
    store = MemoryStore()
    Queue(store, "q").configure(shards=2)
    bulks = BulkWriter(store, "q")
    bulks.attach([stage(bulks, 1, 1, kind=f"k{at}") for at in range(16)])
    with pytest.raises(Throttled, match="kind: shard 1 would"):
        bulks.attach([stage(bulks, 3, shard, kind="new") for shard in range(2)], "b")
    assert waiting(store) == 16
    assert not bulks.is_decided("b")


def test_lanes_that_fill_between_the_look_and_the_commit_leave_nothing_behind() -> None:
    store = MemoryStore()
    bulks = BulkWriter(store, "q")
    Queue(store, "q").enqueue("x", kind="k0")
    staged = [stage(bulks, 3, kind="new")]

    def fill(request: Request, perform: Callable[[Request], Reply]) -> Reply:
        if isinstance(request, PutIfAbsent) and request.key == place_of("q", "b"):
            crowded_lanes(Queue(store, "q"))
        return perform(request)

    with pytest.raises(Throttled, match="kind: shard 0"):
        BulkWriter(Meddled(store, fill), "q").attach(staged, "b")
    assert not bulks.is_decided("b")
    assert waiting(store) == 17


def test_where_some_shards_took_their_part_the_next_run_adds_what_is_missing() -> None:
    store = MemoryStore()
    q = Queue(store, "q")
    q.configure(shards=2)
    bulks = BulkWriter(store, "q")
    for shard in range(2):
        bulks.attach([stage(bulks, 1, shard, kind="k0")])
    staged = [stage(bulks, 3, shard, kind="new") for shard in range(2)]

    def fill(request: Request, perform: Callable[[Request], Reply]) -> Reply:
        if isinstance(request, PutIfAbsent) and request.key == place_of("q", "b"):
            bulks.attach([stage(bulks, 1, 1, kind=f"k{at}") for at in range(16)])
        return perform(request)

    with pytest.raises(Throttled, match=r"1 of 2 shards did not take their part.*same batch_id"):
        BulkWriter(Meddled(store, fill), "q").attach(staged, "b")
    assert waiting(store) == 2 + 16 + 3
    q.complete_many(q.claim(1_000))
    q.complete_many(q.claim(1_000))
    assert bulks.attach([stage(bulks, 99)], "b").repeated
    assert waiting(store) == 3


def test_a_bulk_older_than_the_collectors_floor_is_refused_as_a_whole(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    q.enqueue("first")
    bulks = BulkWriter(store, "q", machine)
    staged = [stage(bulks, 10)]
    for _ in range(30):
        machine.advance(3_600)
        q.enqueue("later")
        q.reap()
    with pytest.raises(Throttled, match="longer than a day"):
        bulks.attach(staged, "b")
    assert waiting(store) == 31


def test_what_is_staged_and_never_attached_is_collected(machine: Any) -> None:
    store = MemoryStore(machine)
    q = Queue(store, "q", machine=machine)
    q.enqueue("first")
    staged = stage(BulkWriter(store, "q", machine), 10)
    name = staged.parts[0].spans[0].name
    (key,) = [key for key in store_keys(store) if key.endswith(name)]
    for _ in range(30):
        machine.advance(3_600)
        q.enqueue("later")
        q.reap()
    assert key not in store_keys(store)


def store_keys(store: MemoryStore) -> list[str]:
    listed = store.perform(List(""))
    assert isinstance(listed, Listed)
    return list(listed.keys)
