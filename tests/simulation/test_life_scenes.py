"""Scenes of restored heads, each the way it ends well: nothing starts that has to wait."""

from __future__ import annotations

import pytest

from simulation.life_scenes import LIFE_SCENES
from simulation.repair_scenes import mended


@pytest.mark.parametrize("scene", LIFE_SCENES)
def test_a_restored_head_starts_nothing_that_had_to_wait(scene: str) -> None:
    assert mended(LIFE_SCENES[scene]) == ()
