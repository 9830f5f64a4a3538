"""Scenes of bulks, each the way it ends well."""

from __future__ import annotations

import pytest

from simulation.bulk_scenes import DELAY_MS, SCENES
from simulation.scenes import play


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


def test_a_batch_that_may_still_come_in_is_known_however_old_it_is() -> None:
    assert play(SCENES["abandoned for a month"]) == {"attached": 1, "repeated": 1}


def test_a_bulk_whose_payloads_the_store_does_not_take_is_not_attached() -> None:
    assert play(SCENES["payloads left unwritten"]) == {"Unavailable": 1}


def test_two_that_stage_at_the_same_time_stage_objects_of_their_own() -> None:
    assert play(SCENES["staged at the same time"]) == {"attached": 2}


def test_a_merged_segment_is_as_old_as_what_it_was_made_of() -> None:
    assert play(SCENES["merged and collected"]) == {"Throttled": 1}


def test_a_bulk_joins_behind_all_that_waits() -> None:
    assert play(SCENES["attached behind others"]) == 0


def test_a_bulk_of_delayed_jobs_joins_as_a_whole_or_not_at_all() -> None:
    assert play(SCENES["delayed beyond measure"]) == {"attached": 1, "Throttled": 1}


def test_of_two_runs_the_slow_one_hears_that_the_batch_is_the_other_ones() -> None:
    assert play(SCENES["decided by another"]) == {"attached": 1, "repeated": 1}


def test_a_batch_of_which_nobody_can_tell_is_not_done_once_its_other_parts_are_in() -> None:
    assert play(SCENES["refused and unknown"]) == {"Unknown": 2}


@pytest.mark.parametrize(
    "scene", ["planned for long", "planned in silence", "enqueued for long", "enqueued in silence"]
)
def test_the_delay_of_a_staged_job_does_not_end_early(scene: str) -> None:
    assert play(SCENES[scene]) >= DELAY_MS


@pytest.mark.parametrize("scene", ["delayed the other way round", "merged the other way round"])
def test_delayed_jobs_of_a_bulk_are_due_in_their_order_however_they_were_staged(scene: str) -> None:
    assert play(SCENES[scene]) == 1


def test_a_bulk_makes_no_head_where_there_is_none_any_more() -> None:
    assert play(SCENES["attached without a head"]) == {"Unknown": 1}


@pytest.mark.parametrize("scene", ["delayed without end", "delayed without end, staged"])
def test_the_head_points_to_no_more_segments_of_delayed_jobs_than_it_has_room_for(scene: str) -> None:
    assert play(SCENES[scene]) == 2
