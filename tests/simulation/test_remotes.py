"""Callers over an API whose calls are lost, late and repeated: no job comes in twice, no lease goes to nobody."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from simulation.profile import PROFILES
from simulation.report import RunReport
from simulation.run import simulate


@cache
def simulated(seed: int) -> RunReport:
    """Several tests look at one run."""
    return simulate(seed, PROFILES["remote"])


@pytest.mark.parametrize("seed", range(3))
def test_a_repeated_call_does_what_one_would_have_done(seed: int) -> None:
    report = simulated(seed)
    assert report.violation == ""
    assert report.jobs > 100


def test_calls_are_lost_late_and_repeated() -> None:
    faults = sum((simulated(seed).faults for seed in range(3)), Counter[str]())
    assert {"call lost", "answer lost", "call late", "call twice", "crash"} <= faults.keys()


def test_the_same_seed_is_the_same_story_over_an_api() -> None:
    assert simulate(0, PROFILES["remote"]) == simulated(0)
