"""Many jobs cancelled at once: wherever they wait, and none that comes later."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.core import drop_rules
from osqueue.core.drop_rules import preview, rule_of
from osqueue.core.encoding import encode_index, encode_segment, staged_name
from osqueue.core.job_ops import (
    AttachSpans,
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    LeaseRef,
    ReleaseJobs,
    ReplaceJobs,
    Replacement,
    RunJobNow,
    SpanSwap,
)
from osqueue.core.ops import Code, Outcome
from osqueue.core.queue_ops import CancelJobs, ChangeBatch, ChangeSettings, RedriveJobs, RunTimers
from osqueue.core.rows import BatchRow
from osqueue.core.state import CANCELLED, MIXED, NO_DROPS, JobRecord, LeaseRecord, Span
from tests.support.shard import Shard

SMALL = {
    "READY_BYTES_MAX": 900,
    "TAIL_BYTES_MAX": 700,
    "DELAYED_BYTES_MAX": 700,
    "DEAD_BYTES_MAX": 600,
    "BLOCK_BYTES_MAX": 500,
    "SEGMENT_BYTES_MAX": 2_000,
    "READ_AHEAD_BYTES_MAX": 1_000,
    "FANOUT": 3,
    "DELAYED_SPANS_SOFT": 4,
    "LANES_MAX": 3,
    "DROPPED_PER_COMMIT_MAX": 12,
    "PROMOTED_PER_COMMIT_MAX": 20,
    "FINISHED_BYTES_MAX": 2_000,
}


def numbers(found: Outcome) -> tuple[int, ...]:
    """Cancelled at once, asked, and about how many wait deeper."""
    assert [code for code, _ in found.runs] == [Code.CANCELLED, Code.PROCESSING, Code.OK]
    return tuple(count for _, count in found.runs)


def cancel(
    shard: Shard, *kinds: str, group: str | None = None, before_ms: int = 0, batch: bytes = b""
) -> tuple[int, ...]:
    op = CancelJobs(kinds or None, group, before_ms, batch)
    foreseen = preview(shard.state, op)
    (found,) = shard.apply(op)
    assert sum(foreseen) == sum(numbers(found))
    return numbers(found)


def sweep(shard: Shard) -> int:
    """As the reaper does; how many commits it took."""
    for count in range(1, 500):
        (found,) = shard.apply(RunTimers(flush=True))
        if found.runs[0][0] != Code.RETRY:
            return count
    raise AssertionError("it never ends")


def ended(shard: Shard) -> dict[bytes, str]:
    """What became of the jobs that are over."""
    return {key: state for key, state in {**shard.left, **shard.places()}.items() if state == CANCELLED}


def staged(shard: Shard, kind: str, count: int, born: int, due_ms: int = 0, group: str = "") -> Span:
    """A segment of a bulk."""
    jobs = [
        JobRecord(shard.key(), b"1", shard.now, kind=kind, due_ms=due_ms, group=group) for _ in range(count)
    ]
    name = staged_name("segments", born, shard.chance.getrandbits(40))
    shard.objects[name], span = encode_segment(jobs, name, mixed=bool(group) or kind == MIXED)
    return span


# ── In one commit ────────────────────────────────────────────────────────────
def test_what_is_in_the_head_ends_at_once_and_no_rule_stays(shard: Shard) -> None:
    mine, other = shard.enqueue(3, kind="a"), shard.enqueue(2, kind="b")
    later = shard.enqueue(2, kind="a", delay_ms=60_000)
    (lease,) = shard.claim(1, ("a",))
    assert cancel(shard, "a") == (4, 1, 0)
    assert shard.state.drops is NO_DROPS or shard.state.drops == NO_DROPS
    assert {shard.where(key) for key in (*mine[1:], *later)} == {CANCELLED}
    assert shard.state.leases[lease.job.key].cancel
    assert shard.drain() == other
    (row,) = [row for row in shard.state.finished if row.key == later[0]]
    assert row.why.startswith("by drop rule ")


def test_one_that_runs_ends_however_its_attempt_does(shard: Shard) -> None:
    shard.enqueue(3, kind="a")
    leases = shard.claim(3)
    assert cancel(shard) == (0, 3, 0)
    assert cancel(shard) == (0, 3, 0)
    held = LeaseRef(leases[0].job.key, leases[0].token)
    shard.apply(ReleaseJobs((held,)))
    shard.apply(FailJobs((FailedAttempt(leases[1].job.key, leases[1].token, "no"),)))
    shard.now += limits.LEASE_MS_DEFAULT
    shard.apply(RunTimers())
    assert set(ended(shard)) == {lease.job.key for lease in leases}


def test_nothing_that_is_over_or_dead_is_touched(shard: Shard) -> None:
    done, dead = shard.enqueue(2, max_attempts=1)
    first, second = shard.claim(2)
    shard.apply(CompleteJobs((Completion(first.job.key, first.token),)))
    shard.apply(FailJobs((FailedAttempt(second.job.key, second.token, "no"),)))
    assert cancel(shard) == (0, 0, 0)
    assert (shard.where(done), shard.where(dead)) == ("completed", "failed")


def test_where_nothing_matches_nothing_is_written(shard: Shard) -> None:
    shard.enqueue(2, kind="a")
    before = shard.state
    assert cancel(shard, "b") == (0, 0, 0)
    assert shard.state.seq == before.seq + 1 or shard.state is before
    assert not shard.last or not shard.last.changed


# ── Deep ─────────────────────────────────────────────────────────────────────
def test_no_claim_gives_out_what_lies_deep_and_what_comes_later_stays(small: None, shard: Shard) -> None:
    old = shard.enqueue(90, kind="a")
    at_once, asked, waiting = cancel(shard, "a")
    assert (at_once + waiting, asked) == (90, 0)
    assert waiting > 50
    new = shard.enqueue(30, kind="a")
    got: list[bytes] = []
    for _ in range(60):
        (found,) = shard.apply(ClaimJobs(4, "ada", 30_000))
        got += [lease.job.key for lease in found.leases]
        if found.runs[-1][0] == Code.EMPTY:
            break
    assert got == new
    assert set(ended(shard)) == set(old)
    sweep(shard)
    assert shard.state.drops == NO_DROPS


def test_one_commit_cancels_only_so_many(small: None, shard: Shard) -> None:
    shard.enqueue(90, kind="a")
    before = shard.state.counters.cancelled
    at_once, _, waiting = cancel(shard, "a")
    assert shard.state.counters.cancelled - before == at_once
    before = shard.state.counters.cancelled
    (found,) = shard.apply(ClaimJobs(1, "ada", 30_000))
    assert found.runs == ((Code.RETRY, 0),)
    assert 12 <= shard.state.counters.cancelled - before < 24  # whole blocks
    assert sweep(shard) >= (waiting - 24) // 12
    assert shard.state.drops == NO_DROPS
    assert shard.state.counters.cancelled == 90


def test_a_rule_goes_although_others_wait_where_it_looked(small: None, shard: Shard) -> None:
    mine, others = [], []
    for _ in range(40):
        mine += shard.enqueue(1, kind="a", group="g")
        others += shard.enqueue(2, kind="a", group="h")
    shard.apply(ChangeSettings(group_running=500))
    assert sum(cancel(shard, group="g")) >= 40
    sweep(shard)
    assert shard.state.drops == NO_DROPS
    assert set(ended(shard)) == set(mine)
    assert shard.drain(7) == others
    reads = shard.reads
    assert cancel(shard, group="g") == (0, 0, 0)
    sweep(shard)
    assert shard.reads == reads


def test_a_rule_that_comes_while_a_segment_is_looked_through_is_for_all_of_it(
    small: None, shard: Shard
) -> None:
    span = staged(shard, "a", 30, shard.state.seq, group="g")
    more = [JobRecord(shard.key(), b"1", shard.now, kind=kind, group="g") for kind in "ab" * 30]
    name = staged_name("segments", shard.state.seq, 5)
    shard.objects[name], mixed = encode_segment(more, name, mixed=True)
    shard.apply(AttachSpans(5, MIXED, (mixed, span)))
    cancel(shard, "a")
    shard.apply(RunTimers())
    assert shard.state.drops.place[0] == name  # in the middle of it
    cancel(shard, "b")
    sweep(shard)
    assert len(ended(shard)) == 90


def test_only_what_was_enqueued_before_a_time(small: None, shard: Shard) -> None:
    old = shard.enqueue(40)
    shard.now += 5_000
    then = shard.now
    young = shard.enqueue(40)
    cancel(shard, before_ms=then)
    sweep(shard)
    assert (set(ended(shard)), shard.drain(9)) == (set(old), young)


def test_a_bulk_that_was_staged_before_and_joins_after_it_is_not_covered(small: None, shard: Shard) -> None:
    old = shard.enqueue(60, kind="a")
    spans = [staged(shard, "a", 10, shard.state.seq) for _ in range(3)]
    name = staged_name("segments", shard.state.seq, 1)
    shard.objects[name], index = encode_index(spans, name)
    late = staged(shard, "a", 10, shard.state.seq, due_ms=shard.now + 1_000)
    cancel(shard, "a")
    shard.apply(AttachSpans(5, "a", (index,)), AttachSpans(0, "", (late,), delayed=True))
    sweep(shard)
    assert set(ended(shard)) == set(old)
    shard.now += 2_000
    assert len(shard.drain(9)) == 40


def test_a_bulk_of_the_same_commit_is_one_or_the_other_as_a_whole(small: None, shard: Shard) -> None:
    before, after = (staged(shard, "a", 10, shard.state.seq) for _ in range(2))
    shard.apply(AttachSpans(5, "a", (before,)), CancelJobs(("a",)), AttachSpans(5, "a", (after,)))
    sweep(shard)
    assert (len(ended(shard)), len(shard.drain())) == (10, 10)


def test_what_is_spilled_in_the_same_commit_after_it_is_not_covered(small: None, shard: Shard) -> None:
    shard.enqueue(60, kind="a")
    news = tuple(shard.new(kind="a") for _ in range(40))
    shard.apply(CancelJobs(("a",)), EnqueueJobs(news))
    sweep(shard)
    assert shard.drain(9) == [new.key for new in news]


def test_a_crowded_head_keeps_the_rest_for_later_and_it_is_covered(small: None, shard: Shard) -> None:
    """Many operations of one commit may have put more into the head than it holds."""
    news = tuple(shard.new(kind="a") for _ in range(80))
    delayed = tuple(shard.new(kind="a", delay_ms=60_000) for _ in range(40))
    later = tuple(shard.new(kind="a") for _ in range(30))
    shard.apply(EnqueueJobs((*news, *delayed)), CancelJobs(("a",)), CancelJobs(("a",)), EnqueueJobs(later))
    assert shard.state.counters.cancelled < 40
    sweep(shard)
    assert len(ended(shard)) == 120
    assert shard.drain(9) == [new.key for new in later]


def test_delayed_ones_end_where_they_become_due(small: None, shard: Shard) -> None:
    old = shard.enqueue(60, kind="a", delay_ms=5_000)
    cancel(shard, "a")
    new = shard.enqueue(30, kind="a", delay_ms=5_000)
    shard.now += 6_000
    got: list[bytes] = []
    for _ in range(40):
        got += [lease.job.key for lease in shard.claim(9)]
    assert sorted(got) == sorted(new)
    assert set(ended(shard)) == set(old)


def test_delayed_ones_merge_with_none_that_a_rule_does_not_cover(small: None, shard: Shard) -> None:
    old, new = shard.enqueue(40, kind="a", delay_ms=60_000), []
    cancel(shard, "a")
    for _ in range(12):
        new += shard.enqueue(8, kind="a", delay_ms=60_000)
    sweep(shard)
    assert set(ended(shard)) == set(old)
    assert {shard.where(key) for key in new} == {"scheduled"}


def test_a_redriven_one_is_not_covered(small: None, shard: Shard) -> None:
    (dead,) = shard.enqueue(1, kind="a", max_attempts=1)
    (lease,) = shard.claim()
    shard.apply(FailJobs((FailedAttempt(dead, lease.token, "no"),)))
    shard.enqueue(60, kind="a")
    cancel(shard, "a")
    shard.apply(RedriveJobs(1, 1))
    sweep(shard)
    assert shard.drain() == [dead]


# ── The rows ─────────────────────────────────────────────────────────────────
def test_there_are_so_many_rules_and_equal_ones_are_one(small: None, shard: Shard) -> None:
    for at in range(limits.DROP_RULES_MAX):
        shard.enqueue(25, kind=f"k{at}", group="g")
    for at in range(limits.DROP_RULES_MAX):
        cancel(shard, f"k{at}")
        cancel(shard, f"k{at}")
    assert len(shard.state.drops.rules) == limits.DROP_RULES_MAX
    shard.enqueue(60, kind="more", group="g")
    before = shard.state
    assert shard.apply(CancelJobs(("more",)))[0].code == Code.CROWDED
    assert shard.state.lanes == before.lanes
    sweep(shard)
    cancel(shard, "more")
    sweep(shard)
    assert shard.places().keys() == ended(shard).keys() - shard.left.keys()


def test_a_wider_time_takes_the_place_of_a_narrower_one(small: None, shard: Shard) -> None:
    shard.enqueue(60)
    for before_ms in (5, 9, 7, 0):
        shard.apply(CancelJobs(before_ms=before_ms))
    assert [rule.before_ms for rule in shard.state.drops.rules] == [0]


def test_a_lost_segment_keeps_its_rule_and_others_go_on(small: None, shard: Shard) -> None:
    shard.enqueue(40, kind="a")
    shard.enqueue(40, kind="b")
    cancel(shard, "a", "b")
    (lane, *_) = (lane for lane in shard.state.lanes if lane.kind == "a")
    name = lane.backlog.spans[0].name
    context = shard.context
    lost = frozenset({(name, lane.backlog.spans[0].offset)})
    shard.context = lambda *args: replace(context(*args), unreadable=lost)  # type: ignore[method-assign]
    sweep(shard)
    sweep(shard)  # what ended is shelved
    (rule,) = shard.state.drops.rules
    assert [(kind, span.name) for kind, span in drop_rules.spans_in(shard.state)] == [("a", name)]
    seq = shard.state.seq
    shard.apply(RunTimers())
    assert shard.last
    assert not shard.last.changed
    shard.context = context  # type: ignore[method-assign]
    sweep(shard)
    assert (shard.state.drops, len(ended(shard)), rule.kinds, seq) == (NO_DROPS, 80, ("a", "b"), seq)


# ── Beside others who knew where a job lay ───────────────────────────────────
def _at(shard: Shard, key: bytes) -> tuple[JobRecord, Span]:
    for _, span in drop_rules.spans_in(shard.state):
        for job in shard.inside(span):
            if job.key == key:
                return job, span
    raise AssertionError("it is in no segment")


def test_it_is_not_run_now_nor_replaced_and_a_single_cancel_counts_once(small: None, shard: Shard) -> None:
    keys = shard.enqueue(60, kind="a", delay_ms=60_000, client_id="x", seen=0)
    cancel(shard, "a")
    job, span = _at(shard, keys[-1])
    assert shard.apply(RunJobNow(keys[-1], job, SpanSwap(span, None)))[0].code == Code.RETRY
    job, span = _at(shard, keys[-3])
    evidence = CancelJob(keys[-3], job, span.name, 0, 10_000)
    new = shard.new(kind="a", client_id="x", seen=shard.state.seq)
    assert shard.apply(ReplaceJobs((Replacement(evidence, new),)))[0].code == Code.RETRY
    assert shard.where(keys[-3]) == CANCELLED
    job, span = _at(shard, keys[-5])
    vector = span.vector.name if span.vector else ""
    evidence = CancelJob(keys[-5], job, span.name, 0, 10_000, vector)
    assert shard.apply(evidence)[0].code == Code.CANCELLED
    sweep(shard)
    assert set(ended(shard)) == set(keys)


# ── Against a model ──────────────────────────────────────────────────────────
KINDS, GROUPS = ("a", "b", "c", "d", "e"), ("", "", "g", "h")
What = tuple[str, str, int]  # kind, group, when it was enqueued


class Model:
    """Who waits, by key. A cancellation moves those that match among the doomed, and nothing else does."""

    def __init__(self, shard: Shard, dice: random.Random) -> None:
        self.shard = shard
        self.dice = dice
        self.waiting: dict[bytes, What] = {}
        self.doomed: set[bytes] = set()
        self.held: list[LeaseRecord] = []
        self.bulks: list[tuple[AttachSpans, list[bytes], What]] = []

    def enqueue(self) -> None:
        delay = self.dice.choice((0, 0, 2_000, 20_000))
        news = []
        for _ in range(self.dice.choice((1, 4, 25))):
            kind, group = self.dice.choice(KINDS), self.dice.choice(GROUPS)
            news.append(self.shard.new(kind=kind, group=group, delay_ms=delay, max_attempts=9))
            self.waiting[news[-1].key] = (kind, group, self.shard.now)
        self.shard.apply(EnqueueJobs(tuple(news)))

    def stage(self) -> None:
        kind, group = self.dice.choice(KINDS), self.dice.choice(GROUPS)
        delayed = self.dice.random() < 0.4
        due = self.shard.now + 3_000 if delayed else 0
        span = staged(self.shard, kind, 12, self.shard.state.seq, due, group)
        attach = AttachSpans(5, "" if delayed else MIXED if group else kind, (span,), delayed)
        keys = [job.key for job in self.shard.inside(span)]
        self.bulks.append((attach, keys, (kind, group, self.shard.now)))

    def attach(self) -> None:
        if self.bulks:
            op, keys, what = self.bulks.pop(self.dice.randrange(len(self.bulks)))
            self.shard.apply(op)
            self.waiting.update(dict.fromkeys(keys, what))

    def claim(self) -> None:
        wanted = None if self.dice.random() < 0.4 else tuple(self.dice.sample(KINDS, 2))
        for lease in self.shard.claim(self.dice.choice((1, 5)), wanted):
            assert self.waiting.pop(lease.job.key, None), "it was cancelled, or never waited"
            self.held.append(lease)

    def end(self) -> None:
        self.dice.shuffle(self.held)
        for lease in [self.held.pop() for _ in range(min(len(self.held), 3))]:
            self._end(lease, self.dice.random())

    def _end(self, lease: LeaseRecord, how: float) -> None:
        key = lease.job.key
        asked = self.shard.state.leases[key].cancel
        if how < 0.4:
            self.shard.apply(CompleteJobs((Completion(key, lease.token),)))
            return
        if how < 0.7:
            self.shard.apply(ReleaseJobs((LeaseRef(key, lease.token),), self.dice.choice((0, 2_000))))
        else:
            self.shard.apply(FailJobs((FailedAttempt(key, lease.token, "no", 1_000),)))
        if asked:
            self.doomed.add(key)
        else:
            self.waiting[key] = (lease.job.kind, lease.job.group, lease.job.enqueued_ms)

    def cancel(self) -> None:
        kinds = None if self.dice.random() < 0.3 else tuple(self.dice.sample(KINDS, self.dice.choice((1, 2))))
        op = CancelJobs(
            kinds, self.dice.choice((None, None, "g")), self.dice.choice((0, 0, self.shard.now - 3_000))
        )
        rule = rule_of(op, 0, 0)
        (found,) = self.shard.apply(op)
        for key, (kind, group, came) in list(self.waiting.items()):
            job = JobRecord(key, b"", came, kind=kind, group=group)
            if found.code != Code.CROWDED and drop_rules.matches(rule, job):
                del self.waiting[key]
                self.doomed.add(key)

    def reap(self) -> None:
        self.shard.apply(RunTimers(flush=self.dice.random() < 0.5))

    def wait(self) -> None:
        self.shard.now += self.dice.choice((100, 2_500))


def of_a_batch(shard: Shard, count: int, **fields: Any) -> tuple[bytes, set[bytes]]:
    """A batch that is open, and jobs of it among as many others."""
    batch = shard.key()
    shard.apply(ChangeBatch(batch, BatchRow("march")))
    mine = [shard.new(batch=batch, **fields) for _ in range(count)]
    for job in mine:
        shard.apply(EnqueueJobs((job, shard.new(**fields))))
    return batch, {job.key for job in mine}


def test_a_batch_ends_among_other_jobs_and_later_ones_of_it_do_not(small: None, shard: Shard) -> None:
    batch, mine = of_a_batch(shard, 60, kind="a")
    _, (lease, *_) = shard.claim(1), shard.state.leases.values()
    now, asked, deep = cancel(shard, batch=batch)
    assert now + asked + deep == 60
    assert (asked, shard.state.leases[lease.job.key].cancel) == (1, True)
    assert [rule.batch for rule in shard.state.drops.rules] == [batch]
    late = [shard.new(batch=batch, kind="a") for _ in range(3)]
    shard.apply(EnqueueJobs(tuple(late)))
    sweep(shard)
    assert shard.state.drops == NO_DROPS
    assert set(ended(shard)) == mine - {lease.job.key}
    row = shard.state.batches[batch]
    assert (row.left, row.cancelled) == (1 + 3, 59)
    assert {job.key for job in late} <= set(shard.drain(9))


def test_no_rule_is_left_for_a_batch_that_does_not_lie_deep(small: None, shard: Shard) -> None:
    shard.enqueue(60, kind="a")
    batch, mine = of_a_batch(shard, 1, kind="a")
    assert cancel(shard, batch=batch) == (1, 0, 0)
    assert shard.state.drops == NO_DROPS
    assert set(ended(shard)) == mine


def test_a_rule_of_a_batch_takes_the_place_of_its_own_alone(small: None, shard: Shard) -> None:
    one, two = (of_a_batch(shard, 40, kind="a")[0] for _ in range(2))
    shard.enqueue(40, kind="a")
    for batch in (one, two, one):
        cancel(shard, batch=batch)
    cancel(shard, "a")
    assert [rule.batch for rule in shard.state.drops.rules] == [two, one, b""]


@pytest.mark.parametrize("seed", range(30))
def test_what_waited_and_matched_ends_and_nothing_else(
    small: None, new_shard: Callable[..., Shard], seed: int
) -> None:
    shard = new_shard(seed=seed)
    dice = random.Random(seed)
    shard.apply(ChangeSettings(group_running=dice.choice((1, 3))))
    model = Model(shard, dice)
    more = (model.enqueue, model.enqueue, model.enqueue, model.stage, model.attach)
    less = (model.claim, model.claim, model.end, model.cancel)
    for _ in range(140):
        dice.choice((*more, *less, model.reap, model.wait))()
    sweep(shard)
    assert shard.state.drops == NO_DROPS
    over = {**shard.left, **shard.places()}
    assert {over[key] for key in model.doomed} <= {CANCELLED}
    assert not model.waiting.keys() & ended(shard).keys()
    assert all(over[key] in ("queued", "scheduled", "failing") for key in model.waiting)
