"""Whole runs: nothing is violated, every job is accounted for, and a seed is one story."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache

import pytest

from osqueue import limits
from osqueue.core import encoding
from simulation.conditions import FAULTS, TIGHT
from simulation.profile import PROFILES
from simulation.report import RunReport
from simulation.run import simulate
from simulation.soak import ProfileTotal, Soak, run_soak
from simulation.tight import limited

# Where another test of this file looks at runs of a profile, the seed is one of its seeds: the run is made once.
SEEDS = [
    ("calm", 0),
    ("rough", 2),
    ("crowd", 2),
    ("forgetful", 0),
    ("upgrade", 0),
    ("names", 0),
    ("names", 10),
    ("names", 11),
    ("names", 3),
    ("loads", 0),
    ("loads", 11),
    ("large results", 0),
    ("large results", 3),
    ("caps", 0),
    ("pages", 0),
    ("clocks", 0),
    ("clocks", 1),
    ("cancels", 3),
    ("mass cancels", 0),
    ("batch cancels", 1),
    ("cancels mended", 5),
    ("restarts", 2),
    ("consumers", 0),
    ("consumers", 512),  # one commit applies two claims of a holder
    ("consumers", 532),  # a dead client's head arrives after the queue was found empty
    ("consumers", 577),  # a doubled wake takes up a ticket that has lapsed
    ("consumers mended", 0),
    ("events mended", 42),
    ("groups mended", 1),
    ("rates mended", 340002),  # restores beside rates and start deadlines
    ("schedules run", 3),
    ("payloads", 0),
    ("two stores", 2),
    ("two stores", 5),
    ("schedules", 3),
    ("schedules mended", 1),
    ("follows", 2),
    ("kinds", 2),
    ("throttles", 1),
    ("groups", 5),
    ("units", 0),
    ("units of groups", 4),
    ("fair", 0),
    ("groups in turn", 4),
    ("groups held", 2),
    ("all shards", 2),
    ("refusals", 0),
    ("throttled", 0),
]


def test_a_clock_that_is_ahead_writes_no_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python writes the warnings of a logger without a handler to stderr."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler())
    logging.getLogger("osqueue.other").warning("shown")
    logging.getLogger("osqueue.clock").warning("not shown")
    assert capsys.readouterr().err == "shown\n"


@cache
def simulated(seed: int, profile: str) -> RunReport:
    """Several tests look at one run."""
    return simulate(seed, PROFILES[profile])


@pytest.mark.parametrize(("profile", "seed"), SEEDS)
def test_a_seed_violates_nothing_and_loses_no_job(profile: str, seed: int) -> None:
    report = simulated(seed, profile)
    assert report.violation == ""
    assert report.jobs > 100
    assert report.commits > 100
    assert report.records >= report.jobs


def test_a_rough_run_injects_every_fault_and_reaches_every_mechanism() -> None:
    report = simulated(2, "rough")
    assert report.violation == ""
    kinds = {"error", "refused", "lost", "late", "duplicate", "freeze", "crash", "clone"}
    assert kinds <= report.faults.keys()
    reached = {
        *(
            "EnqueueJobs QUEUED",
            "EnqueueJobs SCHEDULED",
            "AttachSpans QUEUED",
            "ClaimJobs GRANTED",
            "ExtendLeases OK",
            "CompleteJobs OK",
        ),
        *(
            "FailJobs FAILING",
            "FailJobs FAILED",
            "ReleaseJobs OK",
            "CancelJob CANCELLED",
            "RedriveJobs OK",
            "RunTimers OK",
        ),
        *("RaiseGcFloor OK", "CompleteJobs LEASE_LOST"),
    }
    assert reached <= report.codes.keys()


def test_workers_with_large_results_are_overtaken_by_the_collector_and_lose_none() -> None:
    report = simulated(1, "large results")
    assert report.violation == ""
    assert {"CompleteJobs OK", "CompleteJobs STALE", "RaiseGcFloor OK"} <= report.codes.keys()


def test_listeners_hear_of_thousands_of_transitions() -> None:
    report = simulated(2, "events")
    assert (report.violation, report.told > 1_000) == ("", True)


def test_a_run_of_small_pages_lists_and_deletes_in_several_goes() -> None:
    report = simulated(0, "pages")
    assert report.violation == ""
    assert {"slow", "late", "duplicate"} <= report.faults.keys()


def test_a_run_of_wrong_clocks_suspends_machines_and_sets_their_clocks() -> None:
    report = simulated(0, "clocks")
    assert report.violation == ""
    assert {"suspend", "suspend unnoticed", "step", "slow"} <= report.faults.keys()


def test_runs_of_callers_ask_everything_and_free_ids_while_they_go_on() -> None:
    total = runs("names", range(10, 14))
    assert total.ids > 80
    assert total.freed > 12
    assert total.passes > 120
    assert {
        *("enqueue queued", "enqueue duplicate", "enqueue completed", "enqueue_many answered"),
        *("enqueue_and_wait answered", "result answered", "result NotFound", "status answered"),
        *("update_result_ttl answered", "cancel answered"),
    } <= total.asked.keys()


def test_runs_of_callers_replace_and_debounce_jobs_wherever_they_wait() -> None:
    total = runs("uniques", (0, 5))
    assert {"enqueue replaced", "enqueue postponed", "enqueue duplicate"} <= total.asked.keys()
    assert {"ReplaceJobs QUEUED", "ReplaceJobs SCHEDULED", "ReplaceJobs RETRY"} <= total.codes.keys()


def test_runs_of_groups_wait_for_them_and_find_what_may_start() -> None:
    total = runs("groups", (5, 7))
    assert {"ClaimJobs GRANTED", "ClaimJobs GROUPS_CLOSED"} <= total.codes.keys()


def test_runs_over_shards_meet_the_limits_that_an_operator_changes() -> None:
    total = runs("all shards", (3, 4))
    assert {"ClaimJobs RUNNING_LIMIT", "ClaimJobs RATE_LIMITED"} <= total.codes.keys()
    assert total.codes["ChangeSettings OK"] > 30


def test_runs_that_are_mended_restore_heads_in_which_batches_are_cancelled() -> None:
    total = runs("cancels mended", (0, 3, 7))
    assert total.asked["heads restored"] > 5
    assert total.codes["CancelJobs CANCELLED"] > 20


def test_runs_of_loaders_fail_in_every_way_and_every_bulk_is_whole() -> None:
    total = runs("loads", (9, 10, 25))
    assert total.bulks > 40
    assert {"attached", "repeated", "given up", "Throttled", "Unavailable"} <= total.loads.keys()
    assert {"AttachBulk QUEUED", "AttachBulk STALE"} <= total.codes.keys()
    assert {"crash", "freeze", "lost", "late", "duplicate"} <= total.faults.keys()


def runs(profile: str, seeds: Iterable[int]) -> RunReport:
    """Several runs in one report."""
    total = RunReport(profile, 0)
    for seed in seeds:
        report = simulated(seed, profile)
        assert report.violation == ""
        total.add(report)
    return total


def test_the_same_seed_is_the_same_story() -> None:
    for profile, seed in (("calm", 0), ("names", 0), ("loads", 0)):
        assert simulate(seed, PROFILES[profile]) == simulated(seed, profile)


def test_limits_are_put_back_after_a_run() -> None:
    before = {name: getattr(limits, name, None) for name in TIGHT}
    formats = (encoding.FORMAT, encoding.FORMATS_READ)
    with limited({"BLOCK_BYTES_MAX": 77}):
        assert (limits.BLOCK_BYTES_MAX, encoding.BLOCK_BYTES_MAX) == (77, 77)
    simulate(0, PROFILES["calm"])
    assert {name: getattr(limits, name, None) for name in TIGHT} == before
    assert formats == (encoding.FORMAT, encoding.FORMATS_READ)


def test_a_limit_nobody_has_is_refused() -> None:
    with pytest.raises(KeyError, match="NO_SUCH_LIMIT"), limited({"NO_SUCH_LIMIT": 1}):
        pass


def test_a_soak_tells_how_often_each_fault_was_injected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_soak(0.0, 0, "clocks") == 0
    injected = next(line for line in capsys.readouterr().out.splitlines() if "injected:" in line)
    assert {name for name in FAULTS if f" {name}" in injected} == set(FAULTS)
    assert " 0 suspend" not in injected
    assert " 0 clone" in injected


def test_a_soak_gives_each_profile_as_much_time_and_prints_its_figures() -> None:
    soak = Soak(7, ["short", "long"])
    chosen = []
    for _ in range(6):
        seed, name = soak.next_run()
        chosen.append((name, seed))
        soak.add(RunReport(name, seed, commits=5, slots=2), 1.0 if name == "short" else 3.5)
    assert chosen == [("short", 7), ("long", 7), ("short", 8), ("short", 9), ("short", 10), ("long", 8)]
    assert soak.totals["short"] == ProfileTotal("short", 4, 4, 4.0, commits=20, slots=8)
    assert "4 runs" in str(soak.totals["short"])
    assert soak.total.commits == 30


def test_a_run_of_cancellers_settles_tombstones_and_some_come_too_late() -> None:
    total = runs("cancels", (0, 4))
    assert total.codes["ReplaceSpan OK"] > 40
    assert total.codes["ReplaceSpan RETRY"] > 0
    assert total.codes["CancelJob CANCELLED"] > 120
