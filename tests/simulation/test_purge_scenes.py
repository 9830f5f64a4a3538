"""Scenes of purges, each the way it ends well."""

from __future__ import annotations

import pytest

from osqueue.errors import Expired, NotFound
from simulation.purge_scenes import PURGE_SCENES
from simulation.repair_scenes import mended


def test_a_dead_letter_whose_payload_was_archived_is_purged_for_good() -> None:
    assert mended(PURGE_SCENES["purged once archived"]) == 10


def test_a_result_is_not_prolonged_once_its_job_is_purged() -> None:
    assert isinstance(mended(PURGE_SCENES["prolonged once purged"]), NotFound)


def test_a_result_that_expired_stays_so_when_its_row_was_written_anew() -> None:
    assert isinstance(mended(PURGE_SCENES["shortened beside a purged one"]), Expired)


@pytest.mark.parametrize("scene", ["enqueued once purged", "enqueued once purged from a table"])
def test_a_caller_whose_job_was_purged_meanwhile_begins_anew(scene: str) -> None:
    assert mended(PURGE_SCENES[scene]).status == "queued"


def test_a_job_that_a_purge_gave_up_lives_on_after_a_restore() -> None:
    assert mended(PURGE_SCENES["spared"]) is False


@pytest.mark.parametrize("scene", ["given up as it waits", "given up as it runs"])
def test_a_job_that_a_purge_gave_up_keeps_what_belongs_to_it(scene: str) -> None:
    assert mended(PURGE_SCENES[scene]) is False


def test_a_job_that_is_blank_in_a_copy_is_not_restored_from_it() -> None:
    assert mended(PURGE_SCENES["blank in its copy"]) == 0


@pytest.mark.parametrize("what", ["payloads", "copies", "segments", "parts"])
def test_two_purges_of_one_object_both_hold(what: str) -> None:
    assert mended(PURGE_SCENES[f"{what} purged by two"]) == (True, True)


@pytest.mark.parametrize(
    "scene",
    [
        "redriven once blank",
        "redriven beside a purged one",
        "copied while it is purged",
        "shelved while it is purged",
        "collected while it is purged",
        "payload blank in a copy",
    ],
)
def test_a_purge_holds_whatever_others_do_meanwhile(scene: str) -> None:
    assert mended(PURGE_SCENES[scene]) is True


@pytest.mark.parametrize(
    "scene", ["copied too late", "restored once purged", "restored once purged from a table"]
)
def test_what_was_purged_does_not_come_back_with_a_restore(scene: str) -> None:
    assert mended(PURGE_SCENES[scene]) is True
