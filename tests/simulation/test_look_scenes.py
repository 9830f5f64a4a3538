"""Scenes of looking, each the way it ends well."""

from __future__ import annotations

import pytest

from osqueue import Damaged, Expired, Unavailable
from simulation.look_scenes import SCENES
from simulation.scenes import play


def test_a_job_that_is_queued_again_is_told_as_queued() -> None:
    assert play(SCENES["redriven into a segment"]) == "queued"


def test_a_job_that_was_cancelled_in_its_segment_is_told_as_cancelled() -> None:
    assert play(SCENES["cancelled in a segment"]) == "cancelled"


@pytest.mark.parametrize("scene", ["prolonged in a younger table", "merged as somebody looks"])
def test_a_result_is_found_in_whichever_table_it_is(scene: str) -> None:
    assert play(SCENES[scene]) == "done"


def test_a_result_that_is_collected_as_it_is_read_has_expired() -> None:
    assert isinstance(play(SCENES["collected as its result is read"]), Expired)


def test_an_id_whose_result_is_collected_as_it_is_read_stands_for_a_new_job() -> None:
    assert play(SCENES["collected as its result answers"]).status == "queued"


def test_nothing_is_told_of_a_job_where_nobody_can_tell() -> None:
    assert isinstance(play(SCENES["looked for where nobody can tell"]), Damaged)


def test_a_snapshot_says_when_it_cannot_be_read_any_more() -> None:
    assert play(SCENES["collected as a snapshot is read"])


def test_a_record_that_many_passes_wrote_is_told_once() -> None:
    assert play(SCENES["archived by many"]) == 5


@pytest.mark.parametrize("when", ["read", "made"])
def test_a_pass_that_stood_still_for_hours_repeats_nothing_in_the_archive(when: str) -> None:
    assert play(SCENES[f"archived hours ago, when it was {when}"]) == 6


@pytest.mark.parametrize(
    ("scene", "error"),
    [
        ("parts out of reach", Unavailable),
        ("list of parts out of reach", Unavailable),
        ("damaged part", Damaged),
    ],
)
def test_an_archive_that_cannot_be_read_does_not_pass_for_an_empty_one(
    scene: str, error: type[Exception]
) -> None:
    assert isinstance(play(SCENES[scene]), error)
