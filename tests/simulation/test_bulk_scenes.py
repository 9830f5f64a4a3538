"""Scenes of bulks, each the way it ends well."""

from __future__ import annotations

from osqueue.simulation.bulk_scenes import SCENES
from osqueue.simulation.scenes import play


def test_a_part_that_was_refused_and_attached_by_another_run_is_not_attached_again() -> None:
    assert play(SCENES["refused in part"]) == {"Throttled": 2, "repeated": 2}


def test_a_batch_loaded_under_the_id_of_a_refused_one_keeps_its_receipt() -> None:
    assert play(SCENES["refused and loaded"]) == {"Throttled": 2, "attached": 1, "repeated": 1}


def test_of_a_batch_whose_run_was_silent_for_too_long_nobody_says_that_it_is_in() -> None:
    assert play(SCENES["silent for too long"]) == {"Unknown": 1}


def test_a_batch_is_known_for_a_month_and_its_id_is_free_again_then() -> None:
    assert play(SCENES["known for a while"]) == {"attached": 2, "repeated": 2}


def test_a_batch_that_was_finished_when_it_was_about_to_be_forgotten_is_known() -> None:
    assert play(SCENES["finished as it is forgotten"]) == {"repeated": 2}
