"""Scenes of clients' ids, each the way it ends well."""

from __future__ import annotations

import pytest

from osqueue import Damaged
from osqueue.core.ops import Code
from simulation.id_scenes import SCENES
from simulation.scenes import play


def test_an_entry_is_kept_whose_job_may_lie_in_a_segment_that_cannot_be_read() -> None:
    assert play(SCENES["swept where nobody can tell"])


@pytest.mark.parametrize("scene", ["helped before it is closed", "helped before it is removed"])
def test_a_job_that_came_while_its_entry_was_swept_keeps_its_id(scene: str) -> None:
    assert play(SCENES[scene]).status == "duplicate"


def test_an_entry_that_may_not_have_been_closed_is_not_removed() -> None:
    assert play(SCENES["not closed"]).status == "queued"


def test_an_entry_that_cannot_be_read_is_kept_for_the_job_it_may_stand_for() -> None:
    assert play(SCENES["freed where nobody can tell"]).status == "duplicate"


def test_an_id_is_free_again_once_all_jobs_of_a_table_are_forgotten() -> None:
    assert play(SCENES["died out unread"]).status == "queued"


def test_a_job_that_may_lie_in_a_segment_that_cannot_be_read_is_not_accepted_again() -> None:
    assert isinstance(play(SCENES["accepted where nobody can tell"]), Damaged)


@pytest.mark.parametrize("where", ["in the head", "in a table"])
def test_a_result_that_another_lets_live_longer_keeps_its_id_however_slow_a_reaper_is(where: str) -> None:
    assert play(SCENES[f"prolonged as it is forgotten, {where}"]).status == "completed"


def test_a_call_that_is_repeated_once_its_job_is_forgotten_has_to_look_again() -> None:
    assert play(SCENES["repeated once forgotten"]) == Code.RETRY


def test_an_id_stays_with_its_new_job_when_an_old_one_is_forgotten() -> None:
    assert play(SCENES["used again before it is forgotten"]).status == "duplicate"


def test_a_job_is_remembered_while_the_store_does_not_tell_what_its_id_stands_for() -> None:
    assert play(SCENES["not told as it is forgotten"]).status == "queued"


def test_entries_are_kept_while_a_head_is_lost() -> None:
    assert play(SCENES["swept without a head"])


@pytest.mark.parametrize(
    "scene", ["taken by two", "taken over by two", "perhaps taken", "perhaps taken over"]
)
def test_an_id_that_two_want_stands_for_one_job(scene: str) -> None:
    assert play(SCENES[scene]).status == "duplicate"
