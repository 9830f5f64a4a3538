"""Mixed lanes: any number of kinds, each in its own order, found without reading what lies between."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from osqueue import limits
from osqueue.core.claim_search import has_claimable
from osqueue.core.encoding import encode_index, encode_segment, staged_name
from osqueue.core.job_ops import (
    AttachSpans,
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    LeaseRef,
    ReleaseJobs,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.settings import KindSettings
from osqueue.core.state import MIXED, JobRecord, LeaseRecord
from tests.support.shard import Shard

SMALL = {
    "LANES_MAX": 2,
    "READY_BYTES_MAX": 1_200,
    "TAIL_BYTES_MAX": 800,
    "BLOCK_BYTES_MAX": 500,
    "LABELS_BYTES_MAX": 200,
    "LABELS_OF_A_SPAN_BYTES_MAX": 40,
    "FANOUT": 3,
}


def finish(shard: Shard, leases: tuple[LeaseRecord, ...]) -> list[bytes]:
    if leases:
        shard.apply(CompleteJobs(tuple(Completion(each.job.key, each.token) for each in leases)))
    return [each.job.key for each in leases]


def take_all(shard: Shard, limit: int = 7, kinds: tuple[str, ...] | None = None) -> list[bytes]:
    taken: list[bytes] = []
    while more := finish(shard, shard.claim(limit, kinds)):
        taken += more
    return taken


def is_mixed(shard: Shard) -> bool:
    return any(lane.kind == MIXED for lane in shard.state.lanes)


def test_any_number_of_kinds_waits_and_comes_out_in_the_order_of_its_coming(
    small: None, shard: Shard
) -> None:
    keys = [shard.enqueue(kind=f"k{at % 50}")[0] for at in range(300)]
    assert is_mixed(shard)
    assert len(shard.state.lanes) == SMALL["LANES_MAX"] + 1
    assert take_all(shard) == keys


def test_a_kind_behind_all_others_is_found_and_nothing_is_written_twice(small: None, shard: Shard) -> None:
    others = [shard.enqueue(kind=f"k{at % 9}")[0] for at in range(400)]
    rare = shard.enqueue(3, kind="rare")
    segments = set(shard.objects)
    assert take_all(shard, 2, ("rare",)) == rare
    fresh = [name for name in shard.objects if name not in segments]
    assert not [name for name in fresh if shard.objects[name].startswith(b"OSQB")]
    assert take_all(shard) == others


def test_what_lies_between_is_not_read(shard: Shard) -> None:
    """At the real limits: 200,000 jobs of 5,000 kinds in front, staged as a bulk is."""
    shard.checked = False
    jobs = [JobRecord(shard.key(), b"1", 1, kind=f"kind-{at % 5_000}") for at in range(40_000)]
    spans = []
    for start in range(0, len(jobs), 10_000):
        name = staged_name("segments", shard.state.seq, start)
        shard.objects[name], span = encode_segment(jobs[start : start + 10_000], name, mixed=True)
        spans.append(span)
    name = staged_name("segments", shard.state.seq, 99)
    shard.objects[name], index = encode_index(spans, name)
    for at in range(limits.LANES_MAX):
        shard.enqueue(kind=f"own-{at}")
    shard.apply(AttachSpans(5, MIXED, (index,)))
    rare = shard.enqueue(kind="rare")
    shard.reads = 0
    assert finish(shard, shard.claim(1, ("rare",))) == rare
    assert shard.reads <= 1
    shard.reads = 0
    (lease,) = shard.claim(1, ("kind-4999",))
    assert lease.job.key == jobs[4_999].key
    assert shard.reads <= 4
    shard.checked = True
    shard.check()


def test_new_kinds_get_lanes_again_once_the_mixed_lane_is_empty(small: None, shard: Shard) -> None:
    keys = [shard.enqueue(kind=f"k{at}")[0] for at in range(30)]
    assert is_mixed(shard)
    assert take_all(shard) == keys
    shard.enqueue(kind="another")
    assert [lane.kind for lane in shard.state.lanes] == ["another"]


def test_priorities_are_strict_between_mixed_lanes(small: None, shard: Shard) -> None:
    late = [shard.enqueue(kind=f"k{at}", priority=7)[0] for at in range(60)]
    soon = [shard.enqueue(kind=f"k{at}", priority=2)[0] for at in range(60)]
    assert take_all(shard) == soon + late


def test_a_kinds_older_jobs_in_its_own_lane_come_before_those_in_the_mixed_one(
    small: None, shard: Shard
) -> None:
    first = shard.enqueue(3, kind="a")
    for at in range(20):
        shard.enqueue(kind=f"k{at}")
    second = shard.enqueue(3, kind="a")
    assert take_all(shard, 4, ("a",)) == first + second


def test_closed_kinds_are_passed_over_and_keep_their_place(small: None, shard: Shard) -> None:
    for at in range(3):
        shard.enqueue(kind=f"own{at}")
    closed = shard.enqueue(100, kind="closed")
    open_ = shard.enqueue(20, kind="open")
    shard.apply(ChangeSettings(kinds=(KindSettings("closed", paused=True),)))
    assert set(take_all(shard)) >= set(open_)
    outcome = shard.apply(ClaimJobs(1, "w", 30_000))[0]
    assert (outcome.code, outcome.leases) == (Code.KINDS_PAUSED, ())
    assert not has_claimable(shard.state)
    shard.apply(ChangeSettings(kinds_dropped=("closed",)))
    assert has_claimable(shard.state)
    assert take_all(shard) == closed


def test_a_running_limit_of_a_kind_in_a_mixed_lane_holds(small: None, shard: Shard) -> None:
    for at in range(3):
        shard.enqueue(kind=f"own{at}")
    keys = shard.enqueue(60, kind="few")
    others = shard.enqueue(10, kind="many")
    shard.apply(ChangeSettings(kinds=(KindSettings("few", max_running=2),)))
    held = shard.claim(100)
    assert [each.job.key for each in held if each.job.kind == "few"] == keys[:2]
    assert [each.job.key for each in held if each.job.kind == "many"] == others
    finish(shard, held)
    assert [each.job.key for each in shard.claim(100)] == keys[2:4]


def test_a_job_that_comes_back_is_the_first_of_its_kind(small: None, shard: Shard) -> None:
    for at in range(40):
        shard.enqueue(kind=f"k{at % 10}")
    (lease,) = shard.claim(1, ("k7",))
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
    assert shard.claim(1, ("k7",))[0].job.key == lease.job.key


def test_a_job_that_was_taken_out_of_a_segment_can_be_spilled_and_taken_again(
    small: None, shard: Shard
) -> None:
    """Its first place is struck out by where it lay, not by its key."""
    for at in range(120):
        shard.enqueue(kind=f"k{at % 10}")
    rare = shard.enqueue(10, kind="rare")
    for at in range(60):
        shard.enqueue(kind=f"k{at % 10}")
    leases = shard.claim(10, ("rare",))
    shard.apply(ReleaseJobs(tuple(LeaseRef(each.job.key, each.token) for each in leases)))
    shard.enqueue(60, kind="k3")
    assert take_all(shard, 3, ("rare",)) == rare
    assert len(take_all(shard)) == 240


@pytest.mark.parametrize("seed", range(30))
def test_each_kind_is_first_in_first_out_whatever_is_asked_for(
    small: None, new_shard: Callable[..., Shard], seed: int
) -> None:
    """Against the plainest model: a list for each kind, from which every claim takes the first."""
    shard = new_shard(seed=seed)
    dice = random.Random(seed)
    names = [f"k{at}" for at in range(12)]
    queues: dict[str, list[bytes]] = {name: [] for name in names}
    held: list[LeaseRecord] = []

    def enqueue() -> None:
        count = dice.choice((1, 3, 20))
        kinds = [dice.choice(names) for _ in range(count)]
        news = tuple(shard.new(kind=kind) for kind in kinds)
        shard.apply(EnqueueJobs(news))
        for new in news:
            queues[new.kind].append(new.key)

    def attach() -> None:
        kind = dice.choice((*names, MIXED))
        kinds = [dice.choice(names) if kind == MIXED else kind for _ in range(12)]
        jobs = [JobRecord(shard.key(), b"1", 1, kind=each) for each in kinds]
        name = staged_name("segments", shard.state.seq, dice.getrandbits(40))
        shard.objects[name], span = encode_segment(jobs, name, mixed=kind == MIXED)
        shard.apply(AttachSpans(5, kind, (span,)))
        for job in jobs:
            queues[job.kind].append(job.key)

    def claim() -> None:
        kinds = None if dice.random() < 0.3 else tuple(dice.sample(names, dice.choice((1, 2, 5))))
        limit = dice.choice((1, 4, 9))
        leases = shard.claim(limit, kinds)
        waiting = sum(len(queues[kind]) for kind in kinds or names)
        assert len(leases) == min(limit, waiting)
        for lease in leases:
            assert queues[lease.job.kind].pop(0) == lease.job.key
            assert kinds is None or lease.job.kind in kinds
        held.extend(leases)

    def end() -> None:
        dice.shuffle(held)
        some = [held.pop() for _ in range(min(len(held), 4))]
        if some and dice.random() < 0.5:
            some.sort(key=lambda each: each.job.key)
            shard.apply(ReleaseJobs(tuple(LeaseRef(each.job.key, each.token) for each in some)))
            for lease in reversed(some):
                queues[lease.job.kind].insert(0, lease.job.key)
        elif some:
            finish(shard, tuple(some))

    def cancel() -> None:
        kind = dice.choice(names)
        if queues[kind] and shard.where(queues[kind][-1]) == "queued":
            code = shard.apply(CancelJob(queues[kind][-1]))[0].code
            if code == Code.CANCELLED:
                queues[kind].pop()

    for _ in range(120):
        dice.choice((enqueue, enqueue, attach, claim, claim, claim, end, cancel))()
    finish(shard, tuple(held))
    assert sorted(take_all(shard)) == sorted(key for each in queues.values() for key in each)


@pytest.mark.usefixtures("small")
def test_claims_of_a_common_kind_do_not_read_again_what_others_have_passed(shard: Shard) -> None:
    """Most workers name the kinds that they have handlers for."""
    for _ in range(4):
        kinds = ["rare" if at == 7 else "common" for at in range(100)]
        shard.apply(EnqueueJobs(tuple([shard.new(group="g", kind=kind) for kind in kinds])))
    shard.apply(ChangeSettings(group_running=0))
    most = 0
    while leases := shard.claim(3, ("common",)):
        before = shard.reads
        finish(shard, leases)
        finish(shard, shard.claim(3, ("common",)))
        most = max(most, shard.reads - before)
    assert most <= 8, most
    assert len(take_all(shard)) == 4
