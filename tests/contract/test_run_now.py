"""Delayed jobs that are wanted now, and single dead letters, over every store and transport."""

from __future__ import annotations

from typing import Any


def test_a_job_that_waits_for_a_time_runs_now(q: Any) -> None:
    job = q.enqueue(1, delay=600, id="order-7").job_id
    assert q.claim() == []
    assert q.run_now("order-7") == "queued"
    assert q.run_now(job) == "queued"  # it was
    (lease,) = q.claim()
    assert (lease.job_id, lease.attempt) == (job, 1)
    assert q.run_now(job) == "processing"
    lease.complete()
    assert q.run_now(job) == "completed"
    assert q.run_now("nobody") == "not_found"


def test_one_that_waits_for_its_next_attempt_too(q: Any) -> None:
    job = q.enqueue(1).job_id
    q.claim()[0].fail("no", retry_in=600)
    assert q.run_now(job) == "queued"
    (lease,) = q.claim()
    assert (lease.job_id, lease.attempt) == (job, 2)
    lease.fail("no", retry=False)
    assert q.run_now(job) == "failed"


def test_jobs_deep_in_segments_run_now_and_none_else(q: Any) -> None:
    items = [{"payload": n, "delay": 600 + n} for n in range(1_500)]
    jobs = [each.job_id for each in q.enqueue_many(items)]
    wanted = [jobs[0], jobs[700], jobs[1_499]]
    for job in wanted:
        assert q.run_now(job) == "queued"
    stats = q.stats()
    assert (stats["queued"], stats["scheduled"]) == (3, 1_497)
    leases = q.claim(10)
    assert [each.job_id for each in leases] == wanted
    assert [each.payload for each in leases] == [0, 700, 1_499]
    assert q.cancel(jobs[701]) == "cancelled"
    assert q.run_now(jobs[701]) == "cancelled"
    q.complete_many(leases)
    assert q.stats()["scheduled"] == 1_496


def test_single_dead_letters_are_redriven(q: Any) -> None:
    jobs = [q.enqueue(n, id=f"order-{n}", max_attempts=1).job_id for n in range(4)]
    for lease in q.claim(4):
        lease.fail("no")
    assert q.redrive(jobs=["order-2", jobs[0], "nobody"], dry_run=True) == 2
    assert q.redrive(jobs=["order-2", jobs[0], "nobody"]) == 2
    assert {each.job_id for each in q.claim(4)} == {jobs[0], jobs[2]}
    assert q.redrive(jobs=[jobs[0]]) == 0
    assert q.redrive(jobs=[]) == 0
    assert {each.job_id for each in q.dead_letters()[0]} == {jobs[1], jobs[3]}
