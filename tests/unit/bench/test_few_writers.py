"""The grid of few writers: the plain loops reach what one key of S3 takes, and no more."""

from __future__ import annotations

import pytest

from bench.contention import announce_and_combine, decoded_once, swap_loop
from bench.few_writers import Cell, MakeWriter, tally, warm_loop
from simulation.conditions import S3

SECONDS = 6.0  # of virtual time


@pytest.mark.parametrize("make", [warm_loop, announce_and_combine])
def test_one_writer_makes_about_as_many_commits_as_one_key_takes(make: MakeWriter) -> None:
    with decoded_once():
        found = tally(Cell(writers=1), make, S3, SECONDS)
    assert 0.9 * S3.swaps_per_second < found.rate <= S3.swaps_per_second
    assert found.requests < 1.3
    assert 5.0 <= found.dollars < 6.0  # a PUT is $5 per million


@pytest.mark.parametrize("make", [warm_loop, swap_loop])
def test_plain_loops_gain_nothing_by_more_writers(make: MakeWriter) -> None:
    one, eight = (tally(Cell(writers=writers), make, S3, SECONDS) for writers in (1, 8))
    assert eight.rate < 1.1 * one.rate
    assert eight.requests > 2 * one.requests
    assert eight.longest_s > 5 * one.longest_s


def test_writers_that_pause_are_slower_than_their_pauses_allow() -> None:
    found = tally(Cell(writers=4, mean_s=1.0), warm_loop, S3, 60.0)
    assert 2.5 < found.rate < 4
