"""Restores, purges and repairs of the clock: whole runs of them, and scenes, each the way it ends well."""

from __future__ import annotations

import pytest

from osqueue.core.ops import Code
from simulation.profile import PROFILES
from simulation.repair_scenes import REPAIR_SCENES, mended
from simulation.run import simulate


@pytest.mark.parametrize("seed", [0, 2, 3, 5, 6, 15])  # in which heads are restored and jobs purged
def test_no_accident_makes_a_queue_tell_what_never_was(seed: int) -> None:
    report = simulate(seed, PROFILES["repairs"])
    assert report.violation == ""
    assert report.asked["heads restored"] > 0
    assert report.asked["jobs purged"] > 0


@pytest.mark.parametrize("seed", range(3))
def test_no_accident_makes_an_archive_tell_other_payloads_or_those_of_purged_jobs(seed: int) -> None:
    report = simulate(seed, PROFILES["payloads purged"])
    assert report.violation == ""
    assert report.records > 0


def test_what_was_collected_in_a_former_life_joins_no_queue() -> None:
    assert mended(REPAIR_SCENES["collected in a former life"]) == Code.STALE


def test_what_was_refused_is_wiped_and_leaves_what_a_purge_has_wiped_beside_it() -> None:
    assert mended(REPAIR_SCENES["purged beside a refused one"]) == []


def test_what_was_announced_to_a_lost_head_is_not_told_to_the_next() -> None:
    assert mended(REPAIR_SCENES["announced in a former life"]) == 0


@pytest.mark.parametrize(
    "scene", ["purged beside another", "moved while it is purged", "purged after it was archived"]
)
def test_a_purge_finds_contents_wherever_they_are(scene: str) -> None:
    assert mended(REPAIR_SCENES[scene]) is True


def test_what_failed_in_a_lost_swap_is_no_dead_letter_after_a_restore() -> None:
    assert mended(REPAIR_SCENES["failed in a lost swap"]) == 0


def test_a_row_stays_for_the_commit_that_changes_it() -> None:
    assert mended(REPAIR_SCENES["changed as it leaves"]) == 1


def test_a_job_that_failed_since_keeps_the_life_that_was_asked_for_its_result() -> None:
    assert mended(REPAIR_SCENES["failed with another life"]) == 90_000


def test_no_life_of_a_result_is_kept_for_a_job_that_was_purged_since() -> None:
    assert mended(REPAIR_SCENES["purged with another life"]) is True


def test_a_job_that_was_worked_on_waits_after_a_restore() -> None:
    assert mended(REPAIR_SCENES["leased in its copy"]) == ["queued"]


def test_one_copy_is_restored_as_often_as_one_likes() -> None:
    assert mended(REPAIR_SCENES["restored twice"]) == 1


def test_a_job_that_was_redriven_before_the_copy_waits_after_a_restore() -> None:
    assert mended(REPAIR_SCENES["redriven before its copy"]) == "queued"


def test_a_dead_letter_of_the_copy_is_not_told_to_have_failed_since() -> None:
    assert mended(REPAIR_SCENES["failed before its copy"]) == "failed"


@pytest.mark.parametrize("scene", ["merged in a former life", "merged before its copy"])
def test_a_restored_head_needs_no_table_that_a_reaper_of_the_old_life_deletes(scene: str) -> None:
    assert mended(REPAIR_SCENES[scene]) == 3


def test_a_job_whose_payload_was_collected_is_not_restored() -> None:
    assert mended(REPAIR_SCENES["collected since its copy"]) == 0


@pytest.mark.parametrize(
    ("scene", "again"),
    [("vectors lost", 0), ("vectors lost, and the rows gone", 3), ("vectors lost of a copy", 0)],
)
def test_of_jobs_whose_vector_is_lost_those_run_again_of_which_nothing_else_tells(
    scene: str, again: int
) -> None:
    assert mended(REPAIR_SCENES[scene]) == again


def test_a_restored_head_needs_no_table_that_a_collector_of_the_old_life_deletes() -> None:
    assert mended(REPAIR_SCENES["collected by the former life"]) == 3


def test_the_archive_gets_no_second_record_after_a_restore() -> None:
    assert mended(REPAIR_SCENES["archived since its copy"]) == 5


def test_a_result_that_was_collected_since_its_copy_does_not_come_back() -> None:
    assert mended(REPAIR_SCENES["results collected since"]) == 0
