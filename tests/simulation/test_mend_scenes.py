"""Scenes of the doctor's ``--fix-ids``, each the way it ends well."""

from __future__ import annotations

import pytest

from simulation.mend_scenes import SCENES
from simulation.scenes import play


@pytest.mark.parametrize("scene", ["two are over", "one was cancelled", "one failed"])
def test_an_entry_is_mended_for_the_job_whose_result_lives(scene: str) -> None:
    assert play(SCENES[f"mended: {scene}"]).status == "completed"


def test_an_entry_is_mended_for_the_job_that_lives() -> None:
    assert play(SCENES["mended: one lives"]).status == "duplicate"


@pytest.mark.parametrize("scene", ["one cannot be read", "a head is lost"])
def test_an_entry_is_left_as_it_is_where_nobody_can_tell(scene: str) -> None:
    assert play(SCENES[f"mended: {scene}"]) == 1


@pytest.mark.parametrize(
    "scene",
    [
        "freed as it is mended",
        "removed by two",
        "mended before its job comes",
        "mended before another job comes",
    ],
)
def test_an_id_that_is_used_while_its_entry_is_mended_stands_for_one_job(scene: str) -> None:
    assert play(SCENES[scene]).status == "duplicate"
