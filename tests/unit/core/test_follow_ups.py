"""Jobs that come when others end: once, in the same commit, with what they are told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.core.arrows import ARROWS
from osqueue.core.batches import with_room
from osqueue.core.encoding import encode
from osqueue.core.follow_ups import encode_follow_ups, follow_up_keys, groups_of
from osqueue.core.job_ops import (
    AbortJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    JobSpec,
    LeaseRef,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeBatch, RedriveJobs, RunTimers
from osqueue.core.rows import BatchRow, BodyRef
from osqueue.core.state import JobRecord, LeaseRecord
from tests.support.shard import Shard

BATCH = bytes(15) + b"\x00"
WHOLE = JobSpec(b"", b"", "", kind="whole")
GOOD = JobSpec(b"", b"", "", kind="good")


def following(*specs: JobSpec) -> bytes:
    return encode_follow_ups(specs)


def complete(shard: Shard, lease: LeaseRecord, result: Any = b"", codec: str = "") -> Code:
    done = Completion(lease.job.key, lease.token, result, codec)
    return shard.apply(CompleteJobs((done,)))[0].code


def fail(shard: Shard, lease: LeaseRecord) -> None:
    shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "no", final=True),)))


def claimed(shard: Shard) -> JobRecord:
    (lease,) = shard.claim()
    return lease.job


# ── Follow-ups ───────────────────────────────────────────────────────────────
def test_a_follow_up_comes_with_its_parents_result_as_its_payload() -> None:
    shard = Shard()
    (key,) = shard.enqueue(then=following(JobSpec(b"", b"", "", kind="next", priority=2)))
    (lease,) = shard.claim()
    assert shard.where(key) == "processing"
    assert not shard.claim()
    complete(shard, lease, b"7", "json")
    job = claimed(shard)
    assert (job.kind, job.priority, job.payload, job.codec) == ("next", 2, b"7", "json")
    assert job.links is not None
    assert (job.links.parent, job.links.input) == (key, None)


def test_one_with_a_payload_is_given_the_result_beside() -> None:
    shard = Shard()
    shard.enqueue(then=following(JobSpec(b"", b'"mine"', "json")))
    complete(shard, *shard.claim(), b"\x81", "msgpack")
    job = claimed(shard)
    assert job.links is not None
    assert (job.payload, job.codec) == (b'"mine"', "json")
    assert (job.links.input, job.links.input_codec) == (b"\x81", "msgpack")


def test_no_result_is_told_as_null() -> None:
    shard = Shard()
    shard.enqueue(then=following(JobSpec(b"", b"", "")))
    complete(shard, *shard.claim())
    assert (claimed(shard).payload, shard.state.counters.enqueued) == (b"null", 2)


def test_a_result_of_the_payloads_own_serialiser_is_read_by_it() -> None:
    shard = Shard()
    shard.enqueue(then=following(JobSpec(b"", b"", "")), codec="msgpack")
    complete(shard, *shard.claim(), b"\x05")
    assert claimed(shard).codec == "msgpack"


def test_a_result_beside_the_head_is_referred_to_by_both() -> None:
    shard = Shard()
    body = BodyRef("bodies/00000000000000ff-1", 0, 9, 1)
    own, none = JobSpec(b"", b"1", "json"), JobSpec(b"", b"", "")
    shard.enqueue(then=following(own, none))
    complete(shard, *shard.claim(), body, "json")
    jobs = [lease.job for lease in shard.claim(2)]
    assert jobs[0].contents == (b"1", body)
    assert jobs[1].contents == (body,)


def test_the_keys_of_those_that_came_follow_from_the_job_that_ended() -> None:
    shard = Shard()
    (key,) = shard.enqueue(then=following(JobSpec(b"", b"", ""), JobSpec(b"", b"", "")))
    complete(shard, *shard.claim())
    (row,) = shard.state.finished
    assert row.job.links is not None
    assert row.job.links.then == b""
    keys = follow_up_keys(key, row.job.run, row.finished_ms, row.job.links.followed)
    assert [lease.job.key for lease in shard.claim(9)] == keys
    assert len(keys) == 2


def test_a_repeated_complete_makes_no_second_follow_up() -> None:
    shard = Shard()
    shard.enqueue(then=following(JobSpec(b"", b"", "")))
    (lease,) = shard.claim()
    assert complete(shard, lease, b"1", "json") == complete(shard, lease, b"1", "json") == Code.OK
    assert len(shard.claim(9)) == 1


def test_a_chain_goes_on_one_by_one() -> None:
    shard = Shard()
    last = following(JobSpec(b"", b"", "", kind="c"))
    shard.enqueue(kind="a", then=following(JobSpec(b"", b"", "", kind="b", then=last)))
    for kind in "abc":
        (lease,) = shard.claim(9)
        assert lease.job.kind == kind
        complete(shard, lease, kind.encode(), "x")
    assert not shard.claim(9)


def test_a_follow_up_may_be_delayed_and_has_its_queues_settings() -> None:
    shard = Shard()
    shard.enqueue(then=following(JobSpec(b"", b"", "", delay_ms=60_000, max_attempts=2)))
    complete(shard, *shard.claim())
    assert not shard.claim()
    shard.now += 60_000
    assert claimed(shard).max_attempts == 2


def test_the_arrows_of_follow_ups_are_walked() -> None:
    shard = Shard()
    shard.enqueue(then=following(JobSpec(b"", b"", ""), JobSpec(b"", b"", "", delay_ms=60_000)))
    complete(shard, *shard.claim())
    walked = {(each.origin, each.target, each.cause) for each in shard.events if each.cause == "follow"}
    table = {(each.origin, each.target, each.cause) for each in ARROWS if each.cause == "follow"}
    assert walked == table


def test_a_dead_letter_takes_its_follow_ups_along_and_a_redrive_brings_them_back() -> None:
    shard = Shard()
    shard.enqueue(then=following(JobSpec(b"", b"", "", kind="next")))
    fail(shard, *shard.claim())
    assert not shard.claim()
    shard.apply(RedriveJobs(10, 10))
    complete(shard, *shard.claim())
    assert claimed(shard).kind == "next"


def test_a_cancelled_job_drops_them() -> None:
    shard = Shard()
    shard.enqueue(then=following(JobSpec(b"", b"", "")))
    (lease,) = shard.claim()
    shard.apply(AbortJobs((LeaseRef(lease.job.key, lease.token),)))
    assert not shard.claim()
    assert shard.state.finished[0].job.links is None


def test_the_input_of_many_running_jobs_moves_beside_the_head() -> None:
    shard = Shard()
    result = b'"' + b"r" * 9_000 + b'"'
    for _ in range(12):
        shard.enqueue(then=following(JobSpec(b"", b"1", "json")))
    for lease in shard.claim(12):
        complete(shard, lease, result, "json")
    leases = shard.claim(12)
    assert len(leases) == 12
    inputs = [lease.job.links.input for lease in shard.state.leases.values() if lease.job.links]
    assert any(isinstance(each, BodyRef) for each in inputs)
    for each in inputs:
        if isinstance(each, BodyRef):
            assert shard.objects[each.name][each.start : each.start + each.length] == result


def test_the_groups_of_a_chain_are_all_found() -> None:
    inner = following(JobSpec(b"", b"", "", group="c"))
    then = following(JobSpec(b"", b"", "", group="b", then=inner), JobSpec(b"", b"", ""))
    assert list(groups_of("a", then)) == ["a", "b", "c"]
    assert list(groups_of("", b"")) == []


# ── Batches ──────────────────────────────────────────────────────────────────
def opened(shard: Shard, *, complete: JobSpec | None = WHOLE, success: JobSpec | None = GOOD) -> None:
    row = BatchRow(
        "march",
        on_complete=encode_one(complete),
        on_success=encode_one(success),
    )
    assert shard.apply(ChangeBatch(BATCH, row))[0].code == Code.OK


def encode_one(spec: JobSpec | None) -> bytes:
    return b"" if spec is None else encode(spec)


def sealed(shard: Shard) -> Code:
    return shard.apply(ChangeBatch(BATCH))[0].code


def kinds(shard: Shard) -> list[str]:
    return sorted(lease.job.kind for lease in shard.claim(99))


def told(job: JobRecord) -> dict[str, Any]:
    assert isinstance(job.payload, bytes)
    found: dict[str, Any] = json.loads(job.payload)
    return found


def test_both_come_in_the_commit_that_completes_the_last_and_are_told_of_the_batch() -> None:
    shard = Shard()
    opened(shard)
    shard.enqueue(3, batch=BATCH)
    sealed(shard)
    leases = shard.claim(3)
    for lease in leases[:2]:
        complete(shard, lease)
    assert shard.state.batches[BATCH].left == 1
    assert kinds(shard) == []
    complete(shard, leases[2])
    assert shard.state.counters.enqueued == 5
    jobs = {lease.job.kind: lease.job for lease in shard.claim(9)}
    assert jobs.keys() == {"whole", "good"}
    assert jobs["whole"].links is not None
    assert jobs["whole"].links.parent == BATCH
    about = {"batch_id": "00000000-0000-0000-0000-000000000000", "name": "march"}
    assert told(jobs["good"]) == about | {"total": 3, "completed": 3, "failed": 0, "cancelled": 0}


def test_nothing_comes_before_the_batch_is_sealed_and_an_empty_one_is_over_at_once() -> None:
    shard = Shard()
    opened(shard)
    shard.enqueue(batch=BATCH)
    complete(shard, *shard.claim())
    assert kinds(shard) == []
    assert sealed(shard) == Code.OK
    assert kinds(shard) == ["good", "whole"]
    other = Shard()
    opened(other)
    sealed(other)
    assert kinds(other) == ["good", "whole"]


def test_a_dead_letter_keeps_success_back_until_it_is_redriven_and_completes() -> None:
    shard = Shard()
    opened(shard)
    shard.enqueue(2, batch=BATCH)
    sealed(shard)
    one, two = shard.claim(2)
    fail(shard, one)
    complete(shard, two)
    (lease,) = shard.claim(9)
    assert (lease.job.kind, told(lease.job)["failed"]) == ("whole", 1)
    shard.apply(RedriveJobs(10, 10))
    assert shard.state.batches[BATCH].failed == 0
    (again,) = shard.claim(9)
    complete(shard, again)
    assert kinds(shard) == ["good"]


def test_a_cancelled_job_ends_the_batch_without_success() -> None:
    shard = Shard()
    opened(shard)
    shard.enqueue(2, batch=BATCH)
    sealed(shard)
    one, two = shard.claim(2)
    shard.apply(AbortJobs((LeaseRef(one.job.key, one.token),)))
    complete(shard, two)
    assert kinds(shard) == ["whole"]
    assert shard.state.batches[BATCH].cancelled == 1


def test_follow_ups_of_its_jobs_are_of_it_too() -> None:
    shard = Shard()
    opened(shard, success=None)
    shard.enqueue(batch=BATCH, then=following(JobSpec(b"", b"", "", kind="second")))
    sealed(shard)
    complete(shard, *shard.claim())
    (lease,) = shard.claim(9)
    assert (lease.job.kind, shard.state.batches[BATCH].total) == ("second", 2)
    complete(shard, lease)
    assert kinds(shard) == ["whole"]


def test_a_running_job_may_add_to_its_batch_and_nobody_may_once_it_is_over() -> None:
    shard = Shard()
    opened(shard)
    shard.enqueue(batch=BATCH)
    sealed(shard)
    (lease,) = shard.claim()
    assert shard.apply(EnqueueJobs((shard.new(batch=BATCH),)))[0].codes == [Code.QUEUED]
    complete(shard, lease)
    complete(shard, *shard.claim())
    late = shard.new(batch=BATCH)
    assert shard.apply(EnqueueJobs((late,)))[0].codes == [Code.BATCH_OVER]
    unknown = shard.new(batch=b"\x01" * 16)
    assert shard.apply(EnqueueJobs((unknown,)))[0].codes == [Code.BATCH_OVER]


def test_a_request_to_open_or_seal_may_come_twice() -> None:
    shard = Shard()
    opened(shard)
    shard.enqueue(batch=BATCH)
    opened(shard)
    assert shard.state.batches[BATCH].total == 1
    assert sealed(shard) == sealed(shard) == Code.OK
    assert shard.apply(ChangeBatch(b"\x01" * 16))[0].code == Code.NOT_FOUND


def test_it_counts_jobs_wherever_they_lie() -> None:
    shard = Shard()
    opened(shard)
    shard.enqueue(60, payload=b'"' + b"x" * 9_000 + b'"', batch=BATCH, kind="many")
    shard.enqueue(40, payload=b'"' + b"x" * 4_000 + b'"', batch=BATCH, delay_ms=5_000)
    sealed(shard)
    assert any(lane.backlog.spans for lane in shard.state.lanes)
    assert shard.state.delayed.spans
    shard.now += 10_000
    while leases := shard.claim(100):
        if {lease.job.kind for lease in leases} <= {"whole", "good"}:
            break
        assert shard.state.batches[BATCH].ended_ms == 0
        shard.apply(CompleteJobs(tuple(Completion(each.job.key, each.token) for each in leases)))
    assert shard.state.batches[BATCH].left == 0


def test_rows_that_are_over_make_room_and_open_ones_do_not() -> None:
    shard = Shard(checked=False)
    for at in range(1_000):
        key = at.to_bytes(16, "big")
        code = shard.apply(ChangeBatch(key, BatchRow("x" * 60)))[0].code
        if code == Code.CROWDED:
            break
    else:
        pytest.fail("the budget has no end")
    first = bytes(16)
    shard.apply(ChangeBatch(first))
    assert shard.state.batches[first].ended_ms
    assert shard.apply(ChangeBatch(b"\x01" * 16, BatchRow("x" * 60)))[0].code == Code.OK
    assert first not in shard.state.batches


def test_a_batch_that_waits_for_dead_letters_makes_room_after_all_others() -> None:
    row = BatchRow("x" * 60, sealed=True, on_success=b"1", failed=1, ended_ms=1)
    rows = {
        bytes([at]): replace(row, on_success=b"1" if at == 0 else b"", ended_ms=at + 1) for at in range(200)
    }
    fitting = with_room(rows, BatchRow())
    assert fitting is not None
    assert bytes([0]) in fitting
    assert bytes([1]) not in fitting
    waiting = {key: replace(row, ended_ms=at + 1) for at, key in enumerate(rows)}
    fitting = with_room(waiting, BatchRow())
    assert fitting is not None
    assert bytes([0]) not in fitting
    assert with_room({key: replace(row, ended_ms=0) for key in rows}, BatchRow()) is None


def test_a_batch_that_is_over_is_forgotten_after_a_day() -> None:
    shard = Shard()
    opened(shard, complete=None, success=None)
    sealed(shard)
    shard.now += limits.BATCH_KEPT_MS - 1
    shard.enqueue()
    assert BATCH in shard.state.batches
    shard.now += 1
    shard.enqueue()
    assert BATCH not in shard.state.batches


def test_one_that_waits_for_dead_letters_is_kept_as_long_as_they_are() -> None:
    shard = Shard()
    opened(shard)
    shard.enqueue(batch=BATCH)
    sealed(shard)
    fail(shard, *shard.claim())
    shard.now += limits.DEAD_TTL_MS_DEFAULT - 1
    shard.enqueue()
    assert BATCH in shard.state.batches
    shard.now += limits.DEAD_TTL_MS_DEFAULT
    shard.apply(RunTimers())
    assert BATCH not in shard.state.batches
