"""Scenes of removals, each the way it ends well."""

from __future__ import annotations

import pytest

from simulation.removal_scenes import SCENES, play


@pytest.mark.parametrize("name", SCENES)
def test_no_accepted_job_is_lost_beside_a_removal(name: str) -> None:
    play(name)


@pytest.mark.parametrize(
    "name", ["used since it was shown", "changed in its last shard", "known from before"]
)
def test_a_job_is_accepted_at_all(name: str) -> None:
    assert play(name).accepted
