"""Each safety check, removed in turn, is missed: the simulator says so wherever its control says that it does."""

from __future__ import annotations

import re

import pytest

from osqueue.simulation.mutations import CONTROLS
from osqueue.simulation.mutations.control import Control, Sighting

SIGHTINGS = [(control, sighting) for control in CONTROLS for sighting in control.sightings]


@pytest.mark.parametrize(
    ("control", "sighting"),
    SIGHTINGS,
    ids=[f"{control.name}, in {sighting.place}" for control, sighting in SIGHTINGS],
)
def test_a_removed_check_is_caught_by_a_violation(control: Control, sighting: Sighting) -> None:
    with control.remove():
        violation = sighting.look()
    assert re.search(sighting.words, violation), violation or "nothing was seen"


def test_no_two_controls_share_a_name_and_each_is_seen_somewhere() -> None:
    names = [control.name for control in CONTROLS]
    assert len(set(names)) == len(names)
    assert all(control.sightings for control in CONTROLS)
