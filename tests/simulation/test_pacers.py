"""Callers of a pacer in virtual time: no slot twice, none too near to another, none used early, late or in a pause."""

from __future__ import annotations

from collections import Counter

from simulation.profile import PROFILES
from simulation.run import simulate


def test_slots_are_given_once_and_used_when_they_come() -> None:
    reports = [simulate(seed, PROFILES["pacer"]) for seed in range(12)]
    assert [each.violation for each in reports] == [""] * len(reports)
    assert sum(each.slots for each in reports) > 1_000
    faults = sum((each.faults for each in reports), Counter[str]())
    assert {
        "error",
        "refused",
        "lost",
        "late",
        "duplicate",
        "freeze",
        "crash",
        "suspend",
        "step",
    } <= faults.keys()


def test_the_same_seed_is_the_same_run() -> None:
    first, again = (simulate(3, PROFILES["pacer"]) for _ in range(2))
    assert first == again
