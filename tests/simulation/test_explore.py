"""Every interleaving of a few clients: clean as the protocol is."""

from __future__ import annotations

import pytest

from simulation import explore_lending
from simulation.explore import SCENARIOS, explore

LARGE = {
    "a clone, and rows are dropped",
    "two groups and a freeze",
}  # looked into here, followed to its end by `explore`
PATHS_MAX = 1_000


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


@pytest.mark.parametrize("name", explore_lending.SCENARIOS)
def test_in_no_interleaving_two_start_by_one_slot(name: str) -> None:
    found = explore_lending.explore_lending(name)
    assert (found.violation, found.path) == ("", ())
    assert found.whole
    assert found.states > 100
