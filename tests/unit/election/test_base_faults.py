"""Leader election when answers get lost, leaders leave and everything happens at once: never two leaders."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osqueue import Unavailable
from osqueue.commit.effects import Sleep
from osqueue.election.blocking import Election
from osqueue.stores.base import Failed, Get, PutIfAbsent, PutIfMatch, Store, StoreReply, StoreRequest
from tests.support.electorate import FAILED, LEADS_S, LOST, TWO_HOURS_MS, Scene


@pytest.fixture
def scene(new_machine: Callable[..., Any]) -> Scene:
    return Scene(new_machine)


# ── Answers that get lost ────────────────────────────────────────────────────
def test_a_lost_reply_of_an_election_is_a_conflict_and_the_next_step_settles_it(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    scene.store.after[PutIfAbsent] = lambda: LOST
    assert ada.campaign() == "conflict"
    assert (ada.is_leader, ada.error) == (False, LOST.error)
    assert bob.campaign() == "other_leader"
    assert ada.campaign() == "elected"
    assert (ada.fence, scene.record().term) == (2, 2)


def test_a_lost_reply_of_a_takeover_is_settled_by_the_next_step(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    bob.campaign()
    scene.later(10)
    scene.store.after[PutIfMatch] = lambda: LOST
    assert bob.campaign() == "conflict"
    assert not bob.is_leader
    assert ada.campaign() == "other_leader"
    assert (bob.campaign(), bob.fence) == ("elected", 3)


def test_a_lost_reply_of_a_beat_leaves_the_leader_its_time_and_no_more(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()
    scene.later(3)
    scene.store.after[PutIfMatch] = lambda: LOST
    assert ada.campaign() == "conflict"
    assert ada.seconds_left == pytest.approx(LEADS_S - 3)
    scene.later(1)
    assert ada.campaign() == "already_leader"
    assert ada.seconds_left == pytest.approx(LEADS_S)
    assert ada.fence == 1


def test_a_read_without_an_answer_is_a_conflict_and_changes_nothing(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()
    scene.store.before[Get] = lambda: FAILED
    assert ada.campaign() == "conflict"
    assert (ada.is_leader, ada.error) == (True, FAILED.error)


@pytest.mark.parametrize("kind", [Get, PutIfAbsent])
def test_what_only_a_change_can_mend_is_raised(scene: Scene, kind: type) -> None:
    scene.store.before[kind] = lambda: Failed(Unavailable("no such bucket", permanent=True))
    with pytest.raises(Unavailable, match="no such bucket"):
        scene.candidate().campaign()


# ── Resigning ────────────────────────────────────────────────────────────────
def test_who_resigns_is_replaced_at_once_and_the_term_grows(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    assert ada.resign() is True
    assert (ada.is_leader, scene.record().candidate, scene.record().term) == (False, None, 1)
    assert (bob.campaign(), bob.fence) == ("elected", 2)


def test_who_does_not_lead_resigns_without_harm(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    assert bob.resign() is True
    ada.campaign()
    assert bob.resign() is True
    assert ada.campaign() == "already_leader"


def test_resigning_also_gives_up_what_a_lost_reply_won(scene: Scene) -> None:
    ada = scene.candidate()
    scene.store.after[PutIfAbsent] = lambda: LOST
    assert ada.campaign() == "conflict"
    assert ada.resign() is True
    assert scene.record().candidate is None


def test_a_lost_reply_of_the_resignation_is_looked_after(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()
    scene.store.after[PutIfMatch] = lambda: LOST
    assert ada.resign() is True
    assert scene.record().candidate is None


def test_a_resignation_that_does_not_get_through_says_so_and_ends_the_leadership_here(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()

    def again() -> Failed:
        scene.store.before[Get] = again
        return FAILED

    scene.store.before[Get] = again
    assert ada.resign() is False
    assert not ada.is_leader
    assert len(ada.machine.slept) == 2  # type: ignore[attr-defined]


def test_a_write_under_way_during_the_resignation_elects_nobody(scene: Scene) -> None:
    ada = scene.candidate()
    scene.store.after[PutIfAbsent] = lambda: None if ada.resign() else LOST
    assert ada.campaign() == "conflict"
    assert (ada.is_leader, scene.record().candidate) == (False, None)


# ── Several threads with one object ──────────────────────────────────────────
def test_a_step_that_another_thread_overtook_does_not_bring_its_older_term_back(scene: Scene) -> None:
    ada = scene.candidate()

    def another_thread() -> None:
        assert ada.campaign() == "elected"

    scene.store.after[PutIfAbsent] = another_thread
    assert ada.campaign() == "conflict"
    assert (ada.fence, scene.record().term) == (2, 2)


def test_a_beat_that_another_thread_overtook_does_not_shorten_the_leadership(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()

    def another_thread() -> None:
        scene.later(1)
        assert ada.campaign() == "already_leader"

    scene.store.after[PutIfMatch] = another_thread
    assert ada.campaign() == "already_leader"
    assert ada.seconds_left == pytest.approx(LEADS_S)


# ── Any order of events ──────────────────────────────────────────────────────
class Runner:
    """A candidate whose steps are driven effect by effect, by a network that does its worst."""

    def __init__(self, election: Election, rate: float, chance: random.Random, store: Store) -> None:
        self.election = election
        self.rate = rate  # of its clocks, against the true time
        self.chance = chance
        self.store = store
        self.flow: Iterator[Any] | None = None
        self.effect: Any = None
        self.reply: StoreReply | None = None
        self.arrived = False  # the effect has happened, its reply is under way
        self.late: list[StoreRequest] = []  # given up by the caller, still in the network

    def act(self) -> None:
        """One thing that may happen to this candidate next."""
        if self.late and self.chance.random() < 0.3:
            self.store.perform(self.late.pop(0))
        if self.flow is None:
            flow = self.election._resign() if self.chance.random() < 0.04 else self.election._campaign()
            self.flow = flow
            self.go(None)
        elif isinstance(self.effect, Sleep):
            self.go(None)
        elif not self.arrived:
            fate = self.chance.random()
            if fate < 0.05:
                self.go(FAILED)
            elif fate < 0.1:
                self.late.append(self.effect)
                self.go(LOST)
            else:
                self.reply = self.store.perform(self.effect)
                self.arrived = True
        else:
            self.go(LOST if self.chance.random() < 0.07 else self.reply)

    def go(self, reply: StoreReply | None) -> None:
        assert self.flow is not None
        self.arrived = False
        try:
            self.effect = self.flow.send(reply)  # type: ignore[attr-defined]
        except StopIteration:
            self.flow = None


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_there_is_one_leader_for_each_term_and_never_two(
    new_machine: Callable[..., Any], seed: int
) -> None:
    chance = random.Random(seed)
    scene = Scene(new_machine, clockless=seed % 2 == 1)
    runners = [
        Runner(
            scene.candidate(name, wall_off_ms=chance.randrange(-TWO_HOURS_MS, TWO_HOURS_MS)),
            rate=1 + chance.uniform(-0.03, 0.03),
            chance=chance,
            store=scene.store,
        )
        for name in ("ada", "bob", "eve")
    ]
    led: dict[int, str] = {}
    over: set[int] = set()
    last: dict[str, int | None] = {}
    for _ in range(2_000):
        if chance.random() < 0.6:
            chance.choice(runners).act()
        else:
            seconds = chance.choice([0.05, 0.5, 1, chance.uniform(0, 8)])
            scene.clock.advance(seconds)
            for runner in runners:
                runner.election.machine.advance(seconds * runner.rate)  # type: ignore[attr-defined]
        leading = [each.election for each in runners if each.election.is_leader]
        assert len(leading) <= 1
        for election in (each.election for each in runners):
            fence, before = election.fence, last.get(election.candidate)
            if before is not None and before != fence:
                over.add(before)
            if fence is not None:
                assert led.setdefault(fence, election.candidate) == election.candidate
                assert fence not in over
                assert fence == max(led)
            last[election.candidate] = fence
    assert len(led) > 5  # it is a story of many leaders
    assert len(set(led.values())) > 1
