"""Scenes, each the way it ends well: nobody is told what is not so, and nothing happens twice."""

from __future__ import annotations

from osqueue.core.ops import Code
from simulation.few_scenes import SCENES as FEW
from simulation.scenes import SCENES, play


def test_a_caller_whose_job_was_forgotten_meanwhile_begins_anew() -> None:
    assert play(SCENES["forgotten meanwhile"]).status == "queued"


def test_an_id_that_was_taken_over_is_not_freed() -> None:
    assert play(SCENES["freed and taken over"]).status == "duplicate"


def test_a_part_that_is_late_for_its_hour_is_written_into_the_next() -> None:
    assert play(SCENES["late for its hour"]).archived == 1


def test_a_job_that_came_and_went_while_its_caller_stood_still_answers_it() -> None:
    done = play(SCENES["merged by a slow reaper"])
    assert (done.status, done.result) == ("completed", "done")


def test_a_result_whose_life_was_prolonged_keeps_its_id() -> None:
    done = play(SCENES["lives on"])
    assert (done.status, done.result) == ("completed", "done")


def test_who_is_about_to_enqueue_under_a_swept_key_has_to_look_again() -> None:
    assert play(SCENES["swept while another helps"]).status == "duplicate"


def test_a_caller_that_dies_between_its_two_writes_blocks_nobody() -> None:
    assert play(SCENES["died between its writes"]) == "done"


def test_a_bulk_that_was_refused_is_so_for_all_who_found_it_and_the_next_run_begins_anew() -> None:
    assert play(SCENES["refused and resumed"]) == {"Throttled": 2, "attached": 1}


def test_direct_commits_take_a_request_along_whose_writer_is_gone() -> None:
    assert play(SCENES["announced and gone"])


def test_a_writer_that_leads_reads_the_head_before_it_refuses_a_job() -> None:
    assert play(FEW["refused by the own head"]) is Code.QUEUED


def test_who_comes_after_a_crowd_does_not_draw_lots_with_it_for_long() -> None:
    assert play(SCENES["the crowd has gone"]) < 1.0


def test_of_two_who_settle_one_segment_none_brings_back_a_cancelled_job() -> None:
    assert play(SCENES["settled by two"]) == [2]  # the first two are gone


def test_a_job_that_was_passed_is_not_settled_once_more() -> None:
    assert play(SCENES["settled once passed"]) == ()


def test_merged_segments_lack_the_cancelled_jobs() -> None:
    assert play(SCENES["merged with cancelled ones"])


def test_cancelled_jobs_never_become_due() -> None:
    assert play(SCENES["due with cancelled ones"]) == ((), [])
