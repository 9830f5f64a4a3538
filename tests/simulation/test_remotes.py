"""Callers over an API whose calls are lost, late and repeated: no job comes in twice, no lease goes to nobody."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation.profile import PROFILES
from simulation.run import simulate


@pytest.mark.parametrize("seed", range(3))
def test_a_repeated_call_does_what_one_would_have_done(seed: int) -> None:
    report = simulate(seed, PROFILES["remote"])
    assert report.violation == ""
    assert report.jobs > 100


def test_calls_are_lost_late_and_repeated() -> None:
    reports = [simulate(seed, PROFILES["remote"]) for seed in range(3, 6)]
    assert [each.violation for each in reports] == [""] * len(reports)
    faults = sum((each.faults for each in reports), Counter[str]())
    assert {"call lost", "answer lost", "call late", "call twice", "crash"} <= faults.keys()


def test_the_same_seed_is_the_same_story_over_an_api() -> None:
    first, again = (simulate(9, PROFILES["remote"]) for _ in range(2))
    assert first == again
