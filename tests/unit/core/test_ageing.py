"""Ageing: who waits long enough is served before those who are more urgent and came later."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osqueue.core.ageing import since_ms
from osqueue.core.job_ops import ClaimJobs, FailedAttempt, FailJobs
from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.settings import KindSettings
from osqueue.core.state import JobRecord
from tests.support.shard import Shard


@pytest.fixture
def shard() -> Shard:
    found = Shard()
    found.apply(ChangeSettings(ageing_ms=60_000))
    return found


def claim(shard: Shard, limit: int = 100) -> list[JobRecord]:
    return [lease.job for lease in shard.apply(ClaimJobs(limit, "ada", 43_200_000))[0].leases]


def test_a_job_counts_as_one_priority_more_urgent_for_each_span_of_time(shard: Shard) -> None:
    shard.enqueue(1, priority=7)
    shard.now += 120_000
    shard.enqueue(1, priority=5)
    shard.enqueue(1, priority=4)
    shard.now += 1
    shard.enqueue(1, priority=5)
    assert [job.priority for job in claim(shard)] == [4, 7, 5, 5]


def test_without_ageing_priorities_are_strict(shard: Shard) -> None:
    shard.apply(ChangeSettings(ageing_ms=0))
    shard.enqueue(1, priority=7)
    shard.now += 10**9
    shard.enqueue(2, priority=6)
    assert [job.priority for job in claim(shard)] == [6, 6, 7]


def test_a_delayed_job_waits_from_when_it_is_due_and_a_retry_from_its_last_attempt(shard: Shard) -> None:
    shard.enqueue(1, priority=9, delay_ms=500_000)
    shard.enqueue(1, priority=9)
    (job,) = claim(shard)
    shard.now += 20_000
    lease = shard.state.leases[job.key]
    shard.apply(FailJobs((FailedAttempt(job.key, lease.token, "no", 10_000),)))
    failed = shard.now
    shard.now += 480_000
    shard.enqueue(1, priority=2)
    found = claim(shard)
    assert [job.priority for job in found] == [9, 2, 9]
    assert [since_ms(job) for job in found] == [failed, shard.now, shard.now]


def test_a_kind_that_may_not_start_stands_in_nobodys_way(shard: Shard) -> None:
    shard.apply(
        ChangeSettings(kinds=(KindSettings("slow", max_running=1), KindSettings("still", paused=True)))
    )
    for kind in ("slow", "still"):
        shard.enqueue(3, kind=kind, priority=0)
    shard.now += 10**8
    shard.enqueue(3, kind="other", priority=9)
    assert [job.kind for job in claim(shard)] == ["slow", "other", "other", "other"]


def test_what_lies_in_segments_is_read_when_its_turn_may_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osqueue.limits.READY_BYTES_MAX", 2_000)
    monkeypatch.setattr("osqueue.limits.TAIL_BYTES_MAX", 1_000)
    shard = Shard()
    shard.apply(ChangeSettings(ageing_ms=10_000))
    for step in range(60):
        shard.now += 1_000
        shard.enqueue(3, priority=step % 4, payload=bytes(60))
    assert any(lane.backlog.spans for lane in shard.state.lanes)
    turns = []
    while jobs := claim(shard, 7):
        turns += [since_ms(job) + job.priority * 10_000 for job in jobs]
    assert len(turns) == 180
    assert turns == sorted(turns)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from((1, 1_000, 60_000)))
def test_none_is_passed_by_one_that_came_later_than_its_priority_allows(seed: int, ageing_ms: int) -> None:
    dice = random.Random(seed)
    shard = Shard(checked=False)
    shard.apply(ChangeSettings(ageing_ms=ageing_ms))
    waiting: dict[bytes, tuple[int, int]] = {}
    for _ in range(40):
        shard.now += dice.choice((0, 1, 500, 30_000))
        kind, priority = dice.choice("ab"), dice.randint(0, 9)
        new: Any = shard.enqueue(dice.randint(0, 3), kind=kind, priority=priority)
        waiting |= dict.fromkeys(new, (shard.now, priority))
        for job in claim(shard, dice.randint(1, 3)):
            came, priority = waiting.pop(job.key)
            for since, other in waiting.values():
                assert came + priority * ageing_ms <= since + other * ageing_ms
