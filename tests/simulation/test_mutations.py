"""Each safety check, removed in turn, is missed: the simulator says so within a few seeds, all clean with it."""

from __future__ import annotations

import re

import pytest

from osqueue.simulation.ledger import Violation
from osqueue.simulation.mutations import BULKS, LATER, MUTATIONS
from osqueue.simulation.profile import PROFILES
from osqueue.simulation.run import simulate
from osqueue.simulation.scenes import SCENES, play

SEEDS_MAX = 6
# What is said when the check is missing, and where its absence shows soonest.
CAUGHT = {
    "etag": ("rough", "invariant 1"),
    "session": ("rough", "invariant 2"),
    "nonce": ("rough", "was told"),
    "frozen born": ("forgetful", "invariant 2"),
    "floor": ("rough", "invariant 2"),
    "gc_floor": ("calm", "invariant 8"),
    "lease token": ("rough", "invariant 7"),
    "spill before swap": ("rough", "invariant 8"),
    "a rest in the head": ("rough", "left the head in the commit that finished them"),
}

# The second half of a job's life: what a short run of callers misses, and what a scene does.
MISSED_BY_RUNS = {
    "tables that are still there": ("names", "came back out of a table|invariant 8"),
    "parts before the commit": ("names", "invariant 10"),
    "kept_ms": ("names", "came back out of a table|too early"),  # whichever is seen first
}
MISSED_BY_SCENES = {
    "newer pointers": ("merged by a slow reaper", "accepted a second time"),
    "forgotten": ("forgotten meanwhile", "accepted a second time"),
    "ids freed conditionally": ("freed and taken over", "an id was freed while its job"),
    "ids freed first": ("freed and taken over", "accepted a second time"),
    "ids of remembered jobs": ("lives on", "an id was freed while the result"),
    "ids swept once all look again": ("swept while another helps", "whose entry had been removed"),
    "parts in their hour": ("late for its hour", "invariant 10"),
    "birth of merged tables": ("merged by a slow reaper", "accepted a second time"),
}
BULKS_MISSED_BY_RUNS = {  # from which seed on
    "receipt": (0, "joined shard . a second time"),
    "identity of a batch": (0, "joined shard . a second time"),
    "collected by age": (15, "invariant 8"),
}
BULKS_MISSED_BY_SCENES = {
    "spent refusals": ("refused and resumed", "ended as if it had never been"),
    "all or nothing": ("refused and resumed", "bulks of 1 jobs were told of"),
}


def test_every_mutation_is_tried() -> None:
    assert CAUGHT.keys() == MUTATIONS.keys()
    assert MISSED_BY_RUNS.keys() | MISSED_BY_SCENES.keys() == LATER.keys()
    assert BULKS_MISSED_BY_RUNS.keys() | BULKS_MISSED_BY_SCENES.keys() == BULKS.keys()


@pytest.mark.parametrize("name", MISSED_BY_RUNS)
def test_a_removed_check_of_the_second_half_is_caught(name: str) -> None:
    profile, words = MISSED_BY_RUNS[name]
    for seed in range(SEEDS_MAX):
        with LATER[name]():
            violation = simulate(seed, PROFILES[profile]).violation
        if violation:
            assert any(each in violation for each in words.split("|")), violation
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not miss it")


@pytest.mark.parametrize("name", MISSED_BY_SCENES)
def test_a_scene_goes_wrong_without_its_check(name: str) -> None:
    scene, words = MISSED_BY_SCENES[name]
    with LATER[name](), pytest.raises(Violation, match=words):
        play(SCENES[scene])


@pytest.mark.parametrize("name", BULKS_MISSED_BY_RUNS)
def test_a_removed_check_of_bulks_is_caught(name: str) -> None:
    first, words = BULKS_MISSED_BY_RUNS[name]
    for seed in range(first, first + SEEDS_MAX):
        with BULKS[name]():
            violation = simulate(seed, PROFILES["loads"]).violation
        if violation:
            assert re.search(words, violation), violation
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not miss it")


@pytest.mark.parametrize("name", BULKS_MISSED_BY_SCENES)
def test_a_scene_of_bulks_goes_wrong_without_its_check(name: str) -> None:
    scene, words = BULKS_MISSED_BY_SCENES[name]
    with BULKS[name](), pytest.raises(Violation, match=words):
        play(SCENES[scene])


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_removed_safety_check_is_caught(name: str) -> None:
    profile, words = CAUGHT[name]
    for seed in range(SEEDS_MAX):
        with MUTATIONS[name]():
            violation = simulate(seed, PROFILES[profile]).violation
        if violation:
            assert any(each in violation for each in words.split("|")), violation
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not miss it")
