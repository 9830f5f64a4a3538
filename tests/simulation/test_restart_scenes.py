"""Scenes of jobs that restart the one which runs, each the way it ends well."""

from __future__ import annotations

from simulation.restart_scenes import SCENES
from simulation.scenes import play


def test_a_job_that_failed_meanwhile_makes_room_in_its_segment() -> None:
    assert play(SCENES["failed as it is restarted"]).status == "queued"


def test_a_job_that_was_replaced_meanwhile_makes_room_with_its_successor() -> None:
    replaced, told = play(SCENES["replaced as it is restarted"])
    assert (replaced.status, told.status) == ("replaced", "queued")


def test_whoever_comes_after_a_caller_that_died_asks_for_it() -> None:
    assert play(SCENES["restarted by the next caller"]).status == "queued"


def test_until_somebody_asks_the_id_stands_for_the_job_that_runs() -> None:
    told = play(SCENES["kept by the next caller"])
    assert (told.status, told.state) == ("duplicate", "processing")


def test_an_entry_that_is_swept_stands_for_the_job_that_runs_again() -> None:
    told = play(SCENES["swept before it was restarted"])
    assert (told.status, told.state) == ("duplicate", "processing")
