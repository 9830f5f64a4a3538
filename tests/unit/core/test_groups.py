"""Groups: order and a running limit for each key, whatever lies between, and what a failure does to them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.core.claim_search import has_claimable
from osqueue.core.encoding import encode_head, encode_segment, staged_name
from osqueue.core.groups import STOP
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
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings, GroupChange, RedriveJobs, RunTimers
from osqueue.core.state import MIXED, JobRecord, LeaseRecord
from simulation.tight import limited
from tests.support.shard import Shard

SMALL = {
    "LANES_MAX": 2,
    "READY_BYTES_MAX": 1_200,
    "TAIL_BYTES_MAX": 800,
    "BLOCK_BYTES_MAX": 500,
    "LABELS_BYTES_MAX": 400,
    "LABELS_OF_A_SPAN_BYTES_MAX": 80,
    "FANOUT": 3,
}


def configure(shard: Shard, **settings: Any) -> None:
    """As an operator does, without the checks."""
    shard.state = replace(shard.state, settings=replace(shard.state.settings, **settings))


def keys_of(leases: tuple[LeaseRecord, ...]) -> list[bytes]:
    return [each.job.key for each in leases]


def complete(shard: Shard, *leases: LeaseRecord) -> None:
    shard.apply(CompleteJobs(tuple(Completion(each.job.key, each.token) for each in leases)))


def fail(shard: Shard, lease: LeaseRecord, **how: Any) -> None:
    shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "x", **how),)))


def code_of_claim(shard: Shard) -> Code:
    return shard.apply(ClaimJobs(1, "w", 30_000))[0].code


def test_one_job_of_a_group_runs_at_a_time_and_in_order(shard: Shard) -> None:
    first = shard.enqueue(3, group="a")
    second = shard.enqueue(3, group="b")
    held = shard.claim(10)
    assert keys_of(held) == [first[0], second[0]]
    assert code_of_claim(shard) == Code.GROUPS_CLOSED
    assert not has_claimable(shard.state)
    complete(shard, held[1])
    assert has_claimable(shard.state)
    assert keys_of(shard.claim(10)) == [second[1]]
    complete(shard, held[0])
    assert keys_of(shard.claim(10)) == [first[1]]


def test_a_claim_of_what_is_not_there_is_empty_whatever_runs(small: None, shard: Shard) -> None:
    """The labels of an index of many kinds tell nothing: that is no reason to speak of groups."""
    for at in range(400):
        shard.enqueue(kind=f"k{at % 40}")
    shard.claim()
    assert shard.apply(ClaimJobs(1, "w", 30_000, ("none",)))[0].code == Code.EMPTY


def test_jobs_without_a_group_know_no_limit(shard: Shard) -> None:
    shard.enqueue(2, group="a")
    shard.enqueue(5)
    assert len(shard.claim(10)) == 6


@pytest.mark.parametrize(("most", "started"), [(3, 3), (0, 8)])
def test_more_of_a_group_run_where_the_queue_says_so(shard: Shard, most: int, started: int) -> None:
    configure(shard, group_running=most)
    keys = shard.enqueue(8, group="a")
    assert keys_of(shard.claim(10)) == keys[:started]


def test_one_group_in_front_of_another_is_passed_over_whatever_its_length(
    small: None, new_shard: Callable[..., Shard]
) -> None:
    shard = new_shard(checked=False)
    shard.enqueue(600, group="large")
    (rare,) = shard.enqueue(group="small")
    written = set(shard.objects)
    leases = shard.claim(10)
    assert [each.job.group for each in leases] == ["large", "small"]
    assert leases[1].job.key == rare
    assert not [name for name in shard.objects.keys() - written if shard.objects[name].startswith(b"OSQB")]
    shard.check()


def test_a_group_costs_a_head_nothing_while_nothing_holds_it(shard: Shard) -> None:
    shard.enqueue(5, group="a")
    assert shard.state.holds == {}
    assert b"holds" not in encode_head(shard.state)


# ── What happens to a job of a group ─────────────────────────────────────────
def test_a_group_waits_for_its_job_that_failed(shard: Shard) -> None:
    keys = shard.enqueue(3, group="a")
    fail(shard, *shard.claim(), retry_ms=60_000)
    assert code_of_claim(shard) == Code.GROUPS_CLOSED
    shard.now += 60_000
    (lease,) = shard.claim(5)
    assert lease.job.key == keys[0]
    assert shard.state.holds == {}
    complete(shard, lease)
    assert keys_of(shard.claim(5)) == [keys[1]]


def test_or_does_not_where_the_queue_says_so(shard: Shard) -> None:
    configure(shard, group_on_failure="skip")
    keys = shard.enqueue(3, group="a")
    fail(shard, *shard.claim(), retry_ms=60_000)
    assert keys_of(shard.claim(5)) == [keys[1]]


def test_a_group_waits_for_its_job_that_was_put_off(shard: Shard) -> None:
    keys = shard.enqueue(2, group="a")
    (lease,) = shard.claim()
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),), 5_000))
    assert shard.claim() == ()
    shard.now += 5_000
    assert keys_of(shard.claim(5)) == keys[:1]


def test_a_job_that_stalls_or_is_released_is_the_first_of_its_group(shard: Shard) -> None:
    keys = shard.enqueue(3, group="a")
    (lease,) = shard.claim()
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
    assert keys_of(shard.claim(5, lease_ms=1_000)) == keys[:1]
    shard.now += 1_000
    assert keys_of(shard.claim(5)) == keys[:1]


def test_a_group_goes_on_when_the_job_that_it_waits_for_is_cancelled(shard: Shard) -> None:
    keys = shard.enqueue(2, group="a")
    fail(shard, *shard.claim(), retry_ms=60_000)
    assert shard.apply(CancelJob(keys[0]))[0].code == Code.CANCELLED
    assert keys_of(shard.claim(5)) == keys[1:]


def test_a_dead_letter_stops_nothing_unless_the_queue_says_so(shard: Shard) -> None:
    keys = shard.enqueue(2, group="a")
    fail(shard, *shard.claim(), final=True)
    assert keys_of(shard.claim(5)) == keys[1:]


def test_where_it_does_a_redrive_lets_it_go_first(shard: Shard) -> None:
    configure(shard, group_on_dead=STOP)
    keys = shard.enqueue(2, group="a")
    fail(shard, *shard.claim(), final=True)
    assert shard.claim(5) == ()
    shard.apply(RedriveJobs(1, 1))
    assert keys_of(shard.claim(5)) == keys[:1]


def test_where_it_does_an_operator_or_its_end_lets_the_group_go_on(shard: Shard) -> None:
    configure(shard, group_on_dead=STOP, dead_ttl_ms=10_000)
    first, second, third = shard.enqueue(3, group="a")
    fail(shard, *shard.claim(), final=True)
    shard.apply(ChangeSettings(groups=(GroupChange("a", False),)))
    (lease,) = shard.claim(5)
    assert lease.job.key == second
    fail(shard, lease, final=True)
    assert shard.claim(5) == ()
    shard.now += 10_000
    shard.apply(RunTimers())
    assert keys_of(shard.claim(5)) == [third]
    assert first


@pytest.mark.parametrize(
    ("final", "let_go"),
    [(True, {"group_on_dead": "go_on"}), (False, {"group_on_failure": "skip"}), (True, {"group_running": 2})],
)
def test_a_change_of_what_groups_wait_for_lets_those_that_wait_go_on(
    shard: Shard, final: bool, let_go: dict[str, Any]
) -> None:
    configure(shard, group_on_dead=STOP)
    keys = shard.enqueue(2, group="a")
    shard.enqueue(1, group="b")
    shard.apply(ChangeSettings(groups=(GroupChange("b", True),)))
    fail(shard, *shard.claim(), final=final, retry_ms=60_000)
    shard.apply(ChangeSettings(max_attempts=7))  # another setting lets nothing go on
    assert shard.claim(5) == ()
    shard.apply(ChangeSettings(**let_go))
    assert keys_of(shard.claim(5)) == keys[1:]
    assert list(shard.state.holds) == ["b"]


def test_an_operator_pauses_a_group_and_what_it_waits_for_is_not_forgotten(shard: Shard) -> None:
    keys = shard.enqueue(2, group="a")
    shard.apply(ChangeSettings(groups=(GroupChange("a", True),)))
    assert shard.claim(5) == ()
    shard.apply(ChangeSettings(groups=(GroupChange("a", False),)))
    fail(shard, *shard.claim(), retry_ms=60_000)
    shard.apply(ChangeSettings(groups=(GroupChange("a", True),)))
    shard.apply(ChangeSettings(groups=(GroupChange("a", False),)))
    assert shard.claim(5) == ()  # it still waits for its job
    shard.apply(ChangeSettings(groups=(GroupChange("a", True),)))
    shard.now += 60_000
    assert shard.claim(5) == ()
    shard.apply(ChangeSettings(groups=(GroupChange("a", False),)))
    assert keys_of(shard.claim(5)) == keys[:1]
    assert shard.state.holds == {}


def test_a_pause_of_a_group_twice_is_one_and_writes_nothing(shard: Shard) -> None:
    shard.apply(ChangeSettings(groups=(GroupChange("a", True),)))
    seq = shard.state.seq
    assert shard.apply(ChangeSettings(groups=(GroupChange("a", True),)))[0].code == Code.OK
    assert shard.apply(ChangeSettings(groups=(GroupChange("b", False),)))[0].code == Code.OK
    assert shard.state.seq == seq


def test_where_too_many_groups_are_held_none_starts_and_no_other_is_paused(shard: Shard) -> None:
    with limited({"GROUP_HOLDS_MAX": 2}):
        shard.apply(
            ChangeSettings(groups=(GroupChange("a", True),)), ChangeSettings(groups=(GroupChange("b", True),))
        )
        assert shard.apply(ChangeSettings(groups=(GroupChange("c", True),)))[0].code == Code.CROWDED
        shard.enqueue(group="c")
        plain = shard.enqueue()
        assert keys_of(shard.claim(5)) == plain
        assert code_of_claim(shard) == Code.GROUPS_CLOSED
        shard.apply(ChangeSettings(groups=(GroupChange("a", False),)))
        assert len(shard.claim(5)) == 1


# ── Against a model ──────────────────────────────────────────────────────────
class GroupModel:
    """A list for each group; a claim takes what is first in those of which fewer run than may, and all of it."""

    def __init__(self, shard: Shard, most: int, seed: int) -> None:
        self.shard = shard
        self.most = most
        self.dice = random.Random(seed)
        self.names = ["", *(f"g{at}" for at in range(8))]
        self.queues: dict[str, list[bytes]] = {name: [] for name in self.names}
        self.running: dict[str, list[LeaseRecord]] = defaultdict(list)
        self.waiting_for: dict[str, bytes] = {}  # jobs that failed, by their groups

    def enqueue(self) -> None:
        count = self.dice.choice((1, 3, 20))
        news = tuple(self.shard.new(group=self.dice.choice(self.names)) for _ in range(count))
        self.shard.apply(EnqueueJobs(news))
        for new in news:
            self.queues[new.group].append(new.key)

    def attach(self) -> None:
        shard, dice = self.shard, self.dice
        jobs = [JobRecord(shard.key(), b"1", 1, group=dice.choice(self.names)) for _ in range(12)]
        name = staged_name("segments", shard.state.seq, dice.getrandbits(40))
        shard.objects[name], span = encode_segment(jobs, name, mixed=True)
        shard.apply(AttachSpans(5, MIXED, (span,)))
        for job in jobs:
            self.queues[job.group].append(job.key)

    def may_start(self) -> int:
        """How many may start now."""
        open_ = [name for name in self.names[1:] if name not in self.waiting_for]
        rest = (min(self.most - len(self.running[name]), len(self.queues[name])) for name in open_)
        return len(self.queues[""]) + sum(rest)

    def claim(self) -> None:
        limit = self.dice.choice((1, 4, 30))
        may = self.may_start()
        leases = self.shard.claim(limit, lease_ms=limits.LEASE_MS_MAX)
        assert len(leases) == min(limit, may)
        for lease in leases:
            group = lease.job.group
            assert self.queues[group].pop(0) == lease.job.key
            self.running[group].append(lease)
            assert not group or len(self.running[group]) <= self.most

    def end(self) -> None:
        busy = [name for name in self.names if self.running[name]]
        if not busy:
            return
        group = self.dice.choice(busy)
        lease = self.running[group].pop(self.dice.randrange(len(self.running[group])))
        how = self.dice.choice(("complete", "complete", "release", "fail"))
        if how == "release" or not group:
            self.shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
            self.queues[group].insert(0, lease.job.key)
        elif how == "fail" and self.most == 1:
            fail(self.shard, lease, retry_ms=5_000)
            if lease.job.attempt < lease.job.max_attempts:
                self.waiting_for[group] = lease.job.key
        else:
            complete(self.shard, lease)

    def wait(self) -> None:
        self.shard.now += 5_000
        self.shard.apply(RunTimers())
        for group, key in self.waiting_for.items():
            self.queues[group].insert(0, key)
        self.waiting_for.clear()


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("most", [1, 2])
def test_each_group_keeps_its_order_and_its_limit_whatever_happens(
    small: None, new_shard: Callable[..., Shard], seed: int, most: int
) -> None:
    shard = new_shard(seed=seed)
    configure(shard, group_running=most)
    model = GroupModel(shard, most, seed)
    does = (model.enqueue, model.attach, model.claim, model.end, model.wait)
    for do in model.dice.choices(does, weights=(2, 1, 3, 3, 1), k=150):
        do()
        assert has_claimable(shard.state) or not model.may_start()
