"""Encoding heads that follow one another: the same bytes, whatever stayed and whatever came."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from osqueue.core import encoding
from osqueue.core.encoding import HeadEncoder, decode_head, encode_head
from osqueue.core.job_ops import CancelJob, CompleteJobs, Completion, LeaseRef, ReleaseJobs
from osqueue.core.state import JobRecord


@pytest.mark.parametrize("seed", range(6))
def test_a_window_that_slides_grows_or_changes_is_encoded_as_if_it_were_new(shard: Any, seed: int) -> None:
    dice = random.Random(seed)
    encoder = HeadEncoder()
    held: list[Any] = []
    waiting = shard.enqueue(60)
    for _ in range(150):
        match dice.choice(
            ("claim", "claim", "claim", "enqueue", "complete", "release", "cancel", "read", "kind")
        ):
            case "claim":
                held.extend(shard.claim(dice.choice((1, 3))))
            case "enqueue":
                waiting += shard.enqueue(dice.choice((1, 5)))
            case "kind":
                shard.enqueue(dice.choice((1, 20)), kind=dice.choice("ab"))
            case "complete" if held:
                lease = held.pop()
                shard.apply(CompleteJobs((Completion(lease.job.key, lease.token),)))
            case "release" if held:
                lease = held.pop(0)
                shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),)))
            case "cancel":
                shard.apply(CancelJob(dice.choice(waiting)))
            case "read":  # what somebody else has committed: equal jobs, other objects
                shard.state = decode_head(encode_head(shard.state))
            case _:
                pass
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
