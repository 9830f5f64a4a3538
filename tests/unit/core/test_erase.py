"""Erasing jobs: what the reducer forgets, and what stays readable where they were blanked."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.core.audit import imbalances
from osqueue.core.encoding import decode_blocks, encode_segment
from osqueue.core.erase import (
    blank_job,
    blank_object,
    blank_row,
    blank_state,
    is_blank,
    rows_in,
    strip_part,
)
from osqueue.core.job_ops import (
    CancelJob,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    JobSpec,
    SpanSwap,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings, EraseJobs, GroupChange, RedriveJobs, RunTimers
from osqueue.core.rows import BodyRef
from osqueue.core.state import FinishedJob, Hold, JobRecord, PastAttempt
from osqueue.core.tables import encode_table
from osqueue.core.weights import job_weight
from osqueue.errors import Damaged
from simulation.tight import limited

decode_jobs = msgspec.msgpack.Decoder(tuple[JobRecord, ...]).decode
decode_rows = msgspec.msgpack.Decoder(tuple[FinishedJob, ...]).decode


@pytest.fixture
def loose(new_shard: Callable[..., Any]) -> Any:
    """A shard whose books the tests look into themselves: erased jobs are in none."""
    return new_shard(checked=False)


def bury(shard: Any, count: int = 1, **fields: Any) -> list[bytes]:
    keys: list[bytes] = shard.enqueue(count, max_attempts=1, kind="dead", **fields)
    for lease in shard.claim(count, kinds=("dead",)):
        shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "boom"),)))
    return keys


# ── In the head ──────────────────────────────────────────────────────────────
def test_whatever_is_over_is_forgotten_and_the_books_balance(loose: Any) -> None:
    (done,) = loose.enqueue()
    (lease,) = loose.claim()
    loose.apply(CompleteJobs((Completion(done, lease.token, b"7"),)))
    (cancelled,) = loose.enqueue()
    loose.apply(CancelJob(cancelled))
    (dead,) = bury(loose)
    (kept,) = loose.enqueue()
    (answer,) = loose.apply(EraseJobs((done, cancelled, dead)))
    assert (answer.code, answer.count) == (
        Code.OK,
        4,
    )  # the dead letter, and what the archive was to be told of it
    assert list(rows_in(loose.state, {done, cancelled, dead})) == []
    assert loose.where(kept) == "queued"
    assert imbalances(loose.state) == []
    assert loose.state.forgotten == loose.state.seq
    assert loose.apply(EraseJobs((done, cancelled, dead)))[0].count == 0


def test_a_job_that_finishes_as_others_are_erased_stays_in_the_head_for_a_commit(loose: Any) -> None:
    keys = loose.enqueue(4)
    *old, last = loose.claim(4)
    loose.apply(CompleteJobs(tuple(Completion(lease.job.key, lease.token) for lease in old)))
    loose.apply(
        CompleteJobs((Completion(last.job.key, last.token),)),
        EraseJobs(tuple(keys[:3])),
        RunTimers(flush=True),
    )
    assert [row.key for row in loose.state.finished] == [last.job.key]
    assert imbalances(loose.state) == []


def test_a_paused_group_stays_paused_if_the_job_that_it_waits_for_is_erased(loose: Any) -> None:
    loose.apply(ChangeSettings(group_on_dead="stop"))
    (key,) = loose.enqueue(max_attempts=1, group="a")
    (lease,) = loose.claim()
    loose.apply(FailJobs((FailedAttempt(key, lease.token, "boom"),)))
    loose.apply(ChangeSettings(groups=(GroupChange("a", True),)))
    assert loose.state.holds["a"].key == key
    loose.apply(EraseJobs((key,)))
    assert loose.state.holds == {"a": Hold(paused=True)}


def test_a_leased_job_is_not_erased_nor_anything_with_it(loose: Any) -> None:
    (dead,) = bury(loose)
    (leased,) = loose.enqueue()
    loose.claim()
    assert loose.apply(EraseJobs((dead, leased)))[0].code == Code.PROCESSING
    assert loose.where(dead) == "failed"


def test_a_result_that_has_been_moved_since_it_was_wiped_is_wiped_first(loose: Any) -> None:
    with limited({"INLINE_LEASED_BYTES_MAX": 100}):
        (key,) = loose.enqueue()
        (lease,) = loose.claim()
        loose.apply(CompleteJobs((Completion(key, lease.token, b"7" * 90),)))
        loose.enqueue(payload=b"8" * 90)
        loose.claim()  # a commit that moves what is large out of the head
        (row,) = loose.state.finished
        assert isinstance(row.result, BodyRef)
        assert loose.apply(EraseJobs((key,)))[0].code == Code.RETRY
        assert loose.where(key) == "completed"
        assert loose.apply(EraseJobs((key,), wiped=(row.result,)))[0].code == Code.OK
        assert loose.where(key) == "gone"


def test_dead_letters_in_segments_go_with_their_span_unless_it_has_moved_on(loose: Any) -> None:
    keys = bury(loose, 300)
    state = loose.state
    span = state.dead.spans[0]
    jobs = loose.inside(span)
    name = f"segments/{state.seq:012x}-0000000000000001-0"
    body, fresh = encode_segment(jobs[1:], name)
    loose.objects[name] = body
    gone = jobs[0].key
    stale = SpanSwap(msgspec.structs.replace(span, skip=1), fresh)
    assert loose.apply(EraseJobs((gone,), (stale,)))[0].code == Code.RETRY
    assert loose.apply(EraseJobs((gone,), (SpanSwap(span, fresh),)))[0].code == Code.OK
    left = [job.key for job in loose.jobs(loose.state.dead, set())]
    assert sorted(left) == sorted(set(keys) - {gone})
    assert imbalances(loose.state) == []


# ── Redrive of chosen letters ────────────────────────────────────────────────
def test_only_the_letters_that_were_chosen_are_redriven(shard: Any) -> None:
    first, second, third = bury(shard, 3)
    (answer,) = shard.apply(RedriveJobs(3, 3, keys=(second,), first=first))
    assert answer.runs == ((Code.OK, 1), (Code.EMPTY, 3))
    assert [shard.where(key) for key in (first, second, third)] == ["failed", "queued", "failed"]
    assert [job.key for job in shard.jobs(shard.state.dead, set())] == [first, third]


def test_letters_that_have_moved_since_they_were_read_stay(shard: Any) -> None:
    first, second = bury(shard, 2)
    (answer,) = shard.apply(RedriveJobs(2, 2, keys=(first, second), first=second))
    assert answer.runs == ((Code.RETRY, 0), (Code.EMPTY, 0))
    assert [shard.where(key) for key in (first, second)] == ["failed", "failed"]


# ── Blanking ─────────────────────────────────────────────────────────────────
def a_job(key: int, payload: Any = b'{"to": "ada"}') -> JobRecord:
    history = (PastAttempt(1, "worker", 1, 2, "failed", "no mailbox ada", "ÄrgerError"),)
    return JobRecord(
        key.to_bytes(16, "big"), payload, 5, client_id="ada-7", history=history, trace="in ada()"
    )


def test_a_blank_job_tells_nothing_and_takes_as_many_bytes() -> None:
    job = a_job(1)
    blank = blank_job(job)
    assert len(msgspec.msgpack.encode(blank)) == len(msgspec.msgpack.encode(job))
    assert b"ada" not in msgspec.msgpack.encode(blank)
    assert (blank.key, blank.enqueued_ms, blank.history[0].worker) == (job.key, 5, "worker")
    assert blank_job(blank) == blank
    where = BodyRef("bodies/1", 0, 9, 7)
    assert blank_job(a_job(1, where)).payload == where


@pytest.mark.parametrize("priority", range(limits.PRIORITY_MAX + 1))
@pytest.mark.parametrize("payload", [b"0", b"", b"\xc0", BodyRef("bodies/1", 0, 9, 7)], ids=repr)
def test_a_blank_job_is_told_from_every_other_whatever_it_held(payload: Any, priority: int) -> None:
    job = replace(a_job(1, payload), priority=priority)
    blank = blank_job(job)
    assert (is_blank(job), is_blank(blank)) == (False, True)
    assert len(msgspec.msgpack.encode(blank)) == len(msgspec.msgpack.encode(job))
    assert job_weight(blank) == job_weight(job)


@pytest.mark.parametrize(
    ("payload", "codec", "blank"),
    [
        (bytes(3), "json", True),
        (bytes(1), "json", True),
        (bytes(3), "msgpack", True),
        (bytes(1), "msgpack", False),  # a number
        (bytes(3), "own", False),  # may be anything
    ],
)
def test_jobs_that_were_blanked_without_a_mark_are_known_by_their_zeros(
    payload: bytes, codec: str, blank: bool
) -> None:
    assert is_blank(replace(a_job(1, payload), codec=codec)) is blank


def test_a_finished_job_keeps_its_priority_for_whoever_reads_it() -> None:
    row = FinishedJob(a_job(1, b""), "completed", 9, result=b'"ada"')
    assert blank_row(row).job.priority == row.job.priority


def test_a_segment_with_a_blank_job_keeps_its_layout() -> None:
    jobs = [a_job(at, b'"ada"' * 1_000) for at in range(20)]  # several blocks
    data, span = encode_segment(jobs, "segments/1")
    blank = blank_object(
        b"OSQB", data, "segments/1", decode_jobs, lambda job: blank_job(job) if job.key[-1] == 7 else job
    )
    assert blank is not None
    assert len(blank) == len(data)
    found = [job for _, block in decode_blocks(blank, span.length, "segments/1") for job in block.jobs]
    assert [job.payload == bytes(5_000) for job in found] == [at == 7 for at in range(20)]
    same = blank_object(b"OSQB", data, "segments/1", decode_jobs, lambda job: job)
    assert same == data


def test_a_table_with_a_blank_row_keeps_its_layout() -> None:
    rows = [
        FinishedJob(a_job(at, b""), "completed", 9, result=b'"ada"', why="ada", payload=b'"ada"')
        for at in range(3)
    ]
    data, _ = encode_table(rows, False, "finished/1")
    blank = blank_object(b"OSQT", data, "finished/1", decode_rows, blank_row)
    assert blank is not None
    assert len(blank) == len(data)
    assert b"ada" not in blank


def test_an_object_that_cannot_keep_its_length_is_left_alone() -> None:
    data, _ = encode_segment([a_job(1)], "segments/1")
    longer = blank_object(
        b"OSQB", data, "segments/1", decode_jobs, lambda job: msgspec.structs.replace(job, kind="k")
    )
    assert longer is None


def test_a_head_with_blank_jobs_balances(loose: Any) -> None:
    secret = b'"ada@example.com"'
    (queued,) = loose.enqueue(payload=secret, client_id="ada@example.com")
    (delayed,) = loose.enqueue(payload=secret, delay_ms=9_000)
    (dead,) = bury(loose, payload=secret)
    loose.enqueue(kind="l", payload=secret)
    (lease,) = loose.claim(kinds=("l",))
    keys = {queued, delayed, dead, lease.job.key}
    blank = blank_state(loose.state, keys)
    assert b"ada@" in msgspec.msgpack.encode(loose.state)
    assert b"ada@" not in msgspec.msgpack.encode(blank)
    assert imbalances(blank) == []
    assert blank_state(blank, keys) is blank
    assert blank_state(loose.state, {bytes(16)}) is loose.state


# ── The archive ──────────────────────────────────────────────────────────────
def test_other_lines_of_a_part_stay_byte_for_byte() -> None:
    lines = [b'{"job_id":"a","state":"failed","new":1}\n', b'{"job_id":"b", "state":"completed"}\n']
    part = gzip.compress(b"".join(lines))
    data, found = strip_part(part, "p", {"b"})
    assert (gzip.decompress(data), found) == (lines[0], [("b", "completed")])
    assert strip_part(part, "p", {"c"}) == (part, [])
    assert strip_part(part, "p", {"job"}) == (part, [])  # a word of it, and no record's id
    assert strip_part(part, "p", {"a", "b"})[0] == b""


@pytest.mark.parametrize("data", [b"nonsense", gzip.compress(b"nonsense x\n", mtime=0)])
def test_what_is_no_part_is_told(data: bytes) -> None:
    with pytest.raises(Damaged):
        strip_part(data, "p", {"x"})


def test_whoever_is_about_to_enqueue_under_an_id_may_be_made_to_look_again(shard: Any) -> None:
    shard.enqueue()
    seen = shard.state.seq
    key = shard.key()
    shard.apply(EraseJobs((), again=True))
    late = JobSpec(key, b"1", client_id="a", seen=seen)
    assert shard.apply(EnqueueJobs((late,)))[0].codes == [Code.RETRY]
    again = JobSpec(key, b"1", client_id="a", seen=shard.state.seq)
    assert shard.apply(EnqueueJobs((again,)))[0].codes == [Code.QUEUED]
