"""A job's life: every arrow of the state diagram, every arrow that must not exist, and the rules on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import astuple

from osqueue import limits
from osqueue.core import arrows
from osqueue.core.archive_record import wants_record
from osqueue.core.arrows import EXPIRED
from osqueue.core.failures import backoff_ms
from osqueue.core.job_ops import (
    AbortJobs,
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    JobSpec,
    LeaseBeat,
    LeaseRef,
    ReleaseJobs,
    ReplaceJobs,
    Replacement,
    RunJobNow,
)
from osqueue.core.ops import Code, Op
from osqueue.core.queue_ops import ChangeSettings, RedriveJobs, RunTimers
from osqueue.core.state import (
    ARCHIVE_ONLY,
    CANCELLED,
    COMPLETED,
    EXPIRED_DEAD,
    FAILED,
    FAILING,
    PROCESSING,
    QUEUED,
    SCHEDULED,
)
from tests.support.shard import Shard

Hold = tuple[bytes, str]  # a job's key and the newest token it ever had
HOUR_MS = 3_600_000


# ── Ways into each state ─────────────────────────────────────────────────────
def queued(shard: Any, **fields: Any) -> Hold:
    return shard.enqueue(**fields)[0], "none-yet"


def scheduled(shard: Any) -> Hold:
    return shard.enqueue(delay_ms=60_000)[0], "none-yet"


def processing(shard: Any, **fields: Any) -> Hold:
    queued(shard, **fields)
    (lease,) = shard.claim()
    return lease.job.key, lease.token


def late_scheduled(shard: Any) -> Hold:
    key, token = processing(shard, start_within_ms=1_000)
    shard.apply(ReleaseJobs((LeaseRef(key, token),), 60_000))
    return key, token


def late_failing(shard: Any) -> Hold:
    key, token = processing(shard, start_within_ms=1_000)
    shard.apply(FailJobs((FailedAttempt(key, token, "no", 60_000),)))
    return key, token


def asked_to_stop(shard: Any) -> Hold:
    key, token = processing(shard)
    shard.apply(CancelJob(key))
    return key, token


def failing(shard: Any) -> Hold:
    key, token = processing(shard)
    shard.apply(FailJobs((FailedAttempt(key, token, "no", 60_000),)))
    return key, token


def completed(shard: Any) -> Hold:
    key, token = processing(shard)
    shard.apply(CompleteJobs((Completion(key, token, b"7"),)))
    return key, token


def failed(shard: Any) -> Hold:
    key, token = processing(shard)
    shard.apply(FailJobs((FailedAttempt(key, token, "no", final=True),)))
    return key, token


def cancelled(shard: Any) -> Hold:
    key, token = processing(shard)
    shard.apply(AbortJobs((LeaseRef(key, token),), "enough"))
    return key, token


def gone(shard: Any) -> Hold:
    hold = completed(shard)
    shard.apply(RunTimers(flush=True))
    return hold


ORIGINS: dict[str, Callable[[Any], Hold]] = {
    "queued": queued,
    "scheduled": scheduled,
    "processing": processing,
    "processing, cancel requested": asked_to_stop,
    "failing": failing,
    "completed": completed,
    "failed": failed,
    "cancelled": cancelled,
    "gone": gone,
}


# ── What can be done to a job ────────────────────────────────────────────────
def heartbeat(key: bytes, token: str) -> Op:
    return ExtendLeases((LeaseBeat(key, token),))


def complete(key: bytes, token: str) -> Op:
    return CompleteJobs((Completion(key, token),))


def fail(key: bytes, token: str) -> Op:
    return FailJobs((FailedAttempt(key, token, "no", 5_000),))


def fail_for_good(key: bytes, token: str) -> Op:
    return FailJobs((FailedAttempt(key, token, "no", final=True),))


def release(key: bytes, token: str) -> Op:
    return ReleaseJobs((LeaseRef(key, token),))


def release_later(key: bytes, token: str) -> Op:
    return ReleaseJobs((LeaseRef(key, token),), 5_000)


def abort(key: bytes, token: str) -> Op:
    return AbortJobs((LeaseRef(key, token),))


def cancel(key: bytes, token: str) -> Op:
    return CancelJob(key)


def claim(key: bytes, token: str) -> Op:
    return ClaimJobs(10, "bob", 30_000)


def redrive(key: bytes, token: str) -> Op:
    return RedriveJobs(10, 10)


def replaced(key: bytes, token: str, **more: Any) -> Op:
    return ReplaceJobs((Replacement(CancelJob(key), JobSpec(b"\xfe" * 16, b"2", seen=0, **more)),))


def run_now(key: bytes, token: str) -> Op:
    return RunJobNow(key)


def sweep(key: bytes, token: str) -> Op:
    return RunTimers()


LOST = Code.LEASE_LOST
# (state, what is done) → (the answer, the state afterwards). Every pair stands here or in NOTHING_HAPPENS.
ARROWS: dict[tuple[str, Any], tuple[Code, str]] = {
    ("queued", claim): (Code.GRANTED, PROCESSING),
    **{(state, cancel): (Code.CANCELLED, CANCELLED) for state in ("queued", "scheduled", "failing")},
    ("processing", heartbeat): (Code.OK, PROCESSING),
    ("processing", complete): (Code.OK, COMPLETED),
    ("processing", fail): (Code.FAILING, FAILING),
    ("processing", fail_for_good): (Code.FAILED, FAILED),
    ("processing", release): (Code.OK, QUEUED),
    ("processing", release_later): (Code.OK, SCHEDULED),
    ("processing", abort): (Code.CANCELLED, CANCELLED),
    ("processing", cancel): (Code.PROCESSING, PROCESSING),
    ("processing, cancel requested", heartbeat): (Code.CANCEL_REQUESTED, PROCESSING),
    ("processing, cancel requested", complete): (Code.OK, COMPLETED),
    **{
        ("processing, cancel requested", act): (Code.CANCELLED, CANCELLED)
        for act in (fail, fail_for_good, release, release_later, abort)
    },
    ("failed", redrive): (Code.OK, QUEUED),
    **{(state, replaced): (Code.QUEUED, CANCELLED) for state in ("queued", "scheduled", "failing")},
    **{(state, run_now): (Code.OK, QUEUED) for state in ("scheduled", "failing")},
}
NOTHING_HAPPENS: dict[tuple[str, Any], Code] = {
    **{
        (state, act): LOST
        for state in ("queued", "scheduled", "failing", "completed", "failed", "cancelled", "gone")
        for act in (heartbeat, complete, fail, fail_for_good, release, release_later, abort)
    },
    **{(state, claim): Code.EMPTY for state in ORIGINS if state != "queued"},
    **{(state, redrive): Code.OK for state in ORIGINS if state != "failed"},
    **{(state, sweep): Code.OK for state in ORIGINS},
    **{(state, replaced): Code.RETRY for state in ORIGINS if state not in ("queued", "scheduled", "failing")},
    ("completed", complete): Code.OK,  # a repeat of the one that won
    ("completed", cancel): Code.COMPLETED,
    ("cancelled", cancel): Code.CANCELLED,
    ("processing, cancel requested", cancel): Code.PROCESSING,
    ("failed", cancel): Code.NOT_FOUND,
    ("gone", cancel): Code.NOT_FOUND,
    ("queued", run_now): Code.OK,
    **{(state, run_now): Code.PROCESSING for state in ("processing", "processing, cancel requested")},
    **{(state, run_now): Code[state.upper()] for state in ("completed", "cancelled")},
    **{(state, run_now): Code.NOT_FOUND for state in ("failed", "gone")},
}
ACTS = (
    heartbeat,
    complete,
    fail,
    fail_for_good,
    release,
    release_later,
    abort,
    cancel,
    claim,
    redrive,
    run_now,
    replaced,
    sweep,
)


def name_of(value: Any) -> str:
    return value.__name__ if callable(value) else str(value).replace(", ", "-").replace(" ", "-")


def test_the_two_tables_cover_every_state_and_operation() -> None:
    assert ARROWS.keys() | NOTHING_HAPPENS.keys() == {(state, act) for state in ORIGINS for act in ACTS}
    assert not ARROWS.keys() & NOTHING_HAPPENS.keys()


@pytest.mark.parametrize(("origin", "act"), ARROWS, ids=name_of)
def test_an_operation_moves_a_job_along_its_arrow(shard: Any, origin: str, act: Any) -> None:
    key, token = ORIGINS[origin](shard)
    before, state_before = len(shard.events), shard.where(key)
    answer, target = ARROWS[(origin, act)]
    (outcome,) = shard.apply(act(key, token))
    assert (outcome.code, shard.where(key)) == (answer, target)
    moved = [(event.origin, event.target) for event in shard.events[before:] if event.key == key]
    assert moved == ([] if state_before == target else [(state_before, target)])


@pytest.mark.parametrize(("origin", "act"), NOTHING_HAPPENS, ids=name_of)
def test_what_has_no_arrow_changes_nothing_and_says_why(shard: Any, origin: str, act: Any) -> None:
    key, token = ORIGINS[origin](shard)
    before = shard.state
    (outcome,) = shard.apply(act(key, token))
    assert outcome.code == NOTHING_HAPPENS[(origin, act)]
    assert not shard.last.changed
    assert shard.state is before
    assert shard.last.events == ()


@pytest.mark.parametrize("act", [heartbeat, complete, fail, fail_for_good, release, release_later, abort])
def test_a_token_of_an_earlier_attempt_is_refused(shard: Any, act: Any) -> None:
    key, old = processing(shard)
    shard.apply(release(key, old))
    (lease,) = shard.claim()
    assert shard.apply(act(key, old))[0].code == LOST
    assert not shard.last.changed
    assert shard.state.leases[key].token == lease.token


def test_every_arrow_of_the_table_is_walked_and_no_other() -> None:
    walked: set[tuple[str, str, str]] = set()
    for origin, act in ARROWS:
        walked |= moves_of(Shard(), lambda shard, way=ORIGINS[origin], act=act: shard.apply(act(*way(shard))))
    for way in (scheduled, failing, processing, asked_to_stop, failed):
        walked |= moves_of(Shard(), way, limits.DEAD_TTL_MS_DEFAULT)
    walked |= moves_of(Shard(), lambda shard: processing(shard, max_attempts=1), limits.LEASE_MS_DEFAULT)
    for attempts in (1, 2):
        limited = {"max_attempts": attempts, "run_within_ms": 5_000}
        walked |= moves_of(Shard(), lambda shard, more=limited: processing(shard, **more), 5_000)
    walked |= moves_of(Shard(), lambda shard: queued(shard, start_within_ms=1_000), 120_000)
    walked |= moves_of(Shard(), lambda shard: shard.apply(replaced(*queued(shard), delay_ms=5_000)))
    for late in (late_scheduled, late_failing):
        walked |= moves_of(Shard(), late, 120_000)
    assert walked == {EXPIRED, *(astuple(each)[:3] for each in arrows.ARROWS if each.cause != "follow")}


def moves_of(shard: Any, way: Callable[[Any], Any], later_ms: int = 0) -> set[tuple[str, str, str]]:
    """The moves of a commit or several, and of what time does to the job then."""
    way(shard)
    shard.now += later_ms
    shard.apply(RunTimers())
    return {(event.origin, event.target, event.cause) for event in shard.events}


# ── Arrows drawn by time ─────────────────────────────────────────────────────
@pytest.mark.parametrize("way", [scheduled, failing])
def test_a_delayed_job_is_queued_when_it_is_due_and_not_before(shard: Any, way: Any) -> None:
    key, _ = way(shard)
    origin = shard.where(key)
    shard.now += 59_999
    assert shard.claim() == ()
    assert not shard.last.changed
    shard.now += 1
    shard.apply(RunTimers())
    assert shard.where(key) == QUEUED
    assert [(e.origin, e.target, e.cause) for e in shard.events[-1:]] == [(origin, QUEUED, "due")]
    assert [lease.job.key for lease in shard.claim()] == [key]


def test_a_stale_lease_goes_back_to_the_queue_at_once_and_uses_the_attempt(shard: Any) -> None:
    key, token = processing(shard)
    shard.now += limits.LEASE_MS_DEFAULT - 1
    shard.apply(RunTimers())
    assert shard.where(key) == PROCESSING
    shard.now += 1
    shard.apply(RunTimers())
    assert shard.where(key) == QUEUED
    assert (shard.events[-1].cause, shard.events[-1].target) == ("stalled", QUEUED)
    assert shard.apply(complete(key, token))[0].code == LOST
    (lease,) = shard.claim()
    assert (lease.job.attempt, lease.job.run) == (2, 2)
    assert lease.job.history[0].outcome == "stalled"


def test_a_stale_lease_without_attempts_left_is_a_dead_letter(shard: Any) -> None:
    key, _ = processing(shard, max_attempts=1)
    shard.now += limits.LEASE_MS_DEFAULT
    shard.apply(RunTimers())
    assert shard.where(key) == FAILED
    assert (shard.events[-1].cause, shard.events[-1].target) == ("stalled", FAILED)


def test_a_stale_lease_with_a_cancel_requested_is_cancelled(shard: Any) -> None:
    key, _ = asked_to_stop(shard)
    shard.now += limits.LEASE_MS_DEFAULT
    shard.apply(RunTimers())
    assert shard.where(key) == CANCELLED
    assert shard.state.counters.stalled == 0


def test_a_dead_letter_is_forgotten_after_its_ttl(shard: Any) -> None:
    key, _ = failed(shard)
    shard.now += limits.DEAD_TTL_MS_DEFAULT - 1
    shard.apply(RunTimers())
    assert shard.where(key) == FAILED
    shard.now += 1
    shard.apply(RunTimers())
    assert shard.where(key) == "gone"
    rows = shard.state.finished
    assert [row.state for row in rows] == [FAILED, FAILED]
    assert [row.mark for row in rows] == [
        ARCHIVE_ONLY,
        EXPIRED_DEAD,
    ]  # the archive learns of it once, when it fails
    assert [wants_record(row) for row in rows] == [True, False]


def test_a_forgotten_dead_letter_cannot_be_cancelled(shard: Any) -> None:
    key, _ = failed(shard)
    shard.now += limits.DEAD_TTL_MS_DEFAULT
    shard.apply(RunTimers())
    assert shard.apply(CancelJob(key))[0].code == Code.NOT_FOUND


def test_a_heartbeat_moves_the_end_of_the_lease_to_now_plus_its_length(shard: Any) -> None:
    key, token = processing(shard)
    shard.now += 20_000
    shard.apply(heartbeat(key, token))
    assert shard.state.leases[key].expires_ms == shard.now + limits.LEASE_MS_DEFAULT
    shard.apply(ExtendLeases((LeaseBeat(key, token),), HOUR_MS))
    assert shard.state.leases[key].expires_ms == shard.now + HOUR_MS
    shard.now += HOUR_MS - 1
    assert shard.apply(heartbeat(key, token))[0].code == Code.OK
    assert shard.state.leases[key].expires_ms == shard.now + HOUR_MS  # the new length stays


def test_a_clock_that_goes_back_does_not_take_the_queue_with_it(shard: Any) -> None:
    shard.enqueue()
    noon = shard.state.now_ms
    shard.now -= HOUR_MS
    shard.enqueue()
    assert shard.state.now_ms == noon


# ── Attempts, runs and retries ───────────────────────────────────────────────
def test_failures_and_stalls_use_attempts_and_runs_count_every_lease(shard: Any) -> None:
    key, token = processing(shard, max_attempts=3)
    shard.apply(fail(key, token))
    shard.now += 5_000
    (second,) = shard.claim()
    shard.now += limits.LEASE_MS_DEFAULT
    (third,) = shard.claim()
    assert [second.job.attempt, third.job.attempt] == [2, 3]
    assert shard.apply(fail(key, third.token))[0].code == Code.FAILED
    assert [each.outcome for each in shard.state.dead.tail[0].history] == ["failed", "stalled", "failed"]
    assert third.job.run == 3


def test_a_release_gives_the_attempt_back_but_not_the_run(shard: Any) -> None:
    key, token = processing(shard, max_attempts=1)
    for run in range(2, 12):
        shard.apply(release(key, token))
        (lease,) = shard.claim()
        token = lease.token
        assert (lease.job.attempt, lease.job.run) == (1, run)
    assert shard.state.counters.released == 10


def test_a_redriven_job_has_all_its_attempts_again_and_its_runs_go_on(shard: Any) -> None:
    key, token = processing(shard, max_attempts=1)
    assert shard.apply(fail(key, token))[0].code == Code.FAILED
    shard.apply(RedriveJobs(10, 10))
    (lease,) = shard.claim()
    assert (lease.job.key, lease.job.attempt, lease.job.run) == (key, 1, 3)  # one for the redrive, too
    assert shard.state.counters.redriven == 1


@pytest.mark.parametrize(
    ("attempt", "wait"),
    [(1, 1_000), (2, 2_000), (3, 4_000), (12, 2_048_000), (13, 3_600_000), (1_000, 3_600_000)],
)
def test_the_back_off_doubles_up_to_its_cap(attempt: int, wait: int) -> None:
    assert backoff_ms(limits.BACKOFF_BASE_MS, limits.BACKOFF_CAP_MS, attempt) == wait


@pytest.mark.parametrize(("jitter", "wait"), [(0.0, 0), (0.25, 500), (0.999, 1_998)])
def test_a_retry_waits_the_drawn_share_of_the_back_off(shard: Any, jitter: float, wait: int) -> None:
    key, token = processing(shard)
    shard.apply(ChangeSettings(backoff_base_ms=2_000))
    shard.apply(FailJobs((FailedAttempt(key, token, "no", jitter=jitter),)))
    assert shard.state.delayed.jobs[0].due_ms == shard.now + wait


def test_retry_in_overrides_the_back_off(shard: Any) -> None:
    key, token = processing(shard)
    shard.apply(FailJobs((FailedAttempt(key, token, "no", retry_ms=0),)))
    assert shard.where(key) == FAILING  # due in the next commit
    assert [lease.job.key for lease in shard.claim()] == [key]


def test_a_long_history_keeps_the_latest_attempts_and_shortens_errors(shard: Any) -> None:
    key, token = processing(shard, max_attempts=20)
    for _ in range(10):
        shard.apply(FailJobs((FailedAttempt(key, token, "x" * 2_000, 0),)))
        (lease,) = shard.claim()
        token = lease.token
    history = shard.state.leases[key].job.history
    assert [each.run for each in history] == [3, 4, 5, 6, 7, 8, 9, 10]
    assert {len(each.error) for each in history} == {300}


# ── Items of one operation ───────────────────────────────────────────────────
def test_a_bad_item_fails_alone(shard: Any) -> None:
    shard.enqueue(3)
    leases = shard.claim(3)
    items = [Completion(lease.job.key, lease.token) for lease in leases]
    items[1] = Completion(leases[1].job.key, "wrong")
    assert shard.apply(CompleteJobs(tuple(items)))[0].codes == [Code.OK, LOST, Code.OK]
    assert shard.where(leases[1].job.key) == PROCESSING


def test_two_completes_of_one_job_in_one_operation_are_one(shard: Any) -> None:
    key, token = processing(shard)
    done = Completion(key, token, b"1")
    assert shard.apply(CompleteJobs((done, done)))[0].codes == [Code.OK, Code.OK]
    assert shard.state.counters.completed == 1


def test_a_complete_and_a_fail_of_one_attempt_have_one_winner(shard: Any) -> None:
    key, token = processing(shard)
    won, lost = shard.apply(complete(key, token), fail(key, token))
    assert (won.code, lost.code) == (Code.OK, LOST)
    key, token = processing(shard)
    won, lost = shard.apply(fail(key, token), complete(key, token))
    assert (won.code, lost.code) == (Code.FAILING, LOST)


def test_a_key_that_is_being_worked_on_is_not_enqueued_again(shard: Any) -> None:
    key, _ = processing(shard)
    new = shard.new()
    again = type(new)(key, b"2")
    assert shard.apply(EnqueueJobs((again, new)))[0].codes == [Code.DUPLICATE, Code.QUEUED]


# ── Pausing ──────────────────────────────────────────────────────────────────
def test_a_paused_queue_does_everything_but_hand_out_jobs(shard: Any) -> None:
    key, token = processing(shard)
    later, _ = scheduled(shard)
    shard.apply(ChangeSettings(paused=True))
    shard.enqueue()
    shard.now += 20_000
    assert shard.apply(heartbeat(key, token))[0].code == Code.OK
    shard.now += 40_000
    (outcome,) = shard.apply(ClaimJobs(5, "ada", 30_000))
    assert (outcome.code, outcome.leases) == (Code.PAUSED, ())
    shard.apply(RunTimers())
    assert shard.where(later) == QUEUED
    assert shard.where(key) == QUEUED  # its lease ended
    shard.apply(ChangeSettings(paused=False))
    assert len(shard.claim(10)) == 3


def test_pausing_twice_changes_nothing(shard: Any) -> None:
    shard.apply(ChangeSettings(paused=True))
    shard.apply(ChangeSettings(paused=True))
    assert not shard.last.changed
