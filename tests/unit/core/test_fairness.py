"""Fairness: groups of which fewer jobs run go first, ties take turns, whoever is alone gets everything."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue import limits
from osqueue.core import labels, mixed
from osqueue.core.encoding import encode_head
from osqueue.core.fairness import FairSearch, FairShare
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, EnqueueJobs
from osqueue.core.labels import group_digest
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.rows import NO_ROUND
from osqueue.core.settings import KindSettings
from tests.support.shard import Shard

SMALL = {
    "READY_BYTES_MAX": 900,
    "TAIL_BYTES_MAX": 700,
    "BLOCK_BYTES_MAX": 500,
    "SEGMENT_BYTES_MAX": 2_000,
    "FANOUT": 3,
    "LANES_MAX": 2,
    "LABELS_BYTES_MAX": 120,
    "LABELS_OF_A_SPAN_BYTES_MAX": 42,
}


@pytest.fixture
def shard() -> Shard:
    found = Shard()
    found.apply(ChangeSettings(fair=True, group_running=0))
    return found


def claim(shard: Shard, limit: int = 1, kinds: tuple[str, ...] | None = None) -> Any:
    return shard.apply(ClaimJobs(limit, "ada", 600_000, kinds))[0]


def groups_of(outcome: Any) -> list[str]:
    return [lease.job.group for lease in outcome.leases]


def complete(shard: Shard, leases: Any) -> None:
    shard.apply(CompleteJobs(tuple([Completion(lease.job.key, lease.token) for lease in leases])))


def served(shard: Shard, count: int, kinds: tuple[str, ...] | None = None) -> list[str]:
    """Whose jobs one worker gets that does one after the other."""
    found = []
    for _ in range(count):
        got = claim(shard, 1, kinds)
        found.extend(groups_of(got))
        complete(shard, got.leases)
    return found


def test_one_worker_serves_each_group_in_turn(shard: Shard) -> None:
    shard.enqueue(6, group="a")
    shard.enqueue(3, group="b")
    shard.enqueue(1, group="c")
    assert served(shard, 10) == ["a", "b", "c", "a", "b", "a", "b", "a", "a", "a"]


def test_who_has_fewer_running_goes_first(shard: Shard) -> None:
    shard.enqueue(20, group="a")
    busy = claim(shard, 3).leases
    shard.enqueue(5, group="b")
    assert groups_of(claim(shard, 4)) == ["b", "b", "b", "a"]
    assert groups_of(claim(shard, 2)) == ["b", "a"]
    complete(shard, busy)
    assert groups_of(claim(shard, 2)) == ["a", "a"]


def test_in_a_tie_of_those_who_run_each_has_its_turn(shard: Shard) -> None:
    """One place more than there are groups: it is nobody's own."""
    for group in "abc":
        shard.enqueue(40, group=group)
    running = list(claim(shard, 4).leases)
    got: Counter[str] = Counter()
    for _ in range(60):
        complete(shard, [running.pop(0)])
        (lease,) = claim(shard).leases
        got[lease.job.group] += 1
        running.append(lease)
    assert set(got.values()) == {20}


def test_whoever_is_alone_gets_everything(shard: Shard) -> None:
    shard.enqueue(30, group="a")
    assert groups_of(claim(shard, 30)) == ["a"] * 30
    before = encode_head(shard.state)
    assert claim(shard, 5).runs == ((Code.EMPTY, 0),)
    assert encode_head(shard.state) == before


def test_the_order_of_a_group_is_kept(shard: Shard) -> None:
    for payload in (b"1", b"2", b"3"):
        shard.apply(*[shard_enqueue(shard, payload, group) for group in ("a", "b")])
    got = [(lease.job.group, bytes(lease.job.payload)) for lease in claim(shard, 6).leases]
    for group in ("a", "b"):
        assert [payload for each, payload in got if each == group] == [b"1", b"2", b"3"]


def shard_enqueue(shard: Shard, payload: bytes, group: str) -> Any:
    return EnqueueJobs((shard.new(payload, group=group),))


def test_a_closed_group_has_no_turn(shard: Shard) -> None:
    shard.apply(ChangeSettings(group_running=1))
    shard.enqueue(5, group="a")
    shard.enqueue(2, group="b")
    (first,) = claim(shard).leases
    assert groups_of(claim(shard, 5)) == ["b"]
    complete(shard, [first])
    assert groups_of(claim(shard, 5)) == ["a"]


def test_a_more_urgent_priority_still_comes_first(shard: Shard) -> None:
    shard.enqueue(2, group="a", priority=1)
    shard.enqueue(2, group="b", priority=2)
    assert groups_of(claim(shard, 3)) == ["a", "a", "b"]


def test_jobs_without_a_group_take_their_turn_by_age(shard: Shard) -> None:
    shard.enqueue(3, group="a")
    shard.enqueue(2)
    shard.enqueue(3, group="b")
    assert served(shard, 8) == ["a", "", "", "b", "a", "b", "a", "b"]


def test_a_kind_at_its_limit_has_no_turn(shard: Shard) -> None:
    shard.apply(ChangeSettings(kinds=(KindSettings("slow", max_running=1),)))
    shard.enqueue(3, group="a", kind="slow")
    shard.enqueue(2, group="b", kind="fast")
    assert groups_of(claim(shard, 5)) == ["a", "b", "b"]


def test_without_fairness_the_first_comes_first_and_the_head_says_nothing(shard: Shard) -> None:
    shard.enqueue(6, group="a")
    shard.enqueue(3, group="b")
    claim(shard)
    assert shard.state.round.served == (group_digest("a"),)
    shard.apply(ChangeSettings(fair=False))
    assert shard.state.round is NO_ROUND
    assert groups_of(claim(shard, 3)) == ["a", "a", "a"]
    assert shard.state.round is NO_ROUND


@pytest.mark.usefixtures("small")
def test_behind_a_flood_others_are_found_in_the_segments(shard: Shard) -> None:
    shard.enqueue(300, group="flood")
    for group in "xyz":
        shard.enqueue(2, group=group)
    got = served(shard, 9)
    assert got[:6] == ["flood", "x", "y", "z", "flood", "x"]
    assert Counter(got) == {"flood": 3, "x": 2, "y": 2, "z": 2}


@pytest.mark.usefixtures("small")
def test_what_has_been_taken_out_of_a_segment_is_not_looked_for_again(shard: Shard) -> None:
    """Its labels would tell of it for as long as there is a segment."""
    shard.enqueue(60, group="flood")
    for group in "xyz":
        shard.enqueue(1, group=group)
        shard.enqueue(60, group="flood")
    served(shard, 12)
    before = shard.reads
    got = served(shard, 12)
    assert got == ["flood"] * 12
    assert shard.reads - before <= 12


@pytest.mark.usefixtures("small")
def test_many_more_groups_than_are_remembered_have_their_turns() -> None:
    shard = Shard(checked=False)
    shard.apply(ChangeSettings(fair=True))
    names = [f"g{at}" for at in range(5 * limits.GROUPS_SERVED_MAX)]
    shard.enqueue(900, group="flood")
    for _ in range(4):
        for name in names:
            shard.enqueue(1, group=name)
    got = Counter(served(shard, 3 * len(names)))
    assert len(shard.state.round.served) <= limits.GROUPS_SERVED_MAX
    assert set(got) >= set(names)
    assert got["flood"] <= 6
    assert max(got.values()) <= 6


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kinds", [None, ("", "k1")])
def test_no_job_starts_while_a_group_waits_that_has_fewer(seed: int, kinds: Any) -> None:
    chance = random.Random(seed)
    shard = Shard(seed=seed)
    most = chance.choice((0, 2))
    shard.apply(ChangeSettings(fair=True, group_running=most))
    names = [f"g{at}" for at in range(chance.choice((3, 9)))]
    waiting: Counter[tuple[str, str]] = Counter()
    running: list[Any] = []
    for _ in range(150):
        roll = chance.random()
        if roll < 0.35:
            name, kind = (
                chance.choice(names[: chance.choice((1, len(names)))]),
                chance.choice(("", "k1", "k2")),
            )
            count = chance.choice((1, 4, 30))
            shard.enqueue(count, group=name, kind=kind, payload=bytes(30))
            waiting[name, kind] += count
        elif roll < 0.7:
            leases = claim(shard, chance.choice((1, 3)), kinds).leases
            for lease in leases:
                count = Counter(each.job.group for each in running)
                open_ = {
                    name
                    for (name, kind), left in waiting.items()
                    if left and (kinds is None or kind in kinds) and not 0 < most <= count[name]
                }
                assert count[lease.job.group] == min(count[name] for name in open_)
                waiting[lease.job.group, lease.job.kind] -= 1
                running.append(lease)
        elif running:
            chance.shuffle(running)
            done, running = running[:2], running[2:]
            complete(shard, done)
    while leases := claim(shard, 5).leases:  # nothing is lost behind a label
        complete(shard, leases)
        waiting.subtract((lease.job.group, lease.job.kind) for lease in leases)
    complete(shard, running)
    while leases := claim(shard, 5).leases:
        complete(shard, leases)
        waiting.subtract((lease.job.group, lease.job.kind) for lease in leases)
    assert not any(waiting.values())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(0, 10**9))
def test_a_round_gives_everybody_a_turn(count: int, seed: int) -> None:
    """The first that is due, in any order of those who wait."""
    chance = random.Random(seed)
    names = [group_digest(f"{seed} {at}") for at in range(count)]
    share, got = FairShare((), NO_ROUND), Counter[bytes]()
    rounds = 4
    for _ in range(rounds * count):
        search = FairSearch(share)
        search.begin()
        chance.shuffle(names)
        while (found := next(filter(search.opens, names), None)) is None:
            assert search.widen()
        share.take(found)
        share.running[found] = 0  # it is over at once
        got[found] += 1
        share = FairShare((), share.round())
    assert min(got[name] for name in names) >= 1
    if count <= limits.GROUPS_SERVED_MAX:
        assert set(got.values()) == {rounds}
    assert max(got.values()) <= 2 * rounds
    assert sum(map(bool, got.values())) == count


@pytest.mark.usefixtures("small")
def test_a_kind_with_the_digest_of_another_one_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six bytes stand for a kind. Whoever finds none of one must not hide another one that shares them."""
    real = labels.kind_digest

    def alike(kind: str) -> bytes:
        return real("k1" if kind == "k2" else kind)

    monkeypatch.setattr(labels, "kind_digest", alike)
    monkeypatch.setattr(mixed, "kind_digest", alike)
    shard = Shard()
    shard.apply(ChangeSettings(group_running=0))
    for at in range(60):
        shard.enqueue(1, group=f"g{at % 3}", kind="k2" if at % 3 else "other")
    assert claim(shard, 5, ("k1",)).runs == ((Code.EMPTY, 0),)
    shard.enqueue(1, group="g0", kind="k1")
    assert len(claim(shard, 5, ("k1",)).leases) == 1  # this commit keeps what the search has found
    assert len(claim(shard, 60, ("k2",)).leases) == 40
