"""Each safety check, removed in turn, is missed: the simulator says so within a few seeds, all clean with it."""

from __future__ import annotations

import pytest

from osqueue.simulation.mutations import MUTATIONS
from osqueue.simulation.profile import PROFILES
from osqueue.simulation.run import simulate

SEEDS_MAX = 4
# What is said when the check is missing, and where its absence shows soonest.
CAUGHT = {
    "etag": ("rough", "invariant 1"),
    "session": ("rough", "invariant 2"),
    "nonce": ("rough", "was told"),
    "frozen born": ("forgetful", "invariant 2"),
    "floor": ("rough", "invariant 2"),
    "gc_floor": ("crowd", "invariant 8"),
    "lease token": ("rough", "invariant 7"),
    "spill before swap": ("rough", "invariant 8"),
    "archive only what is committed": ("rough", "invariant 10"),
}


def test_every_mutation_is_tried() -> None:
    assert CAUGHT.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_removed_safety_check_is_caught(name: str) -> None:
    profile, words = CAUGHT[name]
    for seed in range(SEEDS_MAX):
        with MUTATIONS[name]():
            violation = simulate(seed, PROFILES[profile]).violation
        if violation:
            assert words in violation
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not miss it")
