"""A backlog of any depth: first in, first out through segments and indexes, in a head that stays small."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osqueue.core.encoding import Block, decode_blocks, decode_index, encode_segment, staged_name
from osqueue.core.job_ops import AttachSpans, CancelJob, ClaimJobs, FailedAttempt, FailJobs
from osqueue.core.labels import labels_of_kind
from osqueue.core.ops import Code
from osqueue.core.queue_ops import RedriveJobs, RunTimers
from osqueue.core.state import MIXED, JobRecord
from simulation.tight import limited

SMALL = {
    "READY_BYTES_MAX": 600,
    "TAIL_BYTES_MAX": 500,
    "DELAYED_BYTES_MAX": 600,
    "DEAD_BYTES_MAX": 800,
    "FINISHED_BYTES_MAX": 2_000,
    "BLOCK_BYTES_MAX": 200,
    "FANOUT": 4,
}


@pytest.fixture
def small() -> Iterator[None]:
    """Budgets so small that a few jobs overflow them."""
    with limited(SMALL):
        yield


def keys_of(leases: Any) -> list[bytes]:
    return [lease.job.key for lease in leases]


def finish(shard: Any, leases: Any) -> None:
    """Complete leases, so that they do not fill the lease budget."""
    from osqueue.core.job_ops import CompleteJobs, Completion

    shard.apply(CompleteJobs(tuple(Completion(lease.job.key, lease.token) for lease in leases)))


def drain(shard: Any, limit: int) -> list[bytes]:
    """Claim and complete until nothing comes; the keys in order."""
    keys: list[bytes] = []
    while leases := shard.claim(limit):
        keys.extend(keys_of(leases))
        finish(shard, leases)
    return keys


def place_in(shard: Any, span: Any, key: bytes) -> tuple[JobRecord, int, int] | None:
    """A job's record, block offset and index in a span or below it."""
    data = shard.objects[span.name]
    if span.level:
        for child in decode_index(data, span.name):
            if found := place_in(shard, child, key):
                return found
        return None
    for offset, block in decode_blocks(data[span.offset :], span.length, span.name):
        for index, job in enumerate(block.jobs):
            if job.key == key:
                return job, span.offset + offset, index
    return None


def cancel_deep(shard: Any, spans: Any, key: bytes) -> Code:
    """Cancel a job in a segment by the evidence a caller would bring."""
    for span in spans:
        if found := place_in(shard, span, key):
            job, offset, index = found
            return shard.apply(CancelJob(key, job, span.name, offset, index))[0].code
    raise AssertionError("not in these spans")


def staged(shard: Any, jobs: list[JobRecord], number: int = 0) -> Any:
    """Write a segment as a bulk would; its span."""
    name = staged_name("segments", shard.state.seq, shard.chance.getrandbits(64), number)
    shard.objects[name], span = encode_segment(jobs, name)
    return span


# ── First in, first out, at any depth ────────────────────────────────────────
def test_six_thousand_jobs_one_by_one_come_out_in_order(small: None, new_shard: Callable[..., Any]) -> None:
    shard = new_shard(checked=False)
    keys = [shard.enqueue()[0] for _ in range(6_000)]
    (lane,) = shard.state.lanes
    assert max(span.level for span in lane.backlog.spans) >= 4  # indexes of indexes
    assert len(lane.backlog.spans) < 40
    assert shard.head_bytes_most < 12_000
    shard.check()
    assert drain(shard, 25) == keys
    assert shard.head_bytes_most < 60_000  # with the leases and finished jobs of some claims


def test_jobs_enqueued_while_others_are_claimed_keep_the_order(
    small: None, new_shard: Callable[..., Any]
) -> None:
    shard = new_shard(seed=3, checked=False)
    sent: list[bytes] = []
    got: list[bytes] = []
    for turn in range(3_000):
        sent.extend(shard.enqueue(1 + shard.chance.randrange(4)))
        leases = shard.claim(1 + shard.chance.randrange(3))
        got.extend(keys_of(leases))
        finish(shard, leases)
        if turn % 500 == 0:
            shard.check()
    assert got + drain(shard, 50) == sent


def test_lanes_do_not_mix_when_all_of_them_overflow(small: None, new_shard: Callable[..., Any]) -> None:
    shard = new_shard(checked=False)
    lanes: dict[tuple[int, str], list[bytes]] = {}
    for turn in range(1_600):
        priority, kind = turn % 4, "abcd"[turn // 4 % 4]
        lanes.setdefault((priority, kind), []).extend(shard.enqueue(priority=priority, kind=kind))
    shard.check()
    assert shard.head_bytes_most < 30_000
    for wanted in "abcd":
        keys = [key for (_, kind), each in sorted(lanes.items()) for key in each if kind == wanted]
        got: list[bytes] = []
        while leases := shard.claim(7, kinds=(wanted,)):
            got.extend(keys_of(leases))
            finish(shard, leases)
        assert got == keys


def test_kinds_of_one_priority_come_oldest_first_through_segments(
    small: None, new_shard: Callable[..., Any]
) -> None:
    shard = new_shard(checked=False)
    keys = [shard.enqueue(kind="ab"[at % 2])[0] for at in range(200)]
    assert drain(shard, 1) == keys


def test_a_claim_goes_on_across_the_end_of_a_block_and_of_a_segment(small: None, shard: Any) -> None:
    keys = shard.enqueue(100)
    assert keys_of(shard.claim(60)) == keys[:60]


def test_a_claim_that_may_not_read_segments_takes_nothing_out_of_turn(small: None, shard: Any) -> None:
    keys = shard.enqueue(100)
    low = shard.enqueue(priority=9)
    held = len(shard.state.lanes[0].backlog.ready)
    shard.claim(held)
    done = shard.commit([shard.request(ClaimJobs(5, "ada", 30_000))], load=False)
    assert done.missing
    assert not done.changed
    assert shard.drain(50) == [*keys[held:], *low]


def test_a_job_released_in_front_of_a_deep_backlog_comes_next(small: None, shard: Any) -> None:
    from osqueue.core.job_ops import LeaseRef, ReleaseJobs

    keys = shard.enqueue(200)
    leases = shard.claim(30)
    shard.apply(ReleaseJobs(tuple(LeaseRef(lease.job.key, lease.token) for lease in leases)))
    assert shard.drain(40) == keys


# ── Cancelling inside segments ───────────────────────────────────────────────
def test_a_job_is_cancelled_inside_a_segment_and_inside_a_folded_index(small: None, shard: Any) -> None:
    keys = [key for _ in range(40) for key in shard.enqueue(10)]
    spans = shard.state.lanes[0].backlog.spans
    folded = next(span for span in spans if span.level > 0)
    plain = next(span for span in spans if span.level == 0)
    doomed = [shard.inside(folded)[5].key, shard.inside(plain)[2].key]
    for key in doomed:
        assert cancel_deep(shard, shard.state.lanes[0].backlog.spans, key) == Code.CANCELLED
        assert shard.where(key) == "cancelled"
    assert drain(shard, 30) == [key for key in keys if key not in doomed]
    assert shard.state.tombstones == ()


def test_cancelling_twice_inside_a_segment_is_one_cancel(small: None, shard: Any) -> None:
    keys = shard.enqueue(100)
    spans = shard.state.lanes[0].backlog.spans
    job, offset, index = (
        place_in(shard, spans[0], keys[50]) or place_in(shard, spans[-1], keys[50]) or (None, 0, 0)
    )
    assert job is not None
    name = next(span.name for span in spans if place_in(shard, span, keys[50]))
    op = CancelJob(keys[50], job, name, offset, index)
    assert shard.apply(op)[0].code == Code.CANCELLED
    assert shard.apply(op)[0].code == Code.CANCELLED  # its record lives
    shard.apply(RunTimers(flush=True))
    assert shard.apply(op)[0].code == Code.NOT_FOUND  # it was archived, the tombstone stays
    assert shard.state.counters.cancelled == 1


def test_evidence_from_a_segment_that_moved_on_cancels_nothing(small: None, shard: Any) -> None:
    keys = shard.enqueue(100)
    span = shard.state.lanes[0].backlog.spans[0]
    victim = shard.inside(span)[0].key
    found = place_in(shard, span, victim)
    assert found is not None
    job, offset, index = found
    shard.claim(keys.index(victim) + 1)
    assert shard.apply(CancelJob(victim, None, "", 0, 0))[0].code == Code.PROCESSING
    shard.apply(RunTimers())
    finish(shard, tuple(shard.state.leases.values()))
    shard.apply(RunTimers(flush=True))
    assert shard.apply(CancelJob(victim, job, span.name, offset, index))[0].code == Code.RETRY
    assert not shard.state.tombstones


def test_the_sixty_fifth_tombstone_has_to_wait_for_a_rewrite(small: None, shard: Any) -> None:
    for _ in range(20):
        shard.enqueue(20)
    inside = [job.key for span in shard.state.lanes[0].backlog.spans for job in shard.inside(span)]
    for key in inside[:64]:
        assert cancel_deep(shard, shard.state.lanes[0].backlog.spans, key) == Code.CANCELLED
    assert cancel_deep(shard, shard.state.lanes[0].backlog.spans, inside[64]) == Code.RETRY
    assert not shard.last.changed


# ── Delayed jobs ─────────────────────────────────────────────────────────────
def test_thousands_of_delayed_jobs_become_due_in_order(small: None, new_shard: Callable[..., Any]) -> None:
    shard = new_shard(checked=False)
    due: list[tuple[int, bytes]] = []
    for _ in range(1_500):
        delay = shard.chance.randrange(1, 1_000_000)
        due.append((delay, shard.enqueue(delay_ms=delay)[0]))
    assert len(shard.state.delayed.spans) <= 20  # merged as they came
    assert shard.head_bytes_most < 8_000
    shard.check()
    start, got = shard.now, []
    for step in range(0, 1_010_000, 10_000):
        shard.now = start + step
        got.extend(drain(shard, 100))
    assert got == [key for _, key in sorted(due)]


def test_delayed_jobs_that_all_became_due_meanwhile_come_by_due_time(
    small: None, new_shard: Callable[..., Any]
) -> None:
    shard = new_shard()
    due = []
    for _ in range(100):
        delay = shard.chance.randrange(1, 1_000_000)
        due.append((delay, shard.enqueue(delay_ms=delay)[0]))
    shard.now += 2_000_000
    assert drain(shard, 30) == [key for _, key in sorted(due)]


def test_delayed_segments_are_merged_however_large_each_new_one_is(
    small: None, new_shard: Callable[..., Any]
) -> None:
    shard = new_shard(checked=False)
    for size in range(90, 10, -1):  # every new one is the smallest so far
        shard.enqueue(size, delay_ms=1_000_000)
    assert len(shard.state.delayed.spans) < 32
    shard.check()


def test_a_delayed_job_is_cancelled_inside_its_segment(small: None, shard: Any) -> None:
    keys = shard.enqueue(60, delay_ms=60_000)
    spans = shard.state.delayed.spans
    victim = shard.inside(spans[0])[3].key
    assert cancel_deep(shard, spans, victim) == Code.CANCELLED
    assert shard.events[-1].origin == "scheduled"
    shard.now += 60_000
    assert sorted(drain(shard, 100)) == sorted(set(keys) - {victim})
    assert shard.state.tombstones == ()


def test_failing_jobs_are_still_failing_in_a_segment(small: None, shard: Any) -> None:
    shard.enqueue(60)
    leases = shard.claim(60)
    shard.apply(FailJobs(tuple(FailedAttempt(lease.job.key, lease.token, "no", 60_000) for lease in leases)))
    assert sum(span.failing for span in shard.state.delayed.spans) > 0
    assert set(shard.places().values()) == {"failing"}
    shard.now += 60_000
    assert len(shard.drain()) == 60


# ── Dead letters ─────────────────────────────────────────────────────────────
def make_dead(shard: Any, count: int, **fields: Any) -> list[bytes]:
    keys = []
    for _ in range(count):
        shard.enqueue(**fields)
        (lease,) = shard.claim()
        shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "boom", final=True),)))
        keys.append(lease.job.key)
    return keys


def test_dead_letters_overflow_into_segments_and_are_redriven_in_order(small: None, shard: Any) -> None:
    keys = make_dead(shard, 120)
    assert shard.state.dead.spans
    moved = 0
    while moved < 120:
        answer = shard.apply(RedriveJobs(50, 50))[0]
        moved += answer.count
    assert drain(shard, 20) == keys


def test_a_redrive_of_some_kinds_keeps_the_others_in_order(small: None, shard: Any) -> None:
    kinds = {kind: [] for kind in "ab"}
    for at in range(60):
        kinds["ab"[at % 2]].extend(make_dead(shard, 1, kind="ab"[at % 2]))
    shard.apply(RedriveJobs(1_000, 60, kinds=("b",)))
    assert shard.apply(RedriveJobs(1_000, 30))[0].count == 30
    got = drain(shard, 100)
    assert [key for key in got if key in set(kinds["a"])] == kinds["a"]
    assert [key for key in got if key in set(kinds["b"])] == kinds["b"]


def test_a_redrive_that_finds_nothing_changes_nothing(small: None, shard: Any) -> None:
    make_dead(shard, 30)
    (answer,) = shard.apply(RedriveJobs(10, 1_000, error="another text"))
    assert answer.runs[0] == (Code.OK, 0)
    assert not shard.last.changed


# ── Bulks ────────────────────────────────────────────────────────────────────
def bulk_jobs(shard: Any, count: int, due_ms: int = 0, **fields: Any) -> list[JobRecord]:
    return [JobRecord(shard.key(), b"1", shard.now, due_ms=due_ms, **fields) for _ in range(count)]


def test_an_attached_bulk_stands_between_what_was_there_and_what_comes(small: None, shard: Any) -> None:
    before = shard.enqueue(30)
    jobs = bulk_jobs(shard, 300)
    spans = (staged(shard, jobs[:200]), staged(shard, jobs[200:], 1))
    assert shard.apply(AttachSpans(5, "", spans))[0].code == Code.QUEUED
    after = shard.enqueue(30)
    assert drain(shard, 50) == [*before, *(job.key for job in jobs), *after]
    assert shard.state.counters.enqueued == 360


def test_an_attached_bulk_of_delayed_jobs_becomes_due_in_order(small: None, shard: Any) -> None:
    jobs = [JobRecord(shard.key(), b"1", shard.now, due_ms=shard.now + 1_000 * at) for at in range(1, 101)]
    assert shard.apply(AttachSpans(0, "", (staged(shard, jobs),), delayed=True))[0].code == Code.SCHEDULED
    shard.now += 50_000
    assert drain(shard, 100) == [job.key for job in jobs[:50]]
    shard.now += 50_000
    assert drain(shard, 100) == [job.key for job in jobs[50:]]


def test_a_bulk_staged_before_the_collectors_floor_is_refused(small: None, shard: Any) -> None:
    from osqueue.core.queue_ops import RaiseGcFloor

    spans = (staged(shard, bulk_jobs(shard, 10)),)
    shard.enqueue()
    shard.apply(RaiseGcFloor(1))
    assert shard.apply(AttachSpans(5, "", spans))[0].code == Code.STALE
    assert not shard.last.changed


def test_a_bulk_of_a_kind_without_a_lane_joins_the_mixed_one_and_is_labelled(shard: Any) -> None:
    for at in range(16):
        shard.enqueue(kind=f"k{at}")
    jobs = bulk_jobs(shard, 10, kind="new")
    assert shard.apply(AttachSpans(5, "new", (staged(shard, jobs),)))[0].code == Code.QUEUED
    (lane,) = [lane for lane in shard.state.lanes if lane.kind == MIXED]
    assert [span.labels for span in lane.backlog.spans] == [labels_of_kind("new")]
    assert [lease.job.key for lease in shard.claim(20, ("new",))] == [job.key for job in jobs]


def test_a_block_is_never_larger_than_its_budget(shard: Any) -> None:
    data, span = encode_segment([JobRecord(shard.key(), bytes(900), 1) for _ in range(500)], "segments/x")
    sizes = [(offset, block) for offset, block in decode_blocks(data, span.length, "segments/x")]
    offsets = [offset for offset, _ in sizes]
    assert all(isinstance(block, Block) for _, block in sizes)
    assert max(b - a for a, b in itertools.pairwise(offsets)) <= 32 * 1024
