"""The batches of a restored head: each counts what became of its jobs since the backup."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osqueue.core.audit import spans_of
from osqueue.core.encoding import encode
from osqueue.core.job_ops import CancelJob, CompleteJobs, Completion, FailedAttempt, FailJobs, JobSpec
from osqueue.core.queue_ops import ChangeBatch, RedriveJobs
from osqueue.core.rows import BatchRow
from osqueue.core.state import CANCELLED, COMPLETED, FAILED, LeaseRecord, PastAttempt
from simulation.tight import limited
from tests.support.restores import bring_back, ended
from tests.support.shard import Shard

BATCH = bytes(15) + b"\x00"
FIRST = (PastAttempt(1, "ada", 1, 2, FAILED, "no"),)


@pytest.fixture
def shard() -> Shard:
    """One with a batch that is open."""
    made = Shard()
    row = BatchRow(
        "march",
        on_complete=encode(JobSpec(b"", b"", "", kind="whole")),
        on_success=encode(JobSpec(b"", b"", "", kind="good")),
    )
    made.apply(ChangeBatch(BATCH, row))
    return made


def sealed(shard: Shard, count: int = 1) -> list[bytes]:
    keys = shard.enqueue(count, batch=BATCH, max_attempts=1)
    shard.apply(ChangeBatch(BATCH))
    return keys


def complete(shard: Shard, lease: LeaseRecord) -> None:
    shard.apply(CompleteJobs((Completion(lease.job.key, lease.token),)))


def buried(shard: Shard) -> None:
    (lease,) = shard.claim()
    shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "no"),)))


def counts(shard: Shard) -> dict[str, int]:
    row = shard.state.batches[BATCH]
    return {name: getattr(row, name) for name in ("total", "left", "failed", "cancelled")}


def of(total: int, left: int = 0, failed: int = 0, cancelled: int = 0) -> dict[str, int]:
    return {"total": total, "left": left, "failed": failed, "cancelled": cancelled}


def came(shard: Shard) -> dict[str, Any]:
    """What waited for the batch, by its kind, and what it is told."""
    return {lease.job.kind: json.loads(lease.job.payload) for lease in shard.claim(9)}  # type: ignore[arg-type]


def test_one_that_was_cancelled_since_is_counted_as_cancelled_and_keeps_success_back(shard: Shard) -> None:
    one, two = sealed(shard, 2)
    bring_back(shard, shard.state, endings={one: ended(COMPLETED, 1), two: ended(CANCELLED, 0)})
    assert counts(shard) == of(2, cancelled=1)
    told = came(shard)
    assert told.keys() == {"whole"}
    assert (told["whole"]["completed"], told["whole"]["cancelled"]) == (1, 1)


def test_all_that_completed_since_bring_what_waits_for_success(shard: Shard) -> None:
    keys = sealed(shard, 2)
    bring_back(shard, shard.state, endings={key: ended(COMPLETED, 1) for key in keys})
    assert counts(shard) == of(2)
    assert came(shard).keys() == {"whole", "good"}


def test_one_that_is_lost_is_counted_as_cancelled(shard: Shard) -> None:
    one, two, _ = sealed(shard, 3)
    bring_back(shard, shard.state, endings={one: ended(COMPLETED, 1)}, purged=frozenset({two}))
    assert counts(shard) == of(3, left=1, cancelled=1)


def test_one_in_a_segment_that_is_gone_is_counted_as_cancelled(shard: Shard) -> None:
    with limited({"READY_BYTES_MAX": 900, "TAIL_BYTES_MAX": 700}):
        sealed(shard, 60)
        span = next(iter(spans_of(shard.state)))
        bring_back(shard, shard.state, gone=frozenset({span.name}))
    assert counts(shard) == of(60, left=60 - span.count, cancelled=span.count)


def test_one_that_failed_for_good_since_is_counted_once(shard: Shard) -> None:
    one, _ = sealed(shard, 2)
    bring_back(shard, shard.state, endings={one: ended(FAILED, 1, FIRST)})
    assert counts(shard) == of(2, left=1, failed=1)


def test_a_dead_letter_that_was_redriven_and_failed_again_is_no_second_one(shard: Shard) -> None:
    (key,) = sealed(shard)
    buried(shard)
    bring_back(shard, shard.state, endings={key: ended(FAILED, 3, FIRST)})
    assert shard.where(key) == FAILED
    assert counts(shard) == of(1, failed=1)


def test_a_dead_letter_that_was_redriven_and_completed_brings_success(shard: Shard) -> None:
    (key,) = sealed(shard)
    buried(shard)
    bring_back(shard, shard.state, endings={key: ended(COMPLETED, 3)})
    assert counts(shard) == of(1)
    assert came(shard).keys() == {"whole", "good"}


def test_a_dead_letter_that_was_redriven_and_cancelled_is_no_dead_letter(shard: Shard) -> None:
    (key,) = sealed(shard)
    buried(shard)
    bring_back(shard, shard.state, endings={key: ended(CANCELLED, 3)})
    assert counts(shard) == of(1, cancelled=1)


def test_what_was_counted_before_the_backup_stays_counted(shard: Shard) -> None:
    _, two, three, four = sealed(shard, 4)
    complete(shard, *shard.claim())
    buried(shard)
    shard.apply(CancelJob(three))
    before = counts(shard)
    assert before == of(4, left=1, failed=1, cancelled=1)
    bring_back(shard, shard.state)
    assert counts(shard) == before
    assert shard.apply(RedriveJobs(5, 5))[0].count == 1
    assert {lease.job.key for lease in shard.claim(9)} == {two, four}
