"""Leader election: what a step answers, who leads for how long, and whose clock says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osqueue import Damaged, NewerFormat, Rejected
from osqueue.election.base import STALE_AFTER_MS_MAX, ElectionRecord, seal, unseal
from osqueue.election.blocking import Election
from osqueue.stores.base import Delete, Get, Put, PutIfAbsent, PutIfMatch
from osqueue.stores.counting import CountingStore
from tests.support.electorate import FAILED, KEY, LEADS_S, TWO_HOURS_MS, Scene


@pytest.fixture
def scene(new_machine: Callable[..., Any]) -> Scene:
    return Scene(new_machine)


# ── What a step answers ──────────────────────────────────────────────────────
def test_the_first_candidate_is_elected_and_leads_on(scene: Scene) -> None:
    ada = scene.candidate()
    assert (ada.is_leader, ada.fence, ada.leader, ada.seconds_left) == (False, None, None, 0)
    assert ada.campaign() == "elected"
    assert (ada.is_leader, ada.fence, ada.leader) == (True, 1, "ada")
    assert ada.seconds_left == pytest.approx(LEADS_S)
    scene.later(3)
    assert ada.campaign() == "already_leader"
    assert (ada.fence, scene.record().term) == (1, 1)


def test_a_candidate_beside_a_leader_that_beats_never_leads(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    for _ in range(20):
        assert bob.campaign() == "other_leader"
        assert (bob.is_leader, bob.fence, bob.leader) == (False, None, "ada")
        scene.later(3)
        assert ada.campaign() == "already_leader"


def test_of_two_racing_creators_one_is_elected_and_the_other_has_a_conflict(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")

    def bob_is_faster() -> None:
        assert bob.campaign() == "elected"

    scene.store.before[PutIfAbsent] = bob_is_faster
    assert ada.campaign() == "conflict"
    assert (ada.is_leader, bob.is_leader) == (False, True)
    assert ada.campaign() == "other_leader"


def test_of_two_that_take_over_one_is_elected_and_the_other_has_a_conflict(scene: Scene) -> None:
    ada, bob, eve = (scene.candidate(name) for name in ("ada", "bob", "eve"))
    ada.campaign()
    assert (bob.campaign(), eve.campaign()) == ("other_leader", "other_leader")
    scene.later(10)

    def eve_is_faster() -> None:
        assert eve.campaign() == "elected"

    scene.store.before[PutIfMatch] = eve_is_faster
    assert bob.campaign() == "conflict"
    assert [each.is_leader for each in (ada, bob, eve)] == [False, False, True]
    assert (eve.fence, bob.campaign()) == (2, "other_leader")


def test_a_step_is_one_read_and_at_most_one_conditional_write(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    assert list(map(type, scene.store.sent)) == [Get, PutIfAbsent]
    ada.campaign()
    assert list(map(type, scene.store.sent[2:])) == [Get, PutIfMatch]
    bob.campaign()
    assert list(map(type, scene.store.sent[4:])) == [Get]


def test_a_candidates_own_record_is_not_sent_again(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    bob.campaign()
    for each in (ada, bob):
        each.campaign()
    (again,) = [each for each in scene.store.sent[-3:-1] if isinstance(each, Get)]
    assert again.unless is not None
    assert isinstance(scene.store.sent[-1], Get)
    assert scene.store.sent[-1].unless is not None


# ── Silence ──────────────────────────────────────────────────────────────────
def test_a_silent_leader_is_taken_over_when_its_time_is_over_and_not_before(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    assert bob.campaign() == "other_leader"
    for _ in range(9):
        scene.later(1)
        assert bob.campaign() == "other_leader"
    scene.later(0.999)
    assert bob.campaign() == "other_leader"
    scene.later(0.001)
    assert bob.campaign() == "elected"
    assert (bob.fence, scene.record().candidate) == (2, "bob")


def test_silence_is_counted_from_when_the_record_was_received(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    bob.campaign()
    scene.later(3)
    ada.campaign()
    scene.store.after[Get] = lambda: scene.later(4)  # the answer is under way for long
    assert bob.campaign() == "other_leader"
    scene.later(9.9)
    assert bob.campaign() == "other_leader"
    scene.later(0.1)
    assert bob.campaign() == "elected"


def test_a_leader_demotes_itself_before_anybody_may_take_over(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()
    scene.later(LEADS_S - 0.01)
    assert ada.is_leader
    scene.later(0.01)
    assert (ada.is_leader, ada.fence, ada.seconds_left) == (False, None, 0)


def test_a_leaderships_time_counts_from_before_its_beat_was_sent(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()
    scene.later(3)
    scene.store.before[PutIfMatch] = lambda: scene.later(2)
    scene.store.after[PutIfMatch] = lambda: scene.later(2)
    assert ada.campaign() == "already_leader"
    assert ada.seconds_left == pytest.approx(LEADS_S - 4)


def test_an_answer_that_comes_too_late_elects_nobody(scene: Scene) -> None:
    ada = scene.candidate()
    scene.store.after[PutIfAbsent] = lambda: scene.later(LEADS_S)
    assert ada.campaign() == "conflict"
    assert not ada.is_leader
    assert ada.campaign() == "elected"
    assert ada.fence == 2


def test_a_beat_answered_after_the_leadership_ran_out_does_not_bring_its_term_back(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()
    scene.later(8)
    scene.store.after[PutIfMatch] = lambda: scene.later(2)
    assert ada.campaign() == "conflict"
    assert not ada.is_leader
    assert (ada.campaign(), ada.fence) == ("elected", 2)


def test_a_leader_that_lapsed_and_was_not_replaced_leads_with_a_new_term(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()
    scene.later(60)
    assert (ada.campaign(), ada.fence) == ("elected", 2)


def test_a_leader_that_was_replaced_sees_it(scene: Scene) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    bob.campaign()
    scene.later(10)
    assert bob.campaign() == "elected"
    assert ada.campaign() == "other_leader"
    assert (ada.is_leader, ada.leader) == (False, "bob")


def test_a_leaders_own_word_says_how_long_the_others_wait(scene: Scene) -> None:
    ada, bob = scene.candidate("ada", stale_after=60), scene.candidate("bob", stale_after=10)
    ada.campaign()
    bob.campaign()
    for _ in range(11):
        scene.later(5)
        assert bob.campaign() == "other_leader"
    scene.later(5)
    assert bob.campaign() == "elected"
    assert bob.seconds_left == pytest.approx(LEADS_S)


# ── Those who look once ──────────────────────────────────────────────────────
@pytest.mark.parametrize(("clockless", "most_s"), [(False, 11.0), (True, 12.0)])
def test_who_looks_once_judges_by_the_stores_clock(
    new_machine: Callable[..., Any], clockless: bool, most_s: float
) -> None:
    scene = Scene(new_machine, clockless)
    scene.later(0.7)  # not on a whole second
    scene.candidate("ada").campaign()
    scene.later(9.99)
    assert scene.candidate("bob").campaign() == "other_leader"
    scene.later(most_s - 9.99)
    assert scene.candidate("eve").campaign() == "elected"


def test_a_store_without_a_clock_is_asked_by_writing_beside_the_record(
    new_machine: Callable[..., Any],
) -> None:
    scene = Scene(new_machine, clockless=True)
    scene.candidate("ada").campaign()
    scene.store.sent.clear()
    bob = scene.candidate("bob")
    assert bob.campaign() == "other_leader"
    assert [each.key for each in scene.store.sent if isinstance(each, Get | Put)] == [
        KEY,
        KEY + ".clock",
        KEY + ".clock",
    ]
    for _ in range(3):  # who looks often counts for itself
        scene.store.sent.clear()
        scene.later(3)
        bob.campaign()
        assert list(map(type, scene.store.sent)) == [Get]


def test_a_store_that_does_not_tell_the_time_replaces_nobody(new_machine: Callable[..., Any]) -> None:
    scene = Scene(new_machine, clockless=True)
    scene.candidate("ada").campaign()
    scene.later(3_600)
    bob = scene.candidate("bob")
    scene.store.before[Put] = lambda: FAILED
    assert bob.campaign() == "other_leader"
    assert bob.error is FAILED.error


@pytest.mark.parametrize("frozen", [False, True])
def test_who_looks_seldom_is_told_by_the_store_even_after_the_monotonic_clock_stood_still(
    scene: Scene, frozen: bool
) -> None:
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    assert bob.campaign() == "other_leader"
    scene.later(60)
    ada.campaign()
    if frozen:
        bob.machine.seconds -= 60  # type: ignore[attr-defined]
    assert bob.campaign() == "other_leader"
    scene.later(60)
    if frozen:
        bob.machine.seconds -= 60  # type: ignore[attr-defined]
    assert bob.campaign() == "elected"


# ── Clocks ───────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("clockless", [False, True])
@pytest.mark.parametrize("ada_off_ms", [-TWO_HOURS_MS, 0, TWO_HOURS_MS])
@pytest.mark.parametrize("bob_off_ms", [-TWO_HOURS_MS, TWO_HOURS_MS])
def test_a_clock_two_hours_off_changes_nothing(
    new_machine: Callable[..., Any], clockless: bool, ada_off_ms: int, bob_off_ms: int
) -> None:
    def story(ada_off_ms: int, bob_off_ms: int) -> list[Any]:
        scene = Scene(new_machine, clockless)
        ada, bob = scene.candidate("ada", ada_off_ms), scene.candidate("bob", bob_off_ms)
        told: list[Any] = []
        for each, seconds in [(ada, 3), (bob, 3), (ada, 3), (bob, 9.5), (bob, 0.5), (bob, 3), (ada, 11.9)]:
            told.append((each.campaign(), ada.fence, bob.fence))
            scene.later(seconds)
        told.append(scene.candidate("eve", ada_off_ms).campaign())  # looks once
        scene.later(60)
        told.append(scene.candidate("joe", bob_off_ms).campaign())
        return [told, list(map(type, scene.store.sent))]

    assert story(ada_off_ms, bob_off_ms) == story(0, 0)


@pytest.mark.parametrize("step_ms", [-TWO_HOURS_MS, TWO_HOURS_MS])
def test_a_step_of_a_wall_clock_neither_ends_a_leadership_nor_lengthens_it(
    new_machine: Callable[..., Any], step_ms: int
) -> None:
    scene = Scene(new_machine, clockless=True)
    ada, bob = scene.candidate("ada"), scene.candidate("bob")
    ada.campaign()
    bob.campaign()
    scene.later(3)
    for each in (ada, bob):
        each.machine.time_ms += step_ms  # type: ignore[attr-defined]
    assert (bob.campaign(), ada.is_leader) == ("other_leader", True)
    scene.later(LEADS_S - 3)
    assert not ada.is_leader
    assert bob.campaign() == "other_leader"
    scene.later(1)
    assert bob.campaign() == "elected"


# ── The record ───────────────────────────────────────────────────────────────
def test_a_record_survives_and_no_two_are_the_same_bytes(scene: Scene) -> None:
    record = ElectionRecord(7, "ada", "abc", 10_000)
    assert unseal(seal(record), KEY) == record
    ada = scene.candidate()
    bodies = set()
    for _ in range(5):
        ada.campaign()
        bodies.add(scene.memory.get(Get(KEY)).body)  # type: ignore[union-attr]
    assert len(bodies) == 5


def test_every_damaged_byte_is_noticed(scene: Scene) -> None:
    whole = seal(ElectionRecord(7, "ada", "abc", 10_000))
    for at in range(len(whole)):
        with pytest.raises((Damaged, NewerFormat)):
            unseal(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], KEY)
        with pytest.raises(Damaged):
            unseal(whole[:at], KEY)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", Damaged),
        (b"[]", Damaged),
        (b'{"format":0,"crc":0,"record":null}', Damaged),
        (b'{"format":2}', NewerFormat),
        (b'{"format":2,"whatever":[1],"record":"other"}', NewerFormat),
    ],
)
def test_a_record_that_cannot_be_read_is_refused_and_never_overwritten(
    scene: Scene, body: bytes, error: type[Exception]
) -> None:
    scene.memory.put(Put(KEY, body))
    for _ in range(2):
        with pytest.raises(error, match=KEY):
            scene.candidate().campaign()
    with pytest.raises(error):
        scene.candidate().resign()
    assert scene.memory.get(Get(KEY)).body == body  # type: ignore[union-attr]


def test_terms_go_on_where_a_candidate_remembers_them_when_the_record_is_removed(scene: Scene) -> None:
    ada = scene.candidate()
    for _ in range(3):
        ada.campaign()
        ada.resign()
    ada.campaign()
    scene.memory.delete(Delete((KEY,)))
    assert (ada.campaign(), ada.fence) == ("elected", 5)


# ── Who is who ───────────────────────────────────────────────────────────────
def test_two_candidates_of_one_name_are_two(scene: Scene) -> None:
    one, other = scene.candidate("ada"), scene.candidate("ada")
    assert (one.campaign(), other.campaign()) == ("elected", "other_leader")


def test_a_forks_child_does_not_lead(scene: Scene) -> None:
    ada = scene.candidate()
    ada.campaign()
    ada.machine.pid = 2  # type: ignore[attr-defined]
    assert (ada.is_leader, ada.fence) == (False, None)
    assert ada.campaign() == "other_leader"
    ada.machine.pid = 1  # type: ignore[attr-defined]


def test_elections_of_two_names_know_nothing_of_each_other(scene: Scene, new_machine: Any) -> None:
    other = Election(scene.store, "archive", machine=new_machine(seed=50))
    assert (scene.candidate().campaign(), other.campaign()) == ("elected", "elected")
    assert other.candidate == "virtual"


@pytest.mark.parametrize("name", ["", "Reports", "a/b", "-a", "a" * 65, "a.clock", None, 7])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(Rejected, match="name: ") as caught:
        Election.connect("memory://", name)
    assert caught.value.field == "name"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("candidate", {"candidate": ""}),
        ("candidate", {"candidate": "x" * 129}),
        ("heartbeat", {"heartbeat": 0}),
        ("heartbeat", {"heartbeat": 5.001}),
        ("heartbeat", {"heartbeat": "3"}),
        ("stale_after", {"stale_after": 0}),
        ("stale_after", {"stale_after": STALE_AFTER_MS_MAX / 1000 + 1}),
    ],
)
def test_an_option_out_of_range_is_refused(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as caught:
        Election.connect("memory://", "reports", **options)
    assert caught.value.field == field
    Election.connect("memory://", "reports", "x" * 128, heartbeat=5, stale_after=10)


def test_an_election_counts_its_requests() -> None:
    election = Election.connect("memory://", "reports")
    election.campaign()
    assert isinstance(election.store, CountingStore)
    assert election.store.requests == {"get": 1, "put": 1, "list": 0, "delete": 0}
