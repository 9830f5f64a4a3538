"""Processes that wait at many queues, most of them at rest: no job waits for longer than looks and news allow."""

from __future__ import annotations

import pytest

from simulation.profile import PROFILES
from simulation.run import simulate


@pytest.mark.parametrize("profile", ["many queues", "many queues fail"])
def test_a_job_waits_no_longer_than_looks_and_news_allow(profile: str) -> None:
    report = simulate(0, PROFILES[profile])
    assert report.violation == ""
    assert report.asked["enqueue"] > 200
    assert report.asked["enqueue"] > report.asked["news"] > 50


def test_a_run_with_faults_loses_and_repeats_requests() -> None:
    faults = simulate(1, PROFILES["many queues fail"]).faults
    assert {"error", "lost", "late", "duplicate", "crash"} <= faults.keys()
