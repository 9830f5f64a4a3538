"""Few writers publish: fast, cheap and fair in virtual time, and settled whatever befalls a publication."""

from __future__ import annotations

import pytest

from bench.contention import SLOWED, announce_and_combine, decoded_once
from bench.few_writers import LONGEST_SECONDS_MAX, Cell, CellTally, tally
from simulation.conditions import S3, S3_EXPRESS, Latency

SECONDS = 8.0  # of virtual time


def work(writers: int, latency: Latency = S3, mean_s: float = 0.0) -> CellTally:
    with decoded_once():
        cell = Cell(writers=writers, mean_s=mean_s)
        return tally(cell, announce_and_combine, latency, SECONDS * (8 if mean_s else 1))


@pytest.mark.parametrize(("writers", "over_one"), [(2, 1.15), (4, 1.9), (8, 3.3), (16, 6.0)])
def test_few_writers_are_faster_than_one_at_a_similar_price(writers: int, over_one: float) -> None:
    one, found = work(1), work(writers)
    assert found.rate > over_one * one.rate
    assert found.dollars < 1.7 * one.dollars
    assert found.longest_s < LONGEST_SECONDS_MAX


@pytest.mark.parametrize("latency", [S3_EXPRESS, SLOWED], ids=["express", "equal times"])
def test_two_writers_are_faster_than_one_where_a_commit_takes_little_time(latency: Latency) -> None:
    assert work(2, latency).rate > 1.05 * work(1, latency).rate


def test_more_writers_than_publish_are_faster_still() -> None:
    assert work(24).rate > work(16).rate


def test_writers_that_pause_pay_for_little_more_than_their_commits() -> None:
    found = work(2, mean_s=1.0)
    assert found.dollars < 8
    assert found.longest_s < LONGEST_SECONDS_MAX
