"""A head made anew from a backup: nothing of the old life comes back, and every job of the backup is accounted for."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.commit.request_status import RequestStatus, status_of_request
from osqueue.core.audit import imbalances, live_keysum, spans_of
from osqueue.core.encoding import decode_index
from osqueue.core.erase import blank_state
from osqueue.core.job_ops import (
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    FailedAttempt,
    FailJobs,
    LeaseRef,
    ReleaseJobs,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSettings, GroupChange, RedriveJobs, RunTimers
from osqueue.core.reduce import applicable
from osqueue.core.restore import (
    SEQ_MARGIN,
    RestoreLoss,
    reset_clock,
)
from osqueue.core.rows import BodyRef
from osqueue.core.state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FAILING,
    PROCESSING,
    QUEUED,
    SCHEDULED,
    STALLED,
    UPDATED,
    PastAttempt,
    State,
)
from simulation.tight import limited
from tests.support.restores import bring_back, ended

TIGHT = {"READY_BYTES_MAX": 900, "TAIL_BYTES_MAX": 700, "DELAYED_BYTES_MAX": 600, "DEAD_BYTES_MAX": 500}
FIRST_ATTEMPT = (PastAttempt(1, "ada", 1, 2, FAILED, "no"),)


def test_waiting_jobs_are_handed_out_in_the_same_order(shard: Any) -> None:
    keys = shard.enqueue(5)
    assert bring_back(shard, shard.state) == RestoreLoss()
    assert shard.drain() == keys


def test_a_leased_job_goes_back_to_the_front_as_stalled_and_its_token_is_worth_nothing(shard: Any) -> None:
    first, second, third = shard.enqueue(3)
    leases = shard.claim(2)
    backup = shard.state
    assert bring_back(shard, backup).stalled == 2
    assert shard.apply(CompleteJobs((Completion(first, leases[0].token),)))[0].code == Code.LEASE_LOST
    again = shard.claim(3)
    assert [lease.job.key for lease in again] == [first, second, third]
    assert [each.outcome for each in again[0].job.history] == [STALLED]
    assert again[0].job.history[0].run == 1
    assert again[0].job.attempt == 2


def test_a_leased_job_whose_cancellation_was_requested_is_cancelled(shard: Any) -> None:
    (key,) = shard.enqueue()
    shard.claim()
    shard.apply(CancelJob(key))
    assert bring_back(shard, shard.state).cancelled == 1
    assert shard.where(key) == CANCELLED


def test_a_job_leased_for_its_last_attempt_becomes_a_dead_letter(shard: Any) -> None:
    (key,) = shard.enqueue(max_attempts=1)
    shard.claim()
    loss = bring_back(shard, shard.state)
    assert (loss.spent, loss.stalled) == (1, 0)
    assert shard.where(key) == FAILED
    assert shard.apply(RedriveJobs(5, 5))[0].count == 1
    assert shard.drain() == [key]


@pytest.mark.parametrize("state", [COMPLETED, CANCELLED])
@pytest.mark.parametrize("leased", [False, True])
def test_what_has_finished_since_the_backup_does_not_run_again(shard: Any, state: str, leased: bool) -> None:
    gone, left = shard.enqueue(2)
    if leased:
        shard.claim()
    loss = bring_back(shard, shard.state, endings={gone: ended(state, 1)})
    assert loss.finished == 1
    assert shard.where(gone) == "gone"
    assert shard.drain() == [left]


def test_what_has_failed_for_good_since_is_a_dead_letter(shard: Any) -> None:
    (key,) = shard.enqueue()
    loss = bring_back(shard, shard.state, endings={key: ended(FAILED, 3, FIRST_ATTEMPT)})
    assert loss.buried == 1
    assert shard.where(key) == FAILED
    assert shard.state.dead.tail[0].history == FIRST_ATTEMPT


def test_the_record_of_a_failure_before_the_redrive_does_not_bury_the_job_again(shard: Any) -> None:
    (key,) = shard.enqueue(max_attempts=1)
    (lease,) = shard.claim()
    shard.apply(FailJobs((FailedAttempt(key, lease.token, "no"),)))
    shard.apply(RedriveJobs(5, 5))
    bring_back(shard, shard.state, endings={key: ended(FAILED, 1, FIRST_ATTEMPT)})
    assert shard.where(key) == QUEUED


def test_a_dead_letter_that_was_redriven_and_completed_since_is_over(shard: Any) -> None:
    (key,) = shard.enqueue(max_attempts=1)
    (lease,) = shard.claim()
    shard.apply(FailJobs((FailedAttempt(key, lease.token, "no"),)))
    loss = bring_back(shard, shard.state, endings={key: ended(COMPLETED, 2)})
    assert loss.finished == 1
    assert shard.where(key) == "gone"


def test_delayed_jobs_keep_their_time(shard: Any) -> None:
    (key,) = shard.enqueue(delay_ms=60_000)
    bring_back(shard, shard.state)
    assert shard.drain() == []
    shard.now += 60_000
    assert shard.drain() == [key]


def test_a_restore_counts_jobs_past_their_start_deadline_apart_from_requested_cancellations(
    shard: Any,
) -> None:
    asked, stalled = shard.enqueue(2)
    shard.claim(2)
    shard.apply(CancelJob(asked))
    late, later = (shard.enqueue(delay_ms=delay, start_within_ms=30_000)[0] for delay in (5_000, 90_000))
    shard.now += 60_000
    loss = bring_back(shard, shard.state)
    assert loss == RestoreLoss(stalled=1, cancelled=1, late=1)
    assert [shard.where(key) for key in (asked, stalled, late, later)] == [
        CANCELLED,
        QUEUED,
        CANCELLED,
        SCHEDULED,
    ]


def test_a_restore_counts_a_job_past_its_time_limit_among_those_that_wait_again(shard: Any) -> None:
    (key,) = shard.enqueue(run_within_ms=1_000)
    shard.claim()
    backup = shard.state
    shard.now += 60_000
    assert bring_back(shard, backup) == RestoreLoss(stalled=1)
    assert shard.where(key) == FAILING


def test_a_rate_begins_with_an_empty_bucket_since_nobody_knows_what_started(shard: Any) -> None:
    shard.apply(ChangeSettings(rate=(1, 60_000), burst=5))
    shard.enqueue(9)
    backup = shard.state
    assert len(shard.claim(9)) == 5
    bring_back(shard, backup)
    assert shard.claim(9) == ()
    shard.now += 60_000
    assert len(shard.claim(9)) == 1


@pytest.mark.parametrize("in_segments", [False, True])
@pytest.mark.parametrize("why", ["failing", "put off", "dead"])
def test_a_restored_group_waits_for_the_job_that_it_waited_for(
    shard: Any, why: str, in_segments: bool
) -> None:
    shard.apply(ChangeSettings(group_on_dead="stop"))
    first, _ = shard.enqueue(2, group="a")
    (lease,) = shard.claim()
    if why == "put off":
        shard.apply(ReleaseJobs((LeaseRef(first, lease.token),), 60_000))
    else:
        failed = FailedAttempt(first, lease.token, "x", retry_ms=60_000, final=why == "dead")
        shard.apply(FailJobs((failed,)))
    if in_segments:
        with limited({"DELAYED_BYTES_MAX": 1, "DEAD_BYTES_MAX": 1}):
            shard.apply(RunTimers())
        assert spans_of(shard.state)
    loss = bring_back(shard, shard.state)
    assert (loss, shard.claim(5)) == (RestoreLoss(), ())
    shard.now += 60_000
    if why == "dead":
        shard.apply(RedriveJobs(1, 1))
    assert [each.job.key for each in shard.claim(5)] == [first]


@pytest.mark.parametrize("redriven", [False, True])
def test_a_restored_group_stops_at_a_job_that_has_died_since(shard: Any, redriven: bool) -> None:
    shard.apply(ChangeSettings(group_on_dead="stop"))
    first, _ = shard.enqueue(2, group="a", max_attempts=1)
    if redriven:
        (lease,) = shard.claim()
        shard.apply(FailJobs((FailedAttempt(first, lease.token, "x"),)))
    died = {first: ended(FAILED, 3, FIRST_ATTEMPT)}
    assert bring_back(shard, shard.state, endings=died).holds_gone == 0
    assert shard.claim(5) == ()
    shard.apply(RedriveJobs(1, 1))
    assert [each.job.key for each in shard.claim(5)] == [first]


def test_a_restored_group_does_not_stop_at_a_dead_letter_after_which_it_was_resumed(shard: Any) -> None:
    shard.apply(ChangeSettings(group_on_dead="stop"))
    first, second = shard.enqueue(2, group="a", max_attempts=1)
    (lease,) = shard.claim()
    shard.apply(FailJobs((FailedAttempt(first, lease.token, "x"),)))
    shard.apply(ChangeSettings(groups=(GroupChange("a", False),)))
    bring_back(shard, shard.state)
    assert [each.job.key for each in shard.claim(5)] == [second]


def test_a_restored_group_goes_on_if_its_job_has_ended_and_stays_paused(shard: Any) -> None:
    shard.enqueue(group="a")
    shard.enqueue(group="b")
    for lease in shard.claim(2):
        shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "x", retry_ms=60_000),)))
    shard.apply(ChangeSettings(groups=(GroupChange("b", True),)))
    (of_a,) = shard.enqueue(group="a")
    shard.enqueue(group="b")
    backup = shard.state
    over = {row.key: ended(CANCELLED, 1) for row in backup.holds.values()}
    assert bring_back(shard, backup, endings=over).holds_gone == 2
    assert [each.job.key for each in shard.claim(5)] == [of_a]
    assert shard.state.holds["b"].paused


def test_no_request_of_the_old_life_is_ever_applied(shard: Any) -> None:
    shard.enqueue(2)
    backup = shard.state
    late = shard.request(ClaimJobs(1, "ada", 30_000), env="slow")
    later = replace(late, born=backup.seq + 10 * SEQ_MARGIN)
    bring_back(shard, backup)
    for request in (late, later):
        assert not applicable(shard.state, request)
        assert status_of_request(shard.state, request) is RequestStatus.UNKNOWN
    same_epoch = replace(late, epoch=shard.state.epoch)
    assert not applicable(shard.state, same_epoch)  # the floor alone would do


def test_what_was_staged_in_the_old_life_has_to_be_staged_again(shard: Any) -> None:
    shard.enqueue()
    backup = shard.state
    bring_back(shard, backup)
    staged = BodyRef(f"bodies/{backup.seq:012x}-1-0", 0, 5, 0)
    new = replace(shard.new(), payload=staged)
    assert shard.apply(EnqueueJobs((new,)))[0].code == Code.STALE


def test_numbers_never_go_back(shard: Any) -> None:
    shard.enqueue()
    backup = shard.state
    bring_back(shard, backup, seen=backup.seq + 5_000)
    state = shard.state
    assert state.seq == backup.seq + 5_000 + SEQ_MARGIN
    assert state.floor == state.gc_floor == state.forgotten == state.seq
    assert (state.sessions, state.sessions_bytes) == ({}, 0)
    assert state.epoch != backup.epoch
    assert state.commit != backup.commit


@pytest.mark.parametrize("run_within_ms", [0, 1_000])
def test_a_job_and_its_run_never_come_again_however_often_a_backup_is_restored(
    shard: Any, run_within_ms: int
) -> None:
    shard.enqueue(3, run_within_ms=run_within_ms, max_attempts=20)
    shard.claim()
    backup = shard.state
    seen: set[tuple[bytes, int]] = {(key, lease.job.run) for key, lease in backup.leases.items()}
    for _ in range(3):
        bring_back(shard, backup, seen=shard.state.seq)
        for _ in range(3):
            for lease in shard.claim(3):
                assert (lease.job.key, lease.job.run) not in seen
                seen.add((lease.job.key, lease.job.run))
            shard.now += limits.LEASE_MS_DEFAULT


def test_jobs_whose_payload_is_gone_are_dropped_and_counted(shard: Any) -> None:
    shard.apply(EnqueueJobs((replace(shard.new(), payload=BodyRef("bodies/000000000000-1-0", 0, 5, 0)),)))
    left = shard.enqueue()
    loss = bring_back(shard, shard.state, gone=frozenset({"bodies/000000000000-1-0"}))
    assert loss.payloads_gone == 1
    assert shard.drain() == left


def test_jobs_that_were_purged_stay_so(shard: Any) -> None:
    shard.enqueue(payload=bytes(10))
    left = shard.enqueue()
    assert bring_back(shard, shard.state).erased == 1
    assert shard.drain() == left


ANYTHING = [b"0", b"", bytes(9), BodyRef("bodies/000000000000-1-0", 0, 5, 0)]


@pytest.mark.parametrize("payload", ANYTHING, ids=repr)
@pytest.mark.parametrize("where", [QUEUED, PROCESSING, FAILED, "scheduled"])
def test_whatever_a_purged_job_held_and_wherever_it_was_it_stays_away(
    shard: Any, where: str, payload: Any
) -> None:
    gone = shard.new().key
    delay_ms = 5_000 if where == "scheduled" else 0
    new = replace(shard.new(), key=gone, payload=payload, codec="own", max_attempts=1, delay_ms=delay_ms)
    shard.apply(EnqueueJobs((new,)))
    if where in (PROCESSING, FAILED):
        (lease,) = shard.claim()
        if where == FAILED:
            shard.apply(FailJobs((FailedAttempt(gone, lease.token, "no"),)))
    left = shard.enqueue()
    assert shard.where(gone) == where
    backup = blank_state(shard.state, {gone})
    endings = {gone: ended(FAILED, 7, FIRST_ATTEMPT)}  # the archive's record may outlive it for a while
    for known in ({}, endings):
        assert bring_back(shard, backup, endings=known, seen=shard.state.seq).erased == 1
        assert shard.where(gone) == "gone"
    shard.now += 10_000
    assert shard.drain() == left


def test_a_finished_job_that_the_archive_has_got_since_is_not_told_to_it_again(shard: Any) -> None:
    keys = shard.enqueue(2)
    leases = shard.claim(2)
    shard.apply(CompleteJobs(tuple(Completion(lease.job.key, lease.token) for lease in leases)))
    bring_back(shard, shard.state, archived=frozenset({(keys[0], 1, COMPLETED)}))
    assert {row.key: row.mark == UPDATED for row in shard.state.finished} == {keys[0]: True, keys[1]: False}


def test_finished_jobs_that_only_tables_know_come_back(shard: Any) -> None:
    (key,) = shard.enqueue()
    backup = shard.state
    (lease,) = shard.claim()
    shard.apply(CompleteJobs((Completion(key, lease.token, b'"done"'),)))
    row = shard.state.finished[0]
    bring_back(shard, backup, endings={key: ended(COMPLETED, 1)}, rows=(row,))
    assert shard.where(key) == COMPLETED
    assert shard.state.finished[0].result == b'"done"'


def test_a_backup_from_a_wrong_clock_gets_the_right_time(shard: Any) -> None:
    shard.enqueue()
    wrong = replace(shard.state, now_ms=shard.now + limits.DAY_MS)
    bring_back(shard, wrong)
    assert shard.state.now_ms == shard.now


@pytest.fixture
def deep(new_shard: Any) -> Any:
    """A shard with jobs in segments, indexes among them."""
    with limited(TIGHT):
        shard = new_shard()
        for _ in range(60):
            shard.enqueue(10)
        assert any(span.level for span in spans_of(shard.state))
        yield shard


def test_segments_are_copied_and_what_has_ended_is_left_out(deep: Any) -> None:
    places = list(deep.places())
    over = set(random.Random(3).sample(places, 100))
    loss = bring_back(deep, deep.state, endings={key: ended(COMPLETED, 1) for key in over})
    assert loss.finished == 100
    assert deep.drain() == [key for key in places if key not in over]


def test_what_is_in_segments_that_are_gone_is_counted_and_the_rest_goes_on(deep: Any) -> None:
    spans = list(spans_of(deep.state))
    index = next(span for span in spans if span.level)
    inside = decode_index(deep.objects[index.name], index.name)[3]
    gone = [spans[1], inside]
    lost = {job.key for span in gone for job in deep.inside(span)}
    everything = list(deep.places())
    loss = bring_back(deep, deep.state, gone=frozenset(span.name for span in gone))
    assert (loss.jobs_gone, loss.segments_gone) == (len(lost), 2)
    assert deep.drain() == [key for key in everything if key not in lost]


def test_a_job_cancelled_inside_a_segment_stays_cancelled(deep: Any) -> None:
    span = next(span for span in spans_of(deep.state) if not span.level)
    job = deep.inside(span)[0]
    assert deep.apply(CancelJob(job.key, job, span.name, span.offset, 0))[0].code == Code.CANCELLED
    bring_back(deep, deep.state)
    assert deep.state.tombstones == ()
    assert job.key not in deep.drain()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_was_going_on_every_job_of_the_backup_is_in_one_place(new_shard: Any, seed: int) -> None:
    chance = random.Random(seed)
    with limited(TIGHT):
        shard = new_shard(seed=seed)
        backup = play(shard, chance, 60)
        before = shard.places()
        play(shard, chance, 60)
        bring_back(shard, backup, seen=shard.state.seq)
        after = shard.places()
        expected = {QUEUED, FAILED, CANCELLED}
        for key, state in before.items():
            if state == PROCESSING:
                assert after[key] in expected
            else:
                assert after.get(key) in (state, QUEUED), (state, after.get(key))
        assert set(after) == set(before)
        jobs = {key for key, state in after.items() if state == QUEUED}
        shard.now += limits.DAY_MS
        assert jobs <= set(shard.drain())
        assert imbalances(shard.state) == []


def play(shard: Any, chance: random.Random, steps: int) -> State:
    """Some life in a shard: enqueue, claim, complete, fail, cancel, and time going by."""
    for _ in range(steps):
        what = chance.random()
        leases = list(shard.state.leases.values())
        if what < 0.4:
            shard.enqueue(
                chance.randint(1, 8), delay_ms=chance.choice([0, 0, 5_000]), max_attempts=chance.randint(1, 3)
            )
        elif what < 0.6:
            shard.claim(chance.randint(1, 6))
        elif what < 0.75 and leases:
            some = chance.sample(leases, min(len(leases), 3))
            shard.apply(CompleteJobs(tuple(Completion(lease.job.key, lease.token) for lease in some)))
        elif what < 0.85 and leases:
            lease = chance.choice(leases)
            shard.apply(FailJobs((FailedAttempt(lease.job.key, lease.token, "no"),)))
        elif what < 0.9 and leases:
            shard.apply(CancelJob(chance.choice(leases).job.key))
        elif what < 0.93:
            shard.apply(RunTimers())
        shard.now += chance.randint(0, 4_000)
    return shard.state  # type: ignore[no-any-return]


# ── The clock ────────────────────────────────────────────────────────────────
def test_a_head_that_is_ahead_gets_the_right_time_and_keeps_everything_else(shard: Any) -> None:
    right = shard.now
    keys = shard.enqueue(3)
    shard.now += limits.DAY_MS
    (lease,) = shard.claim()
    ahead, shard.now = shard.state, right
    shard.state = reset_clock(ahead, right, bytes([9]) * 16)
    assert imbalances(shard.state) == []
    assert shard.state.now_ms == right
    assert shard.state.leases[keys[0]].expires_ms == right + lease.lease_ms
    assert shard.apply(CompleteJobs((Completion(keys[0], lease.token),)))[0].code == Code.OK
    assert shard.drain() == keys[1:]
    assert (shard.state.epoch, live_keysum(ahead)) == (
        ahead.epoch,
        live_keysum(reset_clock(ahead, right, b"x" * 16)),
    )


def test_a_lease_ends_in_its_own_time_once_the_clock_is_right(shard: Any) -> None:
    right = shard.now
    (key,) = shard.enqueue()
    shard.now += limits.DAY_MS
    shard.claim()
    shard.state, shard.now = reset_clock(shard.state, right, bytes([9]) * 16), right
    shard.now += limits.LEASE_MS_DEFAULT - 1
    shard.apply(RunTimers())
    assert shard.where(key) == PROCESSING
    shard.now += 1
    shard.apply(RunTimers())
    assert shard.where(key) == QUEUED


def test_what_was_applied_under_the_wrong_clock_is_not_applied_again(shard: Any) -> None:
    request = shard.request(EnqueueJobs((shard.new(),)))
    shard.commit([request])
    waiting = replace(request, n=2, born=shard.state.seq)
    shard.state = reset_clock(shard.state, shard.now - 1, bytes([9]) * 16)
    assert not applicable(shard.state, request)
    assert status_of_request(shard.state, request) is RequestStatus.UNKNOWN
    assert applicable(shard.state, waiting)  # what nobody has applied yet still may be


# ── The audit ────────────────────────────────────────────────────────────────
def spoilt(state: State) -> Iterable[State]:
    yield replace(state, leases_bytes=state.leases_bytes + 1)
    yield replace(state, finished_bytes=1)
    yield replace(state, counters=replace(state.counters, keysum_in=state.counters.keysum_in ^ 1))
    yield replace(state, lanes=())
    yield replace(state, leases={b"x" * 16: next(iter(state.leases.values()))})


def test_a_head_that_contradicts_itself_is_told(shard: Any) -> None:
    shard.enqueue(3)
    shard.claim()
    assert imbalances(shard.state) == []
    for state in spoilt(shard.state):
        assert imbalances(state) != []


def test_what_was_asked_of_the_results_of_jobs_that_are_over_is_dropped(shard: Any) -> None:
    """Nothing else would drop it, and there is room for the wishes of so many jobs only."""
    over, waits, dead, purged = shard.enqueue(4)
    wishes = dict.fromkeys((over, waits, dead, purged), 5_000)
    backup = replace(shard.state, result_ttls=wishes)
    endings = {over: ended(COMPLETED, 1), dead: ended(FAILED, 1, FIRST_ATTEMPT)}
    bring_back(shard, backup, endings=endings, purged=frozenset({purged}))
    assert shard.state.result_ttls == {waits: 5_000}
    (letter,) = shard.state.dead.tail
    assert (letter.key, letter.result_ttl_ms) == (dead, 5_000)
