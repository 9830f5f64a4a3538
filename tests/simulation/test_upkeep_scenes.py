"""Scenes of upkeep, each the way it ends well."""

from __future__ import annotations

from osqueue.simulation.scenes import play
from osqueue.simulation.upkeep_scenes import SCENES


def test_a_bulk_that_joins_just_before_the_collectors_floor_is_committed_keeps_its_segment() -> None:
    assert play(SCENES["attached before the floor"]) == 1


def test_a_floor_that_others_raised_does_not_make_a_collector_delete_what_it_has_not_looked_up() -> None:
    assert play(SCENES["attached as pointers move"]) == 1
