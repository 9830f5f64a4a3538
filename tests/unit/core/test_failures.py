"""Attempts that fail: by their worker's word, or because they ran for too long; and jobs that start too late."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import limits
from osqueue.core.failures import TIMED_OUT
from osqueue.core.job_ops import (
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    LeaseBeat,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings, RedriveJobs, RunTimers
from osqueue.core.settings import KindSettings
from osqueue.core.state import CANCELLED, FAILED, LeaseRecord
from simulation.tight import limited

MINUTE = 60_000


def running(shard: Any, **fields: Any) -> LeaseRecord:
    shard.enqueue(**fields)
    (lease,) = shard.claim()
    return lease  # type: ignore[no-any-return]


def beat(shard: Any, lease: LeaseRecord, lease_ms: int = 0) -> Code:
    held = LeaseBeat(lease.job.key, lease.token)
    return shard.apply(ExtendLeases((held,), lease_ms))[0].code  # type: ignore[no-any-return]


def causes(shard: Any) -> list[str]:
    return [event.cause for event in shard.events]


# ── Run-time limit ───────────────────────────────────────────────────────────
def test_no_heartbeat_extends_an_attempt_past_its_limit(shard: Any) -> None:
    lease = running(shard, run_within_ms=MINUTE)
    for _ in range(5):
        shard.now += 10_000
        assert beat(shard, lease, 30_000) == Code.OK
        assert shard.state.leases[lease.job.key].expires_ms <= lease.started_ms + MINUTE
    shard.now = lease.started_ms + MINUTE
    assert beat(shard, lease, 30_000) == Code.LEASE_LOST
    assert shard.where(lease.job.key) == "failing"
    (job,) = shard.state.delayed.jobs
    (attempt,) = job.history
    assert (attempt.outcome, attempt.error_type) == (FAILED, TIMED_OUT)
    assert attempt.error == "TimedOut: ran longer than its limit of 60 s"
    assert 0 <= job.due_ms - shard.now < limits.BACKOFF_BASE_MS
    assert causes(shard)[-1] == "timed_out"


def test_an_attempt_within_its_limit_is_extended_as_ever(shard: Any) -> None:
    lease = running(shard, run_within_ms=limits.HOUR_MS)
    shard.now += 20_000
    assert beat(shard, lease, 30_000) == Code.OK
    assert shard.state.leases[lease.job.key].expires_ms == shard.now + 30_000


def test_a_limit_shorter_than_the_lease_ends_it(shard: Any) -> None:
    lease = running(shard, run_within_ms=5_000)
    assert lease.expires_ms == lease.started_ms + 5_000


def test_a_worker_that_dies_stalls_its_job_whatever_the_limit(shard: Any) -> None:
    lease = running(shard, run_within_ms=limits.HOUR_MS)
    shard.now = lease.expires_ms
    shard.apply(RunTimers())
    assert shard.where(lease.job.key) == "queued"
    assert causes(shard)[-1] == "stalled"


def test_the_last_attempt_that_runs_for_too_long_leaves_a_dead_letter(shard: Any) -> None:
    lease = running(shard, run_within_ms=5_000, max_attempts=1)
    shard.now += 5_000
    shard.apply(RunTimers())
    assert shard.where(lease.job.key) == "failed"
    late = Completion(lease.job.key, lease.token)
    assert shard.apply(CompleteJobs((late,)))[0].code == Code.LEASE_LOST


# ── Start deadline ───────────────────────────────────────────────────────────
def test_a_claim_passes_over_what_is_too_late_and_takes_what_is_behind_it(shard: Any) -> None:
    late = shard.enqueue(3, start_within_ms=1_000)
    fine = shard.enqueue(2, start_within_ms=MINUTE)
    late += shard.enqueue(1, start_within_ms=1_000)
    fine += shard.enqueue()
    shard.now += 1_001
    assert [lease.job.key for lease in shard.claim(10)] == fine
    places = shard.places()
    assert {places[key] for key in late} == {CANCELLED}
    assert shard.state.counters.cancelled == 4
    assert causes(shard).count("expired") == 4


def test_a_job_may_start_until_its_deadline(shard: Any) -> None:
    (key,) = shard.enqueue(start_within_ms=1_000)
    shard.now += 1_000
    assert [lease.job.key for lease in shard.claim()] == [key]


def test_the_deadline_counts_from_the_end_of_a_delay(shard: Any) -> None:
    (key,) = shard.enqueue(start_within_ms=1_000, delay_ms=MINUTE)
    shard.now += MINUTE + 500
    assert [lease.job.key for lease in shard.claim()] == [key]


def test_a_retry_does_not_start_after_the_deadline_either(shard: Any) -> None:
    lease = running(shard, start_within_ms=10_000)
    shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "no", 20_000),)))
    shard.now += 20_000
    shard.apply(RunTimers())
    assert shard.where(lease.job.key) == CANCELLED


def test_a_redriven_job_is_not_too_late(shard: Any) -> None:
    lease = running(shard, start_within_ms=1_000, max_attempts=1)
    shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "no"),)))
    shard.now += MINUTE
    shard.apply(RedriveJobs(1, 1))
    assert [again.job.key for again in shard.claim()] == [lease.job.key]


def test_upkeep_ends_what_is_too_late_where_nobody_claims(shard: Any) -> None:
    waiting = shard.enqueue(2, start_within_ms=1_000)
    lease = running(shard, start_within_ms=1_000, kind="other")
    shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "no", limits.HOUR_MS),)))
    shard.now += 1_001
    shard.apply(RunTimers())
    places = shard.places()
    assert {places[key] for key in (*waiting, lease.job.key)} == {CANCELLED}


def test_a_claim_looks_at_so_many_late_jobs_and_the_next_goes_on(shard: Any) -> None:
    with limited({"DROPPED_PER_COMMIT_MAX": 5}):
        shard.enqueue(12, start_within_ms=1_000)
        (key,) = shard.enqueue()
        shard.now += 1_001
        for _ in range(2):
            (answer,) = shard.apply(ClaimJobs(1, "ada", 30_000))
            assert answer.runs == ((Code.RETRY, 0),)
        assert [lease.job.key for lease in shard.claim()] == [key]


def test_late_jobs_in_segments_are_met_as_well(shard: Any) -> None:
    with limited({"READY_BYTES_MAX": 600, "TAIL_BYTES_MAX": 600, "BLOCK_BYTES_MAX": 400}):
        late = shard.enqueue(40, start_within_ms=1_000)
        fine = shard.enqueue(3)
        shard.now += 1_001
        found: list[bytes] = []
        for _ in range(20):
            found += [lease.job.key for lease in shard.claim(10)]
        assert found == fine
        assert all(shard.left.get(key, shard.where(key)) == CANCELLED for key in late)


# ── Settings ─────────────────────────────────────────────────────────────────
SEND = KindSettings("send", 2, 7, 9_000, 100, 200, 3_000, 4_000)


def test_what_a_job_does_not_say_its_kind_says(shard: Any) -> None:
    shard.apply(ChangeSettings(max_attempts=5, kinds=(SEND,)))
    shard.apply(EnqueueJobs((shard.new(kind="send"),)))
    (lease,) = shard.claim()
    job = lease.job
    assert (job.priority, job.max_attempts, job.result_ttl_ms, job.run_within_ms) == (2, 7, 9_000, 3_000)
    assert job.start_by_ms == shard.now + 4_000
    shard.apply(FailJobs((FailedAttempt(job.key, lease.token, "no"),)))
    (again,) = shard.state.delayed.jobs
    assert again.due_ms == shard.now + 100


def test_what_neither_says_the_queue_says(shard: Any) -> None:
    shard.apply(
        ChangeSettings(max_attempts=5, run_within_ms=6_000, kinds=(KindSettings("send", priority=1),))
    )
    shard.enqueue(kind="send")
    (lease,) = shard.claim()
    assert (lease.job.priority, lease.job.max_attempts, lease.job.run_within_ms) == (1, 5, 6_000)
    shard.enqueue(kind="other")
    (lease,) = shard.claim()
    assert (lease.job.priority, lease.job.max_attempts) == (limits.PRIORITY_DEFAULT, 5)


def test_what_a_job_says_holds(shard: Any) -> None:
    shard.apply(ChangeSettings(kinds=(SEND,)))
    shard.enqueue(kind="send", priority=8, max_attempts=1, run_within_ms=0, start_within_ms=0)
    (lease,) = shard.claim()
    job = lease.job
    assert (job.priority, job.max_attempts, job.run_within_ms, job.start_by_ms) == (8, 1, 0, 0)
    assert job.result_ttl_ms == 9_000


def test_a_change_of_a_kind_leaves_the_rest_of_it(shard: Any) -> None:
    shard.apply(ChangeSettings(kinds=(KindSettings("send", priority=1), KindSettings("a", priority=3))))
    shard.apply(ChangeSettings(kinds=(KindSettings("send", max_attempts=4),), kinds_dropped=("a",)))
    assert shard.state.settings.kinds == (KindSettings("send", priority=1, max_attempts=4),)


def test_too_many_kinds_are_refused_as_a_whole(shard: Any) -> None:
    kinds = tuple(KindSettings(f"k{at:02}", priority=1) for at in range(limits.KINDS_MAX))
    assert shard.apply(ChangeSettings(kinds=kinds))[0].code == Code.OK
    before = shard.state.settings
    more = ChangeSettings(paused=True, kinds=(KindSettings("more", priority=1),))
    assert shard.apply(more)[0].code == Code.CROWDED
    assert shard.state.settings == before


@pytest.mark.parametrize("count", [1, 3])
def test_an_empty_claim_that_dropped_late_jobs_says_so_to_nobody_else(shard: Any, count: int) -> None:
    shard.enqueue(count, start_within_ms=1)
    shard.now += 2
    (answer,) = shard.apply(ClaimJobs(5, "ada", 30_000))
    assert answer.runs == ((Code.EMPTY, 0),)
    assert shard.last.changed
