"""``osqueue top`` where it prints once."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue
from tests.support.commands import Run, answers


def test_once_prints_the_queues_in_order(run: Run, q: Queue[Any], address: str) -> None:
    q.enqueue(1)
    other = Queue.connect(address, "reports")
    other.enqueue_many([{"payload": 1}, {"payload": 2}])
    assert [row["queue"] for row in answers(run("top"))] == ["reports", "emails"]
    assert [row["queue"] for row in answers(run("top", "--sort", "queue", "--once"))] == ["emails", "reports"]


@pytest.mark.usefixtures("terminal")
def test_once_prints_a_table_on_a_terminal(run: Run, q: Queue[Any]) -> None:
    q.enqueue(1)
    shown = run("top", "--once")
    assert shown.exit_code == 0
    assert "emails" in shown.stdout
    assert "{" not in shown.stdout


def test_an_address_without_queues_says_so(run: Run) -> None:
    assert "no queues at this address" in run("top").stderr


@pytest.mark.parametrize("every", ["0.4", "2h"])
def test_a_time_between_looks_out_of_bounds_is_refused(run: Run, every: str) -> None:
    refused = run("top", "--every", every)
    assert refused.exit_code == 2
    assert "--every" in refused.stderr
