"""Every interleaving of a few clients: clean as the protocol is, and each trap of forgetting is found."""

from __future__ import annotations

import pytest

from osqueue.simulation.explore import SCENARIOS, explore
from osqueue.simulation.mutations import BULKS, TRAPS

LARGE = {"a clone, and rows are dropped"}  # looked into here, followed to its end by `explore`
PATHS_MAX = 1_000

FOUND = {
    "outcome dropped with its intent": "rows are dropped",
    "only the last commit's outcomes": "two enqueue",
    "announced with a fresh born": "rows are dropped",
}


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in LARGE])
def test_no_interleaving_violates_anything(name: str) -> None:
    found = explore(SCENARIOS[name])
    assert (found.violation, found.path) == ("", ())
    assert found.whole
    assert found.states > 100


@pytest.mark.parametrize("name", sorted(LARGE))
def test_the_first_interleavings_of_a_large_scenario_violate_nothing(name: str) -> None:
    found = explore(SCENARIOS[name], PATHS_MAX)
    assert (found.violation, found.path) == ("", ())


@pytest.mark.parametrize("trap", FOUND)
def test_a_trap_of_forgetting_applies_an_operation_twice(trap: str) -> None:
    with TRAPS[trap]():
        found = explore(SCENARIOS[FOUND[trap]], rows=False)
    assert "applied twice" in found.violation
    assert found.path


@pytest.mark.parametrize("name", ["receipt", "identity of a batch"])
def test_two_runs_of_a_batch_add_it_twice_without_what_it_is_known_by(name: str) -> None:
    with BULKS[name]():
        found = explore(SCENARIOS["two runs of a batch"])
    assert "joined shard 0 a second time" in found.violation
    assert found.path
