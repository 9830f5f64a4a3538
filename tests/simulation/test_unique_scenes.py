"""Scenes of jobs that take the place of others, each the way it ends well."""

from __future__ import annotations

import pytest

from simulation.scenes import play
from simulation.unique_scenes import SCENES


def test_whoever_comes_next_finds_the_job_that_took_the_place() -> None:
    assert play(SCENES["replaced and asked for by another"]).status == "duplicate"


def test_an_entry_that_was_told_late_is_right_all_the_same() -> None:
    assert play(SCENES["replaced again"]).status == "replaced"


def test_an_id_goes_over_to_the_successor_when_the_old_job_is_forgotten() -> None:
    assert play(SCENES["forgotten before its successor is told of"]).status == "duplicate"


def test_so_it_does_when_one_between_them_is_forgotten_first() -> None:
    assert play(SCENES["forgotten in between"]).status == "duplicate"


def test_a_job_that_is_over_and_forgotten_is_not_enqueued_again_under_its_key() -> None:
    assert play(SCENES["told of too late"]).status == "queued"


@pytest.mark.parametrize("where", ["", " in a segment"])
def test_a_job_that_has_started_is_left_alone_and_the_new_one_waits_behind_it(where: str) -> None:
    assert play(SCENES[f"started as it is replaced{where}"]).status == "queued"


def test_of_two_who_replace_a_job_one_replaces_the_other() -> None:
    assert play(SCENES["replaced by two"]).status == "replaced"


def test_a_cancel_by_id_means_the_job_that_is_there() -> None:
    assert play(SCENES["cancelled as it is replaced"]) == ("cancelled", "cancelled")
