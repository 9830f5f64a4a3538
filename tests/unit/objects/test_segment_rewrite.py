"""Deletion vectors: cancelled jobs leave their segment at a bounded cost, and never run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from osqueue import Queue, limits
from osqueue.core.deletion_vectors import DeletionVector, decode_vector, encode_vector
from osqueue.core.job_ops import CancelJob, ClaimJobs
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings, RaiseGcFloor, ReplaceSpan
from osqueue.core.state import Span, State
from osqueue.errors import Damaged
from osqueue.model.keys import job_id
from osqueue.objects import segment_rewrite
from osqueue.objects.lookup import find_in_state
from osqueue.objects.segments import page
from osqueue.objects.staging import StagingArea
from osqueue.stores.counting import CountingStore
from osqueue.stores.memory import MemoryStore
from osqueue.testing.waiting import waiting_jobs
from simulation.tight import limited
from tests.support.scene import ROOT, head, names

SMALL = {"READY_BYTES_MAX": 600, "TAIL_BYTES_MAX": 500, "BLOCK_BYTES_MAX": 200, "FANOUT": 4}


@pytest.fixture
def small() -> Iterator[None]:
    with limited(SMALL | {"DELAYED_BYTES_MAX": 600, "FINISHED_BYTES_MAX": 2_000}):
        yield


def reading(shard: Any, flow: Any) -> Any:
    """Run a flow that reads and stages objects, on those of a shard."""
    from osqueue.commit.effects import All
    from osqueue.stores.base import Found, Missing, Put, Written

    def perform(request: Any) -> Any:
        if isinstance(request, Put):
            shard.objects[request.key] = request.body
            return Written("v")
        data = shard.objects.get(request.key)
        if data is None:
            return Missing()
        end = len(data) if request.length is None else request.start + request.length
        return Found(data[request.start : end], "v", 0)

    try:
        effect = next(flow)
        while True:
            several = isinstance(effect, All)
            effect = flow.send(tuple(map(perform, effect.requests)) if several else perform(effect))
    except StopIteration as stop:
        return stop.value


def settle(shard: Any) -> tuple[ReplaceSpan, ...]:
    """What settles some of a shard's tombstones."""
    stage = StagingArea("", shard.state.seq, Drawn(shard.chance))
    return reading(shard, segment_rewrite.settle_tombstones("", shard.state, stage))  # type: ignore[no-any-return]


class Drawn:
    """Chance from a seed."""

    def __init__(self, chance: random.Random) -> None:
        self.bits = chance.getrandbits


def cancel(shard: Any, key: bytes) -> Code:
    """Cancel a job in a segment by the evidence a caller would bring."""
    found = reading(shard, find_in_state("", shard.state, key))
    place = found.place
    op = CancelJob(key, place.job, place.top.name, place.offset, place.index, place.vector)
    return shard.apply(op)[0].code  # type: ignore[no-any-return]


def inside(shard: Any, spans: Any) -> list[bytes]:
    return [job.key for span in spans for job in shard.inside(span)]


def lane(state: State) -> tuple[Span, ...]:
    return state.lanes[0].backlog.spans


# ── What a vector is ─────────────────────────────────────────────────────────
def test_a_vector_is_read_as_it_was_written() -> None:
    deleted = DeletionVector({}).more([(0, 3), (900, 0), (900, 64), (0, 3)])
    data, vector = encode_vector(deleted, "segments/v")
    assert (vector.name, vector.size) == ("segments/v", len(data))
    assert decode_vector(data, "segments/v") == deleted
    assert [index for index in range(70) if deleted.has(900, index)] == [0, 64]
    assert (deleted.count(900, 0), deleted.count(900, 1), deleted.count(1, 0)) == (2, 1, 0)
    with pytest.raises(Damaged):
        decode_vector(data[:-1], "segments/v")


# ── Settling ─────────────────────────────────────────────────────────────────
def test_settled_jobs_never_run_and_the_others_keep_their_order(small: None, shard: Any) -> None:
    keys = [key for _ in range(30) for key in shard.enqueue(10)]
    assert any(span.level > 0 for span in lane(shard.state))
    doomed = shard.chance.sample(inside(shard, lane(shard.state)), 60)
    for key in doomed:
        assert cancel(shard, key) == Code.CANCELLED
        while segment_rewrite.many_tombstones(shard.state):
            assert {each.code for each in shard.apply(*settle(shard))} == {Code.OK}
    assert shard.drain(7) == [key for key in keys if key not in doomed]
    assert shard.state.tombstones == ()


def test_settled_delayed_jobs_never_become_due(small: None, shard: Any) -> None:
    keys = shard.enqueue(80, delay_ms=60_000)
    doomed = inside(shard, shard.state.delayed.spans)[3:60:2]
    for key in doomed:
        assert cancel(shard, key) == Code.CANCELLED
    while shard.state.tombstones:
        shard.apply(*settle(shard))
    assert all(shard.where(key) in ("cancelled", "gone") for key in doomed)
    shard.now += 60_000
    assert sorted(shard.drain(100)) == sorted(set(keys) - set(doomed))


def test_settled_delayed_jobs_are_not_merged_back(small: None, shard: Any) -> None:
    with limited({"DELAYED_SPANS_SOFT": 4}):
        shard.enqueue(20, delay_ms=900_000)
        doomed = inside(shard, shard.state.delayed.spans)[:3]
        for key in doomed:
            cancel(shard, key)
        shard.apply(*settle(shard))
        assert any(span.vector for span in shard.state.delayed.spans)
        keys = [key for at in range(40) for key in shard.enqueue(5, delay_ms=900_000 + at)]
        assert not any(span.vector for span in shard.state.delayed.spans)
        shard.now += 1_000_000
        assert set(keys) < set(got := shard.drain(50))
        assert set(got).isdisjoint(doomed)


def test_failing_jobs_that_are_settled_are_counted_out_as_failing(small: None, shard: Any) -> None:
    from osqueue.core.job_ops import FailedAttempt, FailJobs

    shard.enqueue(60)
    leases = shard.claim(60)
    shard.apply(FailJobs(tuple(FailedAttempt(lease.job.key, lease.token, "no", 60_000) for lease in leases)))
    failing = sum(span.failing for span in shard.state.delayed.spans)
    cancel(shard, inside(shard, shard.state.delayed.spans)[5])
    shard.apply(*settle(shard))
    assert sum(span.failing for span in shard.state.delayed.spans) == failing - 1
    assert sum(span.count for span in shard.state.delayed.spans) == failing - 1


def test_a_segment_of_which_nothing_is_left_goes_as_a_whole(small: None, shard: Any) -> None:
    shard.enqueue(60)
    (first, *rest) = lane(shard.state)
    for key in inside(shard, [first]):
        cancel(shard, key)
    while shard.state.tombstones:
        shard.apply(*settle(shard))
    assert lane(shard.state) == tuple(rest)


def test_a_segment_that_moved_on_is_settled_all_the_same(small: None, shard: Any) -> None:
    keys = shard.enqueue(60)
    (span,) = lane(shard.state)
    doomed = inside(shard, [span])[-1]
    cancel(shard, doomed)
    (op,) = settle(shard)
    shard.claim(len(keys) // 2)
    (moved,) = lane(shard.state)
    assert 0 < moved.count < span.count
    assert shard.apply(op)[0].code == Code.OK
    assert lane(shard.state)[0].count == moved.count - 1
    assert doomed not in shard.drain(100)


def test_a_job_that_was_passed_meanwhile_is_not_settled_twice(small: None, shard: Any) -> None:
    keys = shard.enqueue(60)
    (span,) = lane(shard.state)
    cancel(shard, inside(shard, [span])[0])
    (op,) = settle(shard)
    shard.claim(len(keys) // 2)
    assert shard.state.tombstones == ()
    assert shard.apply(op)[0].code == Code.RETRY
    assert not shard.last.changed


def test_of_two_who_settle_one_segment_the_second_is_refused(small: None, shard: Any) -> None:
    shard.enqueue(60)
    doomed = inside(shard, lane(shard.state))
    cancel(shard, doomed[3])
    (slow,) = settle(shard)
    cancel(shard, doomed[5])
    (quick,) = settle(shard)
    assert shard.apply(quick)[0].code == Code.OK
    assert shard.apply(slow)[0].code == Code.RETRY
    assert shard.state.tombstones == ()


def test_an_index_is_exchanged_only_as_it_was(small: None, shard: Any) -> None:
    for _ in range(40):
        shard.enqueue(10)
    index = next(span for span in lane(shard.state) if span.level)
    doomed = inside(shard, [index])
    cancel(shard, doomed[3])
    (slow,) = settle(shard)
    cancel(shard, doomed[-3])
    assert {each.code for each in shard.apply(*settle(shard))} == {Code.OK}
    assert shard.apply(slow)[0].code == Code.RETRY


def test_a_vector_staged_before_the_collectors_floor_is_refused(small: None, shard: Any) -> None:
    shard.enqueue(60)
    cancel(shard, inside(shard, lane(shard.state))[3])
    (op,) = settle(shard)
    shard.enqueue()
    shard.apply(RaiseGcFloor(shard.state.seq))
    assert shard.apply(op)[0].code == Code.STALE


def test_a_claim_takes_nothing_from_a_block_whose_vector_it_may_not_read(small: None, shard: Any) -> None:
    keys = shard.enqueue(60)
    doomed = inside(shard, lane(shard.state))[0]
    cancel(shard, doomed)
    shard.apply(*settle(shard))
    held = len(shard.state.lanes[0].backlog.ready)
    shard.claim(held)
    done = shard.commit([shard.request(ClaimJobs(5, "ada", 30_000))], load=False)
    assert done.missing
    assert not done.changed
    assert (
        shard.drain(5) == [*keys[held:][:0], *(key for key in keys[held:] if shard.where(key) != "gone")][1:]
    )


def test_pages_count_only_jobs_that_are_to_come(small: None, shard: Any) -> None:
    shard.enqueue(60)
    there = inside(shard, lane(shard.state))
    for key in there[2:20:3]:
        cancel(shard, key)
    while shard.state.tombstones:
        shard.apply(*settle(shard))
    (span,) = lane(shard.state)
    left = inside(shard, [span])
    assert len(left) == len(there) - 6
    for skip in range(0, len(left), 5):
        found = reading(shard, page("", span, skip, 5))
        assert [job.key for job in found] == left[skip : skip + 5]


# ── Through a queue ──────────────────────────────────────────────────────────
@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


def many_cancelled(
    machine: Any, store: MemoryStore, every: int = 3
) -> tuple[Queue[Any], list[str], list[str]]:
    """A queue of which many jobs were cancelled in their segments; those jobs, and the others."""
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    jobs = [str(q.enqueue("x" * 50).job_id) for _ in range(150)]
    doomed = jobs[30:130:every]
    assert {q.cancel(job) for job in doomed} == {"cancelled"}
    return q, doomed, [job for job in jobs if job not in doomed]


def vectors_of(state: State) -> set[str]:
    return {span.vector.name for span in lane(state) if span.vector is not None}


SMALL_QUEUE = {"READY_BYTES_MAX": 900, "TAIL_BYTES_MAX": 700, "TOMBSTONES_MAX": 4, "BLOCK_BYTES_MAX": 400}


def test_every_way_to_look_at_a_queue_passes_over_settled_jobs(machine: Any, store: MemoryStore) -> None:
    with limited(SMALL_QUEUE):
        q, doomed, others = many_cancelled(machine, store)
        assert vectors_of(head(store))
        assert q.stats()["queued"] == len(others)
        assert {str(job.job_id) for job in q.jobs(state="queued", limit=500)[0]} == set(others)
        assert [job_id(job.key) for _, job in q._run(waiting_jobs(q))] == others
        assert {q.status(job).state for job in doomed} == {"cancelled"}
        assert {q.cancel(job) for job in doomed} == {"cancelled"}


def test_a_collection_leaves_vectors_that_the_head_or_a_backup_names(
    machine: Any, store: MemoryStore
) -> None:
    with limited(SMALL_QUEUE):
        q, doomed, others = many_cancelled(machine, store, every=4)
        old = vectors_of(head(store))
        q.reap()  # the backup
        more = [job for job in others if doomed[0] < job < doomed[-1]]
        assert {q.cancel(job) for job in more} == {"cancelled"}
        fresh = vectors_of(head(store))
        assert old != fresh
        assert fresh
        for _ in range(50):
            machine.advance(3_600)
            q.enqueue("later")
            q.reap()
            there = {name.removeprefix(ROOT) for name in names(store, f"{ROOT}segments/")}
            assert vectors_of(head(store)) <= there
        assert not (old - vectors_of(head(store))) & there  # whatever no backup names any more is gone
        rest = [job for job in others if job not in more]
        got: list[str] = []
        while leases := q.claim(limit=20):
            got += [str(lease.job_id) for lease in leases]
            q.complete_many(leases)
        assert got[: len(rest)] == rest


# ── What one cancel costs ────────────────────────────────────────────────────
REQUESTS_MAX = 20
READ_BYTES_MAX = 260_000
WRITTEN_BYTES_MAX = 40_000


def costs(machine: Any, jobs: int, cancels: int, **fields: Any) -> tuple[int, int, int]:
    """The most requests, bytes read and bytes written of one of many cancels in a row."""
    store = CountingStore(MemoryStore(machine))
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    chance = random.Random(1)
    payload = [fields | ({"delay": chance.randrange(60, 90_000)} if fields else {}) for _ in range(jobs)]
    told = q.enqueue_many([{"payload": at, **each} for at, each in enumerate(payload)])
    most = (0, 0, 0)
    for at in chance.sample(range(jobs // 2, jobs), cancels):
        before = (sum(store.requests.values()), store.bytes_read, store.bytes_written)
        assert q.cancel(str(told[at].job_id)) == "cancelled"
        after = (sum(store.requests.values()), store.bytes_read, store.bytes_written)
        most = tuple(max(one, new - old) for one, old, new in zip(most, before, after, strict=True))
    return most


@pytest.mark.parametrize("jobs", [5_000, 150_000])
def test_cancelling_one_job_costs_the_same_at_any_depth(machine: Any, jobs: int) -> None:
    requests, read, written = costs(machine, jobs, 3 * limits.TOMBSTONES_MAX)
    assert requests <= REQUESTS_MAX
    assert read <= READ_BYTES_MAX
    assert written <= WRITTEN_BYTES_MAX


def test_what_the_same_commit_takes_out_of_a_segment_is_settled_after_it(small: None, shard: Any) -> None:
    """A claim took a job out of the middle, which the vector that somebody wrote meanwhile does not tell of."""
    with limited(SMALL | {"LANES_MAX": 1}):
        keys = [
            shard.enqueue(1, group=f"g{at % 7}", kind="rare" if at % 5 == 4 else "other")[0]
            for at in range(60)
        ]
        doomed = next(
            job.key
            for span in shard.state.lanes[0].backlog.spans
            for job in shard.inside(span)
            if job.kind == "other"
        )
        assert cancel(shard, doomed) == Code.CANCELLED
        ops = settle(shard)
        shard.apply(ChangeSettings(group_running=0))
        claimed, settled = shard.apply(ClaimJobs(40, "ada", 60_000, ("rare",)), *ops)
        assert claimed.leases
        assert settled.runs == ((Code.RETRY, 1),)
        (settled,) = shard.apply(*settle(shard))
        assert settled.runs == ((Code.OK, 1),)
        assert sorted(shard.drain() + [lease.job.key for lease in claimed.leases] + [doomed]) == sorted(keys)
