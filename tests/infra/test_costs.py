"""The cost calculator counts requests as the queue makes them, and the documentation prints what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.costs import EXPRESS, MINUTES_A_MONTH, STANDARD, Load, bill, by_batch, total, used
from osqueue import Queue

ROOT = Path(__file__).resolve().parents[2]
PAYLOAD = {"to": "ada@example.com", "template": "welcome", "n": 12345}
TOLERANCE = 0.05  # of the requests: tables of finished jobs are written when they are full


@pytest.fixture
def queue() -> Queue[Any]:
    q: Queue[Any] = Queue.connect("memory://", "emails")
    live(q, 1, 1)
    return q


def live(q: Queue[Any], jobs: int, batch: int, named: bool = False, read: bool = False) -> None:
    for start in range(0, jobs, batch):
        ids = [f"{start + n}" if named else None for n in range(batch)]
        q.enqueue_many([{"payload": PAYLOAD, "id": each} for each in ids])
        q.complete_many(
            [
                {"job_id": each.job_id, "token": each.token, "result": {"n": 1}}
                for each in q.claim(limit=batch)
            ]
        )
        for each in ids if read else ():
            q.result(each or "")


def asked(q: Queue[Any], work: Any) -> dict[str, int]:
    before = dict(q.requests)
    work()
    return {kind: count - before[kind] for kind, count in q.requests.items()}


def of_work(load: Load) -> tuple[float, float]:
    """PUT and GET of a load alone, without the reaper."""
    whole, idle = used(load), used(Load(0))
    return whole.put - idle.put, whole.get - idle.get


@pytest.mark.parametrize("batch", [1, 10, 100])
def test_the_requests_of_plain_jobs_are_those_that_are_counted(queue: Queue[Any], batch: int) -> None:
    jobs = 1000
    count = asked(queue, lambda: live(queue, jobs, batch))
    put, get = of_work(Load(jobs, batch))
    assert count["put"] + count["list"] == pytest.approx(put, rel=TOLERANCE)
    assert count["get"] == get == 0


def test_the_requests_of_jobs_with_ids_whose_results_are_read_are_those_that_are_counted(
    queue: Queue[Any],
) -> None:
    jobs = 300
    count = asked(queue, lambda: live(queue, jobs, 1, named=True, read=True))
    put, get = of_work(Load(jobs, 1, named=1.0, results=1.0))
    assert count["put"] + count["list"] == pytest.approx(put, rel=TOLERANCE)
    assert count["get"] == get


def test_an_empty_claim_costs_what_is_counted(queue: Queue[Any]) -> None:
    count = asked(queue, lambda: [queue.claim() for _ in range(10)])
    put, get = of_work(Load(0, empty_claims=10))
    assert count["put"] + count["list"] == put == 0
    assert count["get"] == get


def test_a_pass_over_an_idle_queue_costs_what_is_counted(queue: Queue[Any]) -> None:
    queue.reap()
    count = asked(queue, queue.reap)
    two, one = used(Load(0, queues=2)), used(Load(0))
    assert count["get"] == (two.get - one.get) / MINUTES_A_MONTH
    assert count["put"] + count["list"] == (two.put - one.put) / MINUTES_A_MONTH


def test_a_bill_is_the_sum_of_its_lines_and_grows_with_the_load() -> None:
    for prices in (STANDARD, EXPRESS):
        small, large = Load(1_000_000, 100), Load(1_000_000, 1)
        assert total(small, prices) == pytest.approx(sum(line.dollars for line in bill(small, prices)))
        assert total(large, prices) > 10 * (total(small, prices) - total(Load(0), prices))
    assert total(Load(1000, way="embedded")) < total(Load(1000, way="lambda")) < total(Load(1000, way="http"))


def test_the_documentation_prints_the_calculators_table() -> None:
    text = (ROOT / "docs/costs.md").read_text(encoding="utf-8")
    for line in by_batch():
        assert line in text
    assert f"${total(Load(0)):.2f} a month" in text
