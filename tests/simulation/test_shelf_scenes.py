"""Scenes of finished jobs, each the way it ends well."""

from __future__ import annotations

import pytest

from osqueue import Damaged, Unavailable
from simulation.scenes import play
from simulation.shelf_scenes import SCENES


def test_jobs_are_archived_once_there_is_room_for_parts_however_long_that_takes() -> None:
    assert play(SCENES["parts refused"]) == 3


def test_a_part_takes_no_others_place() -> None:
    assert play(SCENES["part of fewer tables"]) == 2


def test_of_two_who_write_the_same_tables_anew_one_does() -> None:
    assert play(SCENES["written by two"]) == 2


@pytest.mark.parametrize(
    ("scene", "archived"),
    [("unreadable table", 1), ("unreadable index", 3), ("unreadable index, too large", 3)],
)
def test_what_cannot_be_read_is_archived_when_it_can_be_again(scene: str, archived: int) -> None:
    assert play(SCENES[scene]) == archived


def test_a_table_that_another_reaper_merged_away_is_no_trouble() -> None:
    assert not play(SCENES["merged meanwhile"]).merged


@pytest.mark.parametrize(
    "scene", ["prolonged, and merged", "prolonged, and unreadable", "merged with an older row"]
)
def test_a_result_that_another_lets_live_longer_keeps_its_id(scene: str) -> None:
    assert play(SCENES[scene]).status == "completed"


def test_a_pass_tells_that_a_head_is_lost() -> None:
    assert isinstance(play(SCENES["a head is lost"]), Unavailable)


@pytest.mark.parametrize("scene", ["a table is damaged", "due, and damaged"])
def test_a_pass_tells_what_cannot_be_read(scene: str) -> None:
    assert isinstance(play(SCENES[scene]), Damaged)


def test_a_pass_takes_announced_requests_along() -> None:
    assert play(SCENES["announced, and reaped"])
