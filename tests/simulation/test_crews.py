"""Processes whose callers share one Queue object: some leave in the middle of a call, and nobody else is worse off."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from simulation.profile import PROFILES
from simulation.report import RunReport
from simulation.run import simulate


@cache
def simulated(seed: int, profile: str) -> RunReport:
    """Several tests look at one run."""
    return simulate(seed, PROFILES[profile])


@pytest.mark.parametrize("profile", ["shared", "forked", "crews"])
@pytest.mark.parametrize("seed", range(3))
def test_callers_who_leave_and_children_who_go_on_harm_nobody(profile: str, seed: int) -> None:
    report = simulated(seed, profile)
    assert report.violation == ""
    assert report.jobs > 100


def test_callers_leave_in_every_way() -> None:
    reports = [simulated(seed, "shared") for seed in (23, 28, 38)]
    assert [each.violation for each in reports] == [""] * len(reports)
    faults = sum((each.faults for each in reports), Counter[str]())
    assert faults["left"] > 50
    assert faults["flown on"] > 5
    assert faults["torn"] > 0


def test_processes_fork_while_they_commit() -> None:
    report = simulate(4, PROFILES["forked"])
    assert report.violation == ""
    assert report.faults["fork"] > 3


def test_the_same_seed_is_the_same_story_with_threads() -> None:
    assert simulate(12, PROFILES["shared"]) == simulated(12, "shared")
