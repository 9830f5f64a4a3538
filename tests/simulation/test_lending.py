"""Shards under one limiter in virtual time: no slot used twice, none unreserved, no window with too many starts."""

from __future__ import annotations

from collections import Counter
from functools import cache

from simulation.profile import PROFILES
from simulation.report import RunReport
from simulation.run import simulate


@cache
def simulated(seed: int) -> RunReport:
    """Two tests look at one run."""
    return simulate(seed, PROFILES["lending"])


def test_starts_keep_within_the_bound_whatever_befalls_their_claimers() -> None:
    reports = [simulated(seed) for seed in range(6)]
    assert [each.violation for each in reports] == [""] * len(reports)
    assert sum(each.slots for each in reports) > 1_500
    faults = sum((each.faults for each in reports), Counter[str]())
    assert {"lost", "late", "duplicate", "freeze", "crash", "suspend", "step"} <= faults.keys()


def test_the_same_seed_is_the_same_run() -> None:
    assert simulate(3, PROFILES["lending"]) == simulated(3)


def test_what_jobs_of_many_units_lack_is_paid_before_the_next_starts() -> None:
    reports = [simulate(seed, PROFILES["lending units"]) for seed in range(4)]
    assert [each.violation for each in reports] == [""] * len(reports)
    assert sum(each.slots for each in reports) > 200


def test_shards_that_change_their_limiter_use_the_slots_of_the_one_they_have() -> None:
    reports = [simulate(seed, PROFILES["two limiters"]) for seed in range(2)]
    assert [each.violation for each in reports] == [""] * len(reports)
    assert sum(each.slots for each in reports) > 600
