"""Segments of delayed jobs: merged so that few are left, each job is rewritten seldom, and nobody works for nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue import limits
from osqueue.core import spill
from osqueue.core.encoding import decode_blocks, encode_segment, staged_name
from osqueue.core.job_ops import AttachSpans, EnqueueJobs
from osqueue.core.ops import Code
from osqueue.core.queue_ops import CancelJobs, MergeSpans, RaiseGcFloor
from osqueue.core.state import JobRecord, Span, due_order
from simulation.tight import limited

SMALL = {"DELAYED_BYTES_MAX": 600, "BLOCK_BYTES_MAX": 400, "SEGMENT_BYTES_MAX": 16_480}
HOUR_MS = 3_600_000


def attach(shard: Any, sizes: list[int], *, delay_ms: int = HOUR_MS, apart_ms: int = 1) -> None:
    """Segments of so many jobs each, one commit each as if their writers were many."""
    for at, count in enumerate(sizes):
        jobs = [
            JobRecord(shard.key(), bytes(60), shard.now, due_ms=shard.now + delay_ms + place * apart_ms)
            for place in range(count)
        ]
        name = staged_name("segments", shard.state.seq, shard.chance.getrandbits(64), at)
        body, span = partial(encode_segment, jobs)(name)
        shard.objects[name] = body
        shard.apply(AttachSpans(0, "", (span,), delayed=True))


def spans(shard: Any) -> tuple[Span, ...]:
    found: tuple[Span, ...] = shard.state.delayed.spans
    return found


def test_a_merge_that_an_empty_claim_made_is_kept(shard: Any) -> None:
    """So that the next poll does not read the same segments and merge them once more, for nothing."""
    with limited(SMALL):
        attach(shard, [20] * 3)
        with limited({"DELAYED_SPANS_SOFT": 100}):
            attach(shard, [20] * 30)
        assert len(spans(shard)) == 33
        for _ in range(5):
            assert shard.claim() == ()
        assert len(spans(shard)) <= spill.DELAYED_SPANS_SOFT
        reads = shard.reads
        for _ in range(5):
            assert shard.claim() == ()
            assert not shard.last.changed
        assert shard.reads == reads
        shard.check()


def test_large_segments_are_not_rewritten_for_the_sake_of_small_ones(shard: Any) -> None:
    with limited(SMALL):
        shard.checked = False
        attach(shard, [90] * 20)  # no two of them fit into one
        large = {span.name for span in spans(shard)}
        assert len(large) == 20
        before = set(shard.objects)
        for _ in range(300):
            shard.enqueue(payload=bytes(60), delay_ms=HOUR_MS)
        written = sum(len(body) for name, body in shard.objects.items() if name not in before)
        assert large <= {span.name for span in spans(shard)}
        assert len(spans(shard)) <= 20 + 10
        assert written < 8 * 300 * 100
        shard.check()


def test_like_ones_are_merged_although_a_much_smaller_one_lies_beside_them(shard: Any) -> None:
    with limited(SMALL):
        with limited({"DELAYED_SPANS_SOFT": 100}):
            attach(shard, [1, *[20] * 20])
        for _ in range(5):
            shard.claim()
        assert len(spans(shard)) <= spill.DELAYED_SPANS_SOFT
        shard.check()


def test_segments_of_growing_size_never_fill_the_shard(shard: Any) -> None:
    """The worst there can be: each is so much larger than all before it that none is merged."""
    with limited(SMALL):
        size, sizes = 1, []
        while size * 75 < 16_000:
            sizes.append(size)
            size *= 3
        attach(shard, [*sizes, *[90] * 14, *sizes, *sizes])
        for _ in range(10):
            shard.claim()
        assert len(spans(shard)) < spill.DELAYED_SPANS_MAX // 2
        shard.check()


def test_what_is_left_of_a_segment_counts_and_not_what_it_was(shard: Any) -> None:
    """Sixty large ones, of each of which a few jobs are left, do not keep a new job out."""
    with limited(SMALL | {"BLOCK_BYTES_MAX": 4_150}):
        shard.checked = False
        with limited({"DELAYED_SPANS_SOFT": 100}):
            attach(shard, [120] * spill.DELAYED_SPANS_MAX, apart_ms=1_000)
        late = shard.new(delay_ms=HOUR_MS)
        assert shard.apply(EnqueueJobs((late,)))[0].code == Code.DELAYED_LIMIT
        shard.now += HOUR_MS + 117_000
        with limited({"TAIL_BYTES_MAX": 400_000}):
            for _ in range(40):
                shard.claim(1)
        assert sum(span.count for span in spans(shard)) + len(shard.state.delayed.jobs) == 2 * 64
        assert len(spans(shard)) <= spill.DELAYED_SPANS_SOFT
        assert shard.enqueue(delay_ms=HOUR_MS)
        assert shard.apply(EnqueueJobs((shard.new(delay_ms=HOUR_MS),)))[0].code == Code.SCHEDULED
        shard.check()


def merge_of(shard: Any, taken: tuple[Span, ...], born: int | None = None) -> MergeSpans:
    """Write the jobs of whole segments as one segment."""
    jobs = [
        job
        for span in taken
        for _, block in decode_blocks(shard.objects[span.name], span.length, span.name)
        for job in block.jobs
    ]
    name = staged_name("segments", shard.state.seq if born is None else born, shard.chance.getrandbits(64), 0)
    shard.objects[name], merged = encode_segment(sorted(jobs, key=due_order), name)
    return MergeSpans(taken, merged)


def test_a_merge_takes_the_place_of_segments_that_have_not_changed(shard: Any) -> None:
    with limited(SMALL):
        attach(shard, [20, 5, 20])
        first, middle, last = spans(shard)
        merge = merge_of(shard, (first, last))
        assert shard.apply(merge)[0].code == Code.OK
        assert spans(shard) == (middle, merge.merged)
        shard.check()
        shard.now += HOUR_MS + 1_000
        assert sum(len(shard.claim(9)) for _ in range(5)) == 45


def test_a_merge_is_refused_where_a_segment_has_changed_or_the_merge_is_old(shard: Any) -> None:
    with limited(SMALL):
        attach(shard, [20, 20])
        before = spans(shard)
        old, merge = merge_of(shard, before, born=0), merge_of(shard, before)
        shard.apply(RaiseGcFloor(1))
        assert shard.apply(old)[0].code == Code.STALE
        shard.now += HOUR_MS + 3
        assert len(shard.claim(2)) == 2
        changed = spans(shard)
        assert changed != before
        assert shard.apply(merge)[0].code == Code.RETRY
        assert spans(shard) == changed
        shard.check()


def test_a_merge_is_refused_for_segments_of_which_a_rule_covers_some(shard: Any) -> None:
    with limited(SMALL | {"DROPPED_PER_COMMIT_MAX": 1}):
        shard.checked = False
        attach(shard, [20, 20])
        shard.apply(CancelJobs())
        attach(shard, [20])
        old, covered, young = spans(shard)
        assert shard.apply(merge_of(shard, (covered, young)))[0].code == Code.RETRY
        assert shard.apply(merge_of(shard, (old, covered)))[0].code == Code.OK
        assert young in spans(shard)


def test_commits_of_writers_that_collide_merge_later(shard: Any) -> None:
    with limited(SMALL):
        shard.checked = False
        shard.state = replace(shard.state, hot=limits.HOT_COMMITS)
        most = 0
        for _ in range(spill.DELAYED_SPANS_MAX):
            shard.state = replace(shard.state, hot=limits.HOT_COMMITS)
            attach(shard, [20])
            most = max(most, len(spans(shard)))
        assert spill.DELAYED_SPANS_SOFT < most <= spill.DELAYED_SPANS_CROWDED
