"""Scenes of elections, each the way it ends well."""

from __future__ import annotations

import pytest

from simulation.election_scenes import SCENES, play

ENDS = {
    "elected at once": "conflict",
    "perhaps elected": "elected",
    "told of another leader": "other_leader",
    "beaten too late": None,
    "answered in the next term": 2,
    "forked": "other_leader",
    "no time told": "other_leader",
    "patience of its own": "other_leader",
    "beating": "other_leader",
    "resigned by another": "other_leader",
}


@pytest.mark.parametrize("name", SCENES)
def test_at_most_one_leads(name: str) -> None:
    assert play(name) == ENDS[name]
