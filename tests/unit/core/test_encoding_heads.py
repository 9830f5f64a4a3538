"""Encoding heads that follow one another: the same bytes, whatever stayed and whatever came."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue.core import encoding
from osqueue.core.encoding import ROWS_MIN, HeadEncoder, decode_head, encode_head
from osqueue.core.job_ops import (
    CancelJob,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    ExtendLeases,
    LeaseBeat,
    LeaseRef,
    ReleaseJobs,
)
from osqueue.core.state import JobRecord, LeaseRecord, ScheduleRow


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_stay_come_go_or_change_are_encoded_as_if_all_were_new(
    new_shard: Callable[..., Any], seed: int
) -> None:
    shard = new_shard(checked=False)  # as a writer that goes on from its own head
    dice = random.Random(seed)
    encoder = HeadEncoder()
    waiting = shard.enqueue(ROWS_MIN + 80)
    held: list[Any] = list(shard.claim(ROWS_MIN + 10))
    for at in range(ROWS_MIN):
        shard.apply(EnqueueJobs((shard.new(),)), env=f"w{at}")
    for _ in range(150):
        match dice.choice(
            ("claim", "claim", "claim", "enqueue", "complete", "beat", "release", "cancel", "read", "kind")
        ):
            case "claim":
                held.extend(shard.claim(dice.choice((1, 3))))
            case "enqueue":
                waiting += shard.enqueue(dice.choice((1, 5)))
            case "beat":
                lease = dice.choice(held)
                shard.now += 1
                beat = ExtendLeases((LeaseBeat(lease.job.key, lease.token),))
                shard.apply(beat, env=f"w{dice.randrange(2 * ROWS_MIN)}")
            case "kind":
                shard.enqueue(dice.choice((1, 20)), kind=dice.choice("ab"))
            case "complete":
                lease = held.pop(dice.randrange(len(held)))
                shard.apply(CompleteJobs((Completion(lease.job.key, lease.token),)))
            case "release":
                lease = held.pop(0)
                shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
            case "cancel":
                shard.apply(CancelJob(dice.choice(waiting)))
            case "read":  # what somebody else has committed: equal jobs, other objects
                shard.state = decode_head(encode_head(shard.state))
            case _:
                pass
        assert encoder.encode(shard.state) == encode_head(shard.state)


def test_schedules_are_encoded_as_they_stand_now(shard: Any) -> None:
    encoder = HeadEncoder()
    nightly, hourly = ScheduleRow("nightly", next_ms=1), ScheduleRow("hourly", next_ms=2)
    for rows in ((nightly,), (nightly, hourly), (replace(nightly, next_ms=3), hourly), (hourly,), ()):
        state = replace(shard.state, schedules=rows)
        assert encoder.encode(state) == encode_head(state)


def test_leases_that_stay_are_encoded_once(
    new_shard: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = new_shard(checked=False)
    encoder = HeadEncoder()
    shard.enqueue(2 * ROWS_MIN)
    first, *_ = shard.claim(ROWS_MIN + 2)
    encoder.encode(shard.state)
    encoded: list[Any] = []
    encode = encoding.encode
    monkeypatch.setattr(encoding, "encode", lambda rows: encoded.append(rows) or encode(rows))
    (new,) = shard.claim(1)
    shard.apply(CompleteJobs((Completion(first.job.key, first.token),)))
    encoder.encode(shard.state)
    assert [each for each in encoded if isinstance(each, LeaseRecord)] == [new]


def test_what_most_leases_were_is_forgotten_when_they_have_ended(new_shard: Callable[..., Any]) -> None:
    shard = new_shard(checked=False)
    encoder = HeadEncoder()
    shard.enqueue(5 * ROWS_MIN)
    held = shard.claim(4 * ROWS_MIN)
    encoder.encode(shard.state)
    shard.apply(CompleteJobs(tuple(Completion(each.job.key, each.token) for each in held[1 : 3 * ROWS_MIN])))
    for _ in range(2):
        shard.claim(1)
        assert encoder.encode(shard.state) == encode_head(shard.state)


def test_jobs_that_stay_in_a_window_are_encoded_once(
    new_shard: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = new_shard(checked=False)  # as a writer that goes on from its own head
    encoder = HeadEncoder()
    shard.enqueue(200)
    for _ in range(3):
        shard.claim(1)
        encoder.encode(shard.state)
    encoded: list[Any] = []
    encode = encoding.encode
    monkeypatch.setattr(encoding, "encode", lambda rows: encoded.append(rows) or encode(rows))
    shard.claim(1)
    encoder.encode(shard.state)
    assert not jobs_in(encoded)
    shard.enqueue(2)
    encoder.encode(shard.state)
    assert len(jobs_in(encoded)) == 2  # the new ones, each by itself


def jobs_in(encoded: list[Any]) -> list[JobRecord]:
    return [each for each in encoded if isinstance(each, JobRecord | tuple)]
