"""A producer and a worker get more done together than one object does in turn."""

from __future__ import annotations

from bench.contention import decoded_once
from bench.pair import OVER_ONE, environments, producer_and_worker
from simulation.conditions import S3

SECONDS = 10.0  # of virtual time


def test_a_producer_and_a_worker_are_faster_and_cheaper_than_one_object_in_turn() -> None:
    with decoded_once():
        one, pair = environments(1, S3, SECONDS), producer_and_worker(S3, SECONDS)
    assert pair.rate > OVER_ONE * one.rate
    assert pair.dollars < one.dollars


def test_environments_share_their_commits() -> None:
    with decoded_once():
        one, four = environments(1, S3, SECONDS), environments(4, S3, SECONDS)
    assert four.rate > 1.7 * one.rate
    assert four.dollars < 2 * one.dollars
