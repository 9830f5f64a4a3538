"""Fairness: groups of which fewer jobs run go first, ties take turns, whoever is alone gets everything."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue import limits
from osqueue.core import labels, mixed
from osqueue.core.encoding import encode_head
from osqueue.core.fairness import FairSearch, FairShare
from osqueue.core.job_ops import ClaimJobs, CompleteJobs, Completion, EnqueueJobs, LeaseRef, ReleaseJobs
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


def test_a_claim_that_empties_the_lane_of_a_kind_goes_on_with_its_younger_jobs_in_the_mixed_one(
    shard: Shard,
) -> None:
    shard.enqueue(1, kind="mail")
    shard.enqueue(1, kind="mail", group="a")
    shard.enqueue(1, kind="mail")
    shard.enqueue(1, priority=9)
    found = claim(shard, 10)
    assert [(lease.job.priority, lease.job.group) for lease in found.leases] == [
        (5, ""),
        (5, "a"),
        (5, ""),
        (9, ""),
    ]
    assert found.runs[-1] == (Code.EMPTY, 0)


def test_a_claim_that_empties_the_lane_of_a_kind_looks_anew_for_groups_that_have_jobs_of_it(
    shard: Shard,
) -> None:
    news = [shard.new(group="b"), shard.new(group="b"), shard.new(kind="mail"), shard.new(group="b")]
    mail = news.pop(2)  # the first to come, with a key from a clock that is ahead
    shard.apply(EnqueueJobs((mail,)))
    shard.apply(EnqueueJobs((*news, shard.new(kind="mail", group="a"))))
    assert groups_of(claim(shard, 5)) == ["b", "b", "", "a", "b"]


def test_without_fairness_the_first_comes_first_and_the_head_says_nothing(shard: Shard) -> None:
    shard.enqueue(6, group="a")
    shard.enqueue(3, group="b")
    claim(shard)
    assert shard.state.round.served == (group_digest("a"),)
    shard.apply(ChangeSettings(fair=False))
    assert shard.state.round is NO_ROUND
    assert groups_of(claim(shard, 3)) == ["a", "a", "a"]
    assert shard.state.round is NO_ROUND


def test_claims_of_one_kind_cost_groups_of_others_no_turn(shard: Shard) -> None:
    """Whoever sees one group alone serves it again and again: that is no new round for the others."""
    shard.enqueue(9, group="a", kind="k1")
    for group in "bcd":
        shard.enqueue(9, group=group, kind="k2")
    got = [group for _ in range(6) for kind in ("k1", "k2") for group in served(shard, 1, (kind,))]
    assert got[::2] == ["a"] * 6
    assert got[1::2] == ["b", "c", "d", "b", "c", "d"]


def test_claims_that_see_some_of_the_same_groups_starve_none(shard: Shard) -> None:
    for group, kind in (("a", "k1"), ("b", "k2"), ("c", "k3")):
        shard.enqueue(30, group=group, kind=kind)
    got: Counter[str] = Counter()
    for _ in range(12):
        got.update(served(shard, 1, ("k1", "k2")))
        got.update(served(shard, 1, ("k2", "k3")))
    assert min(got.values()) >= 6


@pytest.mark.parametrize("ageing", [0, 60_000])
def test_a_more_urgent_priority_begins_no_round_of_the_others(shard: Shard, ageing: int) -> None:
    shard.apply(ChangeSettings(ageing_ms=ageing))
    for group in "abcdef":
        shard.enqueue(9, group=group, priority=5)
    got: list[str] = []
    for _ in range(6):
        shard.enqueue(1, group="urgent", priority=1)
        got += served(shard, 3)
    assert Counter(got) == {"urgent": 6, "a": 2, "b": 2, "c": 2, "d": 2, "e": 2, "f": 2}


def test_groups_of_a_kind_that_is_mostly_at_its_limit_take_turns(shard: Shard) -> None:
    shard.apply(ChangeSettings(kinds=(KindSettings("slow", max_running=1),)))
    for group in "abc":
        shard.enqueue(9, group=group, kind="slow")
    for group in "xyz":
        shard.enqueue(90, group=group, kind="fast")
    slow: list[Any] = []
    got: list[str] = []
    for at in range(60):
        leases = claim(shard).leases
        got += [lease.job.group for lease in leases if lease.job.kind == "slow"]
        complete(shard, [lease for lease in leases if lease.job.kind == "fast"])
        slow += [lease for lease in leases if lease.job.kind == "slow"]
        if at % 10 == 9:
            complete(shard, slow)
            slow = []
    assert got == ["a", "b", "c", "a", "b", "c"]


def test_jobs_without_a_group_that_keep_coming_do_not_starve_one(shard: Shard) -> None:
    """What is older goes first, also when its group had a turn."""
    shard.enqueue(4, group="a")
    got: list[str] = []
    for _ in range(8):
        shard.enqueue(1)
        got += served(shard, 1)
    assert got == ["a"] * 4 + [""] * 4


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
@pytest.mark.parametrize("kinds", [[None], [("k0",), ("k0", "k1"), ("k1", "k2")]])
def test_many_more_groups_than_are_remembered_have_their_turns(
    monkeypatch: pytest.MonkeyPatch, kinds: list[Any]
) -> None:
    """Also where claims see some of them only."""
    monkeypatch.setattr(limits, "GROUPS_SERVED_MAX", 8)
    shard = Shard(checked=False)
    shard.apply(ChangeSettings(fair=True))
    names = [f"g{at}" for at in range(48)]
    shard.enqueue(400, group="flood", kind="k1")
    for _ in range(12):
        for at, name in enumerate(names):
            shard.enqueue(1, group=name, kind=f"k{at % 3}")
    got: Counter[str] = Counter()
    for at in range(9 * len(names)):
        got.update(served(shard, 1, kinds[at % len(kinds)]))
    assert len(shard.state.round.served) == limits.GROUPS_SERVED_MAX
    assert set(got) >= set(names)
    assert got["flood"] <= 30


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(12))
def test_who_starts_has_the_fewest_running_and_had_its_turn_longest_ago(seed: int) -> None:
    """Of the groups that a claim sees: by its kinds, in the most urgent priority, open now, due."""
    chance = random.Random(seed)
    shard = Shard(seed=seed)
    most = chance.choice((0, 2))
    shard.apply(ChangeSettings(fair=True, group_running=most, group_on_failure="skip"))
    names = [f"g{at}" for at in range(chance.choice((3, 9)))]
    asked = chance.choice(([None], [None, ("k1",), ("", "k2")]))
    urgent = chance.choice((5, 5, 4))
    waiting: Counter[tuple[int, str, str]] = Counter()
    put_off: list[tuple[int, tuple[int, str, str]]] = []
    running: list[Any] = []
    turns: dict[str, int] = {}
    clock = count(1)
    for _ in range(150):
        roll = chance.random()
        if roll < 0.3:
            name, kind = (
                chance.choice(names[: chance.choice((1, len(names)))]),
                chance.choice(("", "k1", "k2")),
            )
            place = chance.choice((5, urgent)), kind, name
            many = chance.choice((1, 4, 30))
            shard.enqueue(many, group=name, kind=kind, payload=bytes(30), priority=place[0])
            waiting[place] += many
        elif roll < 0.75:
            kinds = chance.choice(asked)
            waiting.update(place for at, place in put_off if at <= shard.now)
            put_off = [each for each in put_off if each[0] > shard.now]
            leases = claim(shard, chance.choice((1, 3)), kinds).leases
            for lease in leases:
                counts = Counter(each.job.group for each in running)
                seen = [
                    place
                    for place, left in waiting.items()
                    if left and (kinds is None or place[1] in kinds) and not 0 < most <= counts[place[2]]
                ]
                first = min(priority for priority, _, _ in seen)
                job = lease.job
                assert job.priority == first
                ranks = {
                    (counts[name], turns.get(name, 0)) for priority, _, name in seen if priority == first
                }
                assert (counts[job.group], turns.get(job.group, 0)) == min(ranks)
                turns[job.group] = next(clock)
                waiting[job.priority, job.kind, job.group] -= 1
                running.append(lease)
        elif running:
            chance.shuffle(running)
            done, running = running[:2], running[2:]
            if chance.random() < 0.7:
                complete(shard, done)
                continue
            wait_ms = chance.choice((0, 40))
            shard.apply(ReleaseJobs(tuple([LeaseRef(each.job.key, each.token) for each in done]), wait_ms))
            places = [(each.job.priority, each.job.kind, each.job.group) for each in done]
            put_off += [(shard.now + wait_ms, place) for place in places]
        shard.now += 10
    shard.now += 100
    waiting.update(place for _, place in put_off)
    complete(shard, running)
    for kinds in (asked[-1], None):
        while leases := claim(shard, 5, kinds).leases:  # nothing is lost behind a label
            complete(shard, leases)
            waiting.subtract((each.job.priority, each.job.kind, each.job.group) for each in leases)
    assert not any(waiting.values())


@settings(max_examples=25, deadline=None)
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


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds k1 and k2 have one digest."""
    real = labels.kind_digest

    def digest(kind: str) -> bytes:
        return real("k1" if kind == "k2" else kind)

    monkeypatch.setattr(labels, "kind_digest", digest)
    monkeypatch.setattr(mixed, "kind_digest", digest)


@pytest.mark.usefixtures("small", "alike")
def test_a_kind_with_the_digest_of_another_one_does_not_hide_it() -> None:
    """Six bytes stand for a kind. Whoever finds none of one must not hide another one that shares them."""
    shard = Shard()
    shard.apply(ChangeSettings(group_running=0))
    for at in range(60):
        shard.enqueue(1, group=f"g{at % 3}", kind="k2" if at % 3 else "other")
    assert claim(shard, 5, ("k1",)).runs == ((Code.EMPTY, 0),)
    shard.enqueue(1, group="g0", kind="k1")
    assert len(claim(shard, 5, ("k1",)).leases) == 1  # this commit keeps what the search has found
    assert len(claim(shard, 60, ("k2",)).leases) == 40


@pytest.mark.usefixtures("small", "alike")
def test_a_kind_that_may_not_start_is_not_hidden_by_one_that_has_its_digest_and_may() -> None:
    shard = Shard()
    shard.apply(ChangeSettings(group_running=0, kinds=(KindSettings("k2", paused=True),)))
    for at in range(60):
        shard.enqueue(1, group=f"g{at % 3}", kind="k2" if at % 3 else "other")
    shard.enqueue(1, group="g0", kind="k1")
    assert len(claim(shard, 5, ("k1", "k2")).leases) == 1
    shard.apply(ChangeSettings(kinds=(KindSettings("k2", paused=False),)))
    assert len(claim(shard, 60, ("k1", "k2")).leases) == 40
