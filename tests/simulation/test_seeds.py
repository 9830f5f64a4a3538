"""Whole runs: nothing is violated, every job is accounted for, and a seed is one story."""

from __future__ import annotations

from collections import Counter

import pytest

from osqueue import limits
from osqueue.core import wire
from osqueue.simulation.profile import PROFILES, TIGHT
from osqueue.simulation.run import simulate
from osqueue.simulation.tight import limited

SEEDS = [
    ("calm", 0),
    ("rough", 0),
    ("rough", 1),
    ("crowd", 0),
    ("forgetful", 0),
    ("forgetful", 1),
    ("upgrade", 0),
    ("names", 0),
    ("names", 1),
    ("names", 2),
    ("names", 3),
    ("loads", 0),
    ("loads", 1),
    ("loads", 2),
]


@pytest.mark.parametrize(("profile", "seed"), SEEDS)
def test_a_seed_violates_nothing_and_loses_no_job(profile: str, seed: int) -> None:
    report = simulate(seed, PROFILES[profile])
    assert report.violation == ""
    assert report.jobs > 100
    assert report.commits > 100
    assert report.records >= report.jobs


def test_a_rough_run_injects_every_fault_and_reaches_every_mechanism() -> None:
    report = simulate(2, PROFILES["rough"])
    assert report.violation == ""
    kinds = {"error", "refused", "lost", "late", "duplicate", "freeze", "crash", "clone"}
    assert kinds <= report.faults.keys()
    reached = {
        *(
            "Enqueue QUEUED",
            "Enqueue SCHEDULED",
            "Attach QUEUED",
            "Claim GRANTED",
            "Heartbeat OK",
            "Complete OK",
        ),
        *("Fail FAILING", "Fail FAILED", "Release OK", "Cancel CANCELLED", "Redrive OK", "Sweep OK"),
        *("RaiseGcFloor OK", "Complete LEASE_LOST"),
    }
    assert reached <= report.codes.keys()


def test_a_run_of_callers_asks_everything_and_frees_ids_while_it_goes_on() -> None:
    report = simulate(10, PROFILES["names"])
    assert report.violation == ""
    assert report.ids > 25
    assert report.freed > 3
    assert report.passes > 30
    assert {
        *("enqueue queued", "enqueue duplicate", "enqueue completed", "enqueue_many answered"),
        *("enqueue_and_wait answered", "result answered", "result NotFound", "status answered"),
        *("update_result_ttl answered", "cancel answered"),
    } <= report.asked.keys()


def test_runs_of_loaders_fail_in_every_way_and_every_bulk_is_whole() -> None:
    reports = [simulate(seed, PROFILES["loads"]) for seed in (3, 11, 15, 18, 19)]
    assert [each.violation for each in reports] == [""] * len(reports)
    assert sum(each.bulks for each in reports) > 50
    told = sum((each.loads for each in reports), Counter[str]())
    assert {"attached", "repeated", "given up", "Throttled", "Unavailable"} <= told.keys()
    codes = sum((each.codes for each in reports), Counter[str]())
    assert {"AttachAll QUEUED", "AttachAll STALE"} <= codes.keys()
    faults = sum((each.faults for each in reports), Counter[str]())
    assert {"crash", "freeze", "lost", "late", "duplicate"} <= faults.keys()


def test_the_same_seed_is_the_same_story() -> None:
    for profile, seed in (("calm", 7), ("names", 7), ("loads", 7)):
        first, again = (simulate(seed, PROFILES[profile]) for _ in range(2))
        assert first == again


def test_limits_are_put_back_after_a_run() -> None:
    before = {name: getattr(limits, name, None) for name in TIGHT}
    formats = (wire.FORMAT, wire.FORMATS_READ)
    with limited({"BLOCK_BYTES_MAX": 77}):
        assert (limits.BLOCK_BYTES_MAX, wire.BLOCK_BYTES_MAX) == (77, 77)
    simulate(0, PROFILES["calm"])
    assert {name: getattr(limits, name, None) for name in TIGHT} == before
    assert formats == (wire.FORMAT, wire.FORMATS_READ)


def test_a_limit_nobody_has_is_refused() -> None:
    with pytest.raises(KeyError, match="NO_SUCH_LIMIT"), limited({"NO_SUCH_LIMIT": 1}):
        pass
