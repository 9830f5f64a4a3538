"""Scenes of steering, each the way it ends well."""

from __future__ import annotations

import pytest

from osqueue.errors import Expired, Throttled
from simulation.scenes import play
from simulation.steer_scenes import SCENES


@pytest.mark.parametrize("scene", ["cancelled once passed", "cancelled once its segment is gone"])
def test_a_job_that_left_its_segment_since_it_was_seen_is_not_cancelled_there(scene: str) -> None:
    play(SCENES[scene])


def test_a_job_that_was_cancelled_and_moved_to_a_vector_is_not_cancelled_again() -> None:
    assert not play(SCENES["cancelled once settled"])


def test_a_job_whose_segment_became_part_of_an_index_is_not_settled_in_it() -> None:
    assert play(SCENES["settled once folded"])


def test_a_cancelled_retry_is_not_counted_any_more_once_it_is_settled() -> None:
    ((count, failing),) = play(SCENES["settled before a retry"])
    assert count == failing


def test_an_index_that_is_written_anew_seems_no_older_than_what_it_tells_of() -> None:
    assert play(SCENES["settled by a slow one"]).status == "duplicate"


def test_the_result_of_a_job_that_is_over_by_now_gets_its_life_in_its_row() -> None:
    assert play(SCENES["prolonged once passed"])


@pytest.mark.parametrize("scene", ["prolonged once cancelled", "prolonged once settled"])
def test_of_a_job_that_was_cancelled_since_it_was_seen_waiting_no_time_to_live_is_kept(scene: str) -> None:
    assert not play(SCENES[scene])


def test_a_job_that_failed_and_waits_again_is_steered_as_one_that_waits() -> None:
    assert play(SCENES["cancelled once redriven"]) == "cancelled"
    assert play(SCENES["prolonged once redriven"]) is None


@pytest.mark.parametrize(
    "scene",
    [
        "prolonged too late, in the head",
        "prolonged too late, in a table",
        "shortened meanwhile",
        "shortened and merged meanwhile",
    ],
)
def test_a_result_that_expired_meanwhile_stays_so(scene: str) -> None:
    assert isinstance(play(SCENES[scene]), Expired)


@pytest.mark.parametrize("scene", ["shortened", "shortened twice"])
def test_a_result_whose_life_was_shortened_does_not_come_back_out_of_an_older_table(scene: str) -> None:
    assert play(SCENES[scene]).status == "queued"


def test_no_more_jobs_get_another_time_to_live_than_there_is_room_for() -> None:
    *others, last = play(SCENES["many lives"])
    assert others == [None, None]
    assert isinstance(last, Throttled)


def test_the_archive_tells_both_ends_of_a_job_that_was_cancelled_when_it_had_just_been_redriven() -> None:
    assert play(SCENES["cancelled at once"]) == 2


def test_the_number_of_shards_never_goes_back() -> None:
    assert play(SCENES["shards by two"]) == 3


def test_the_collectors_floor_never_goes_back() -> None:
    assert play(SCENES["collected by two"])


def test_a_failing_job_that_is_cancelled_in_its_segment_is_counted_once() -> None:
    before, after = play(SCENES["cancelled as it fails"])
    assert before == after == 11


@pytest.mark.parametrize("meanwhile", ["twice", "cancelled"])
def test_a_job_whose_turn_was_over_is_not_made_due_again(meanwhile: str) -> None:
    assert play(SCENES[f"due at once, {meanwhile}"]) == (0, 11)


def test_a_redrive_misses_no_letter_though_others_let_them_go_round() -> None:
    assert play(SCENES["redriven by two"]) == 2
