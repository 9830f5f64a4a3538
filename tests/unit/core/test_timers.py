"""Due jobs come in their order, however many of them and whatever else waits, and cost little."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from osqueue import Queue, limits
from osqueue.core.context import ReductionContext, StagedObject
from osqueue.core.encoding import Footer, decode_blocks, decode_footer, encode_segment
from osqueue.core.job_ops import CompleteJobs, Completion, EnqueueJobs
from osqueue.core.queue_ops import RunTimers
from osqueue.core.reduce import reduce
from osqueue.core.state import Backlog, Delayed, JobRecord, Lane, State
from osqueue.core.weights import job_weight
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from simulation.tight import limited

SMALL = {"DELAYED_BYTES_MAX": 600, "PROMOTED_PER_COMMIT_MAX": 30, "LANES_MAX": 4, "BLOCK_BYTES_MAX": 400}


def crowd(shard: Any) -> None:
    """Jobs wait in every lane there may be."""
    shard.apply(EnqueueJobs(tuple(shard.new(kind=f"k{at}") for at in range(limits.LANES_MAX))))


def sweep(shard: Any, count: int = 1) -> int:
    """So many commits that do no more than time demands; how many changed anything."""
    changed = 0
    for _ in range(count):
        shard.apply(RunTimers())
        changed += shard.last.changed
    return changed


def states(shard: Any, keys: list[bytes]) -> set[str]:
    places = shard.places()
    return {places[key] for key in keys}


def test_due_jobs_of_kinds_without_a_lane_are_queued_in_the_order_in_which_they_are_due(shard: Any) -> None:
    with limited(SMALL):
        late = [shard.enqueue(kind="late", delay_ms=60_000 + at)[0] for at in range(100)]
        fine = [shard.enqueue(kind="k1", delay_ms=61_000 + at)[0] for at in range(50)]
        crowd(shard)
        shard.now += 120_000
        sweep(shard, 12)
        assert states(shard, late + fine) == {"queued"}
        assert [lease.job.key for lease in shard.claim(200, ("late",))] == late
        assert [lease.job.key for lease in shard.claim(200, ("k1",))][1:] == fine
        shard.check()


def test_when_they_were_to_run_is_not_forgotten(shard: Any) -> None:
    with limited(SMALL):
        shard.enqueue(40, kind="late", delay_ms=60_000)
        planned = shard.now + 60_000
        crowd(shard)
        shard.now += 120_000
        sweep(shard, 4)
        assert {lease.job.scheduled_ms for lease in shard.claim(40, ("late",))} == {planned}


# ── More of them than the head holds ─────────────────────────────────────────
TIGHT = {
    "READY_BYTES_MAX": 1_600,
    "TAIL_BYTES_MAX": 1_200,
    "DELAYED_BYTES_MAX": 600,
    "BLOCK_BYTES_MAX": 400,
    "FINISHED_BYTES_MAX": 4_000,
}


@pytest.fixture
def tight() -> Iterator[None]:
    with limited(TIGHT):
        yield


def crowded(shard: Any) -> list[bytes]:
    """A shard whose head is full of jobs that became due, and more of them are; all of them, by due time."""
    keys = [key for at in range(20) for key in shard.enqueue(10, delay_ms=60_000 + at)]
    shard.now += 120_000
    sweep(shard, 4)
    assert shard.state.lanes[0].backlog.tail
    assert shard.state.delayed.spans
    return keys


def test_all_who_try_one_commit_spill_the_same_for_due_jobs(tight: None, shard: Any) -> None:
    crowded(shard)
    spilled = False
    for _ in range(12):
        others = [copy.deepcopy(shard) for _ in range(3)]
        for at, other in enumerate(others):
            other.chance = random.Random(at)
            other.now += 7 * at
        for turn in others, [shard]:
            for at, each in enumerate(turn):
                each.apply(EnqueueJobs((each.new(bytes(at)),)), env=f"w{at}")
        written = [{item.name for item in each.last.objects} for each in (shard, *others)]
        assert written == [written[0]] * len(written)
        spilled |= bool(written[0])
        if not shard.state.delayed.spans:
            break
    assert spilled


def test_no_commit_spills_what_it_has_promoted(tight: None, shard: Any) -> None:
    crowded(shard)
    promoted = 0
    while shard.state.delayed.spans:
        told = len(shard.events)
        sweep(shard)
        due = {event.key for event in shard.events[told:] if event.cause == "due"}
        promoted += len(due)
        spilled = {
            job.key
            for item in shard.last.objects
            for _, block in decode_blocks(item.body, _first(item), item.name)
            for job in block.jobs
        }
        assert due
        assert not due & spilled
    assert promoted > 50


def _first(item: StagedObject) -> int:
    footer = decode_footer(item.body, item.name)
    assert isinstance(footer, Footer)
    return footer.blocks[0].length


def test_more_due_jobs_than_the_head_holds_come_in_the_order_of_their_due_times(
    tight: None, shard: Any
) -> None:
    keys = [shard.enqueue(1, delay_ms=60_000 + 3 * at)[0] for at in range(150)]
    shard.now += 120_000
    got: list[bytes] = []
    while leases := shard.claim(7):
        got += [lease.job.key for lease in leases]
        shard.apply(CompleteJobs(tuple(Completion(lease.job.key, lease.token) for lease in leases)))
    assert got == keys


def test_due_jobs_of_a_lane_that_nobody_works_for_keep_no_others_waiting(tight: None, shard: Any) -> None:
    idle = [key for at in range(20) for key in shard.enqueue(10, kind="idle", delay_ms=60_000 + at)]
    urgent = shard.enqueue(5, kind="busy", priority=0, delay_ms=60_100)
    shard.now += 120_000
    claims = 0
    got: list[bytes] = []
    while len(got) < len(urgent):
        claims += 1
        got += [lease.job.key for lease in shard.claim(5, kinds=("busy",))]
        assert claims <= len(idle) * 90 // (TIGHT["TAIL_BYTES_MAX"] // 4)
    assert got == urgent


class Counted(WrappedStore):
    """A store that counts the bytes that are written."""

    written = 0

    def perform(self, request: Any) -> Any:
        self.written += len(getattr(request, "body", b""))
        return self.inner.perform(request)

    async def perform_async(self, request: Any) -> Any:
        return self.perform(request)


def test_polls_of_an_idle_worker_write_little(machine: Any) -> None:
    store = Counted(MemoryStore(machine))
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    q.enqueue_many([{"payload": 0, "kind": f"k{at}"} for at in range(limits.LANES_MAX)])
    q.enqueue_many([{"payload": "x" * 100, "kind": "late", "delay": 60} for _ in range(3_000)])
    machine.advance(120)
    for _ in range(2):
        before = store.written
        for _ in range(50):
            assert q.claim(kinds=["nothing"]) == []
        assert store.written - before < 2_000_000
        machine.advance(60)
    got = 0
    while leases := q.claim(limit=200, kinds=["late"]):
        q.complete_many(leases)
        got += len(leases)
    assert got == 3_000


def test_the_age_of_the_oldest_job_counts_from_when_it_could_be_claimed(machine: Any) -> None:
    q = Queue[Any](MemoryStore(machine), "q", machine=machine)
    q.enqueue("x", delay=3_600)
    machine.advance(3_610)
    q.reap()
    assert q.stats()["oldest_seconds"] == 10
    machine.advance(90)
    assert q.stats()["oldest_seconds"] == 100
    (lease,) = q.claim()
    machine.advance(20)
    lease.fail("no", retry_in=2)
    machine.advance(7)
    q.reap()
    assert q.stats()["oldest_seconds"] == 7  # a retry counts from the end of its last attempt


@pytest.mark.parametrize("lanes", [0, 1, 3, 7])
def test_a_commit_spills_nothing_that_it_has_promoted_itself(lanes: int) -> None:
    """Else what one attempt writes is another object than what the next one does."""

    def job(at: int, kind: str, due_ms: int = 0) -> JobRecord:
        return JobRecord(
            at.to_bytes(16, "big"), b"x" * 230, 1_000, 5, kind, due_ms=due_ms, scheduled_ms=due_ms
        )

    due = [job(at, "due", 1_000 + at) for at in range(1_000, 2_000)]
    data, span = encode_segment(due, "segments/000000000001-aaaa")
    blocks = {(span.name, at): block for at, block in decode_blocks(data, span.length, span.name)}
    others = [job(at, f"kind {at}") for at in range(lanes)]
    state = State(
        commit=bytes(16),
        epoch=1,
        seq=5,
        now_ms=1_000,
        lanes=tuple(Lane(5, each.kind, Backlog((each,), ready_bytes=job_weight(each))) for each in others),
        delayed=Delayed((), (span,), 0),
    )
    done = reduce(state, [], ReductionContext(10_000, bytes(15) + b"\1", 1, blocks))
    assert done.objects == ()
    assert sum(event.cause == "due" for event in done.events) > 50
