"""A store that takes one write a second of an object: writers wait for it together, few requests are in vain."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from bench.contention import (
    GAP_REQUESTS_MAX,
    announce_and_combine,
    decoded_once,
    keep_the_gap,
    measure,
)
from bench.few_writers import CellTally
from osqueue.commit import protocol
from osqueue.commit.deadline import Deadline
from osqueue.commit.writer import ShardWriter
from simulation.conditions import GCS
from simulation.profile import PROFILES
from simulation.run import simulate

SECONDS = 12.0  # of virtual time


def tally(writers: int, make: Any = keep_the_gap) -> CellTally:
    with decoded_once():
        return measure(writers, make, GCS, SECONDS)


@pytest.mark.parametrize("writers", [1, 2, 16])
def test_a_commit_a_second_takes_everybody_along_in_few_requests(writers: int) -> None:
    found = tally(writers)
    assert found.requests <= GAP_REQUESTS_MAX
    assert found.rate > 0.7 * writers


def test_writers_who_know_of_no_gap_spend_several_times_as_many() -> None:
    assert tally(8, announce_and_combine).requests > 3 * GAP_REQUESTS_MAX


def test_a_rough_run_meets_the_gap_and_violates_nothing() -> None:
    report = simulate(0, PROFILES["gaps"])
    assert report.violation == ""
    assert report.faults["too soon"] > 20


def nothing_is_left(self: ShardWriter) -> float:
    return 0.0


def looks_at_once(*_: Any) -> float:
    return 0.01


def tries_at_once(self: Deadline) -> Generator[Any, Any, bool]:
    """Nobody waits: what is too soon goes to be announced."""
    yield from ()
    return False


@pytest.mark.parametrize(
    ("place", "name", "instead", "writers"),
    [
        (ShardWriter, "gap_left", nothing_is_left, 8),
        (protocol, "poll_delay", looks_at_once, 8),
        (Deadline, "await_gap", tries_at_once, 1),
    ],
    ids=["the gap is not known", "looks do not wait for it", "a lone writer does not wait"],
)
def test_without_one_guard_it_shows(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, instead: Callable[..., Any], writers: int
) -> None:
    sound = tally(writers).requests
    monkeypatch.setattr(place, name, instead)
    assert tally(writers).requests > 1.4 * sound
