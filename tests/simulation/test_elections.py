"""Candidates in virtual time: never two leaders at once, whatever their clocks say and whatever gets lost."""

from __future__ import annotations

from collections import Counter

from simulation.profile import PROFILES
from simulation.run import simulate


def test_never_do_two_lead_at_once_and_terms_only_grow() -> None:
    reports = [simulate(seed, PROFILES["election"]) for seed in range(20)]
    assert [each.violation for each in reports] == [""] * len(reports)
    assert min(each.terms for each in reports) > 5
    faults = sum((each.faults for each in reports), Counter[str]())
    assert {"error", "refused", "lost", "late", "duplicate", "freeze", "crash"} <= faults.keys()
    asked = sum((each.asked for each in reports), Counter[str]())
    assert {"elected", "already_leader", "other_leader", "conflict"} == asked.keys()


def test_the_same_seed_is_the_same_election() -> None:
    first, again = (simulate(3, PROFILES["election"]) for _ in range(2))
    assert first == again
