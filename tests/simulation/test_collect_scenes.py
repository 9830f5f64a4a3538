"""Scenes of the collector, each the way it ends well."""

from __future__ import annotations

import pytest

from simulation.collect_scenes import SCENES
from simulation.scenes import play


def test_whatever_a_head_leads_to_is_not_collected_however_old_it_is() -> None:
    assert play(SCENES["collected as all is needed"]) == 1  # a table that was merged


def test_below_what_cannot_be_read_nothing_is_collected() -> None:
    assert play(SCENES["collected in the dark"]) is None


def test_where_there_is_no_head_nothing_is_collected() -> None:
    assert play(SCENES["collected without a head"]) == 0


def test_an_object_whose_name_does_not_tell_when_it_was_born_is_not_collected() -> None:
    assert play(SCENES["collected beside a stranger"]) == b"mine"


def test_what_is_staged_for_a_commit_to_come_is_not_collected() -> None:
    assert play(SCENES["staged as the collector comes"]) == 1


@pytest.mark.parametrize(
    "scene",
    ["restored once collected", "restored once the store was silent", "restored beside another vector"],
)
def test_what_a_backup_leads_to_is_there_when_the_head_is_restored(scene: str) -> None:
    assert play(SCENES[scene])
