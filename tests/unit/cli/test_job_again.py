"""``job retry``, ``job run-now``, ``dlq redrive --job``."""

from __future__ import annotations

from typing import Any

from osqueue import Queue
from tests.support.commands import Run, answer, dead


def test_a_delayed_job_runs_now(run: Run, q: Queue[Any]) -> None:
    job = q.enqueue(1, delay=600, id="order-7").job_id
    assert answer(run("job", "run-now", "emails", "order-7")) == {"job_id": "order-7", "state": "queued"}
    assert [each.job_id for each in q.claim()] == [job]
    done = run("job", "run-now", "emails", "order-7")
    assert (done.exit_code, "it is processing, and does not wait" in done.stderr) == (1, True)
    assert "not_found" in run("job", "run-now", "emails", "nobody").stderr


def test_a_failed_job_is_tried_again(run: Run, q: Queue[Any]) -> None:
    (job,) = dead(q, "no")
    assert "'osqueue job retry' queues it again" in run("job", "run-now", "emails", job).stderr
    assert answer(run("job", "retry", "emails", job)) == {"job_id": job, "state": "queued", "redriven": True}
    (lease,) = q.claim()
    assert (lease.job_id, lease.attempt) == (job, 1)


def test_so_is_one_that_waits_for_its_next_attempt(run: Run, q: Queue[Any]) -> None:
    job = str(q.enqueue(1).job_id)
    q.claim()[0].fail("no", retry_in=600)
    assert answer(run("job", "retry", "emails", job)) == {"job_id": job, "state": "queued"}
    assert [each.attempt for each in q.claim()] == [2]
    assert run("job", "retry", "emails", job).exit_code == 1


def test_dead_letters_are_redriven_by_name(run: Run, q: Queue[Any]) -> None:
    jobs = dead(q, "a", "b", "c")
    which = ("--job", jobs[0], "--job", jobs[2])
    assert answer(run("dlq", "redrive", "emails", *which, "--dry-run"))["would_redrive"] == 2
    assert answer(run("dlq", "redrive", "emails", *which))["redriven"] == 2
    assert {each.job_id for each in q.claim(3)} == {jobs[0], jobs[2]}
    assert "none of these jobs is a dead letter" in run("dlq", "redrive", "emails", *which).stderr
