"""The head stays small whatever is queued: every part of it, at the real budgets, one past and far past them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osqueue import limits
from osqueue.core.encoding import encode
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
from osqueue.core.rows import BodyRef
from osqueue.core.weights import finished_weight
from simulation.tight import limited

HEAD_BYTES_MAX = 512 * limits.KB  # all budgets together, and one row more of each


@pytest.fixture
def shard(new_shard: Callable[..., Any]) -> Any:
    return new_shard(checked=False)


def done(leases: Any, result: bytes = b"") -> CompleteJobs:
    return CompleteJobs(tuple(Completion(lease.job.key, lease.token, result) for lease in leases))


@pytest.mark.parametrize("size", [1, 100, limits.INLINE_BYTES_MAX])
def test_queued_jobs_do_not_grow_the_head(shard: Any, size: int) -> None:
    for _ in range(10):
        shard.enqueue(1_000, payload=bytes(size))
    assert shard.head_bytes_most < HEAD_BYTES_MAX / 3


def test_sixteen_lanes_of_large_jobs_do_not_grow_the_head(shard: Any) -> None:
    for turn in range(320):
        shard.enqueue(10, payload=bytes(1_000), priority=turn % 4, kind="abcd"[turn // 4 % 4])
    for turn in range(64):
        leases = shard.claim(20, kinds=("abcd"[turn % 4],))
        shard.apply(done(leases))
    assert shard.head_bytes_most < HEAD_BYTES_MAX


@pytest.mark.parametrize("size", [1, limits.INLINE_BYTES_MAX])
def test_delayed_jobs_do_not_grow_the_head(shard: Any, size: int) -> None:
    for _ in range(30):
        shard.enqueue(1_000, payload=bytes(size), delay_ms=shard.chance.randrange(1, 10**9))
        assert shard.state.delayed.jobs_bytes <= limits.DELAYED_BYTES_MAX
    assert shard.head_bytes_most < HEAD_BYTES_MAX / 3
    shard.check()


def test_failing_jobs_do_not_grow_the_head(shard: Any) -> None:
    shard.enqueue(2_000, payload=bytes(500))
    for _ in range(20):
        leases = shard.claim(100)
        shard.apply(
            FailJobs(tuple(FailedAttempt(each.job.key, each.token, "x" * 300, 10**6) for each in leases))
        )
    assert shard.head_bytes_most < HEAD_BYTES_MAX


def test_dead_letters_do_not_grow_the_head(shard: Any) -> None:
    shard.enqueue(2_000, kind="a")
    shard.enqueue(3, kind="b")
    while leases := shard.claim(300):
        items = tuple(FailedAttempt(each.job.key, each.token, "x" * 300, final=True) for each in leases)
        shard.apply(FailJobs(items))
    assert shard.head_bytes_most < HEAD_BYTES_MAX
    # Looking through all of them for a few must not bring them all back into the head.
    assert shard.apply(RedriveJobs(1, 10_000, kinds=("b",)))[0].count == 1
    assert shard.head_bytes < HEAD_BYTES_MAX / 3
    shard.check()


def test_forgetting_many_dead_letters_at_once_does_not_grow_the_head(shard: Any) -> None:
    keys = shard.enqueue(3_000)
    while leases := shard.claim(500):
        shard.apply(
            FailJobs(tuple(FailedAttempt(each.job.key, each.token, "x", final=True) for each in leases))
        )
    shard.now += limits.DEAD_TTL_MS_DEFAULT
    passes = 0
    while len(shard.left) < len(keys):
        shard.apply(RunTimers(flush=True))
        shard.check()
        passes += 1
        assert passes < 100
    assert shard.head_bytes_most < HEAD_BYTES_MAX


def test_a_thousand_leases_with_payloads_do_not_grow_the_head(shard: Any) -> None:
    shard.enqueue(3_000, payload=bytes(1_000))
    outcome = None
    for _ in range(200):
        (outcome,) = shard.apply(ClaimJobs(20, "ada", 30_000))
        if not outcome.leases:
            break
    assert outcome is not None
    assert outcome.code == Code.IN_FLIGHT_LIMIT
    assert not shard.last.changed
    assert 100 < len(shard.state.leases) <= 1_000
    assert shard.head_bytes_most < HEAD_BYTES_MAX
    assert shard.apply(done(tuple(shard.state.leases.values())[:10]))[0].codes == [Code.OK] * 10
    assert shard.claim(5)


def test_about_a_thousand_small_leases_fit(shard: Any) -> None:
    shard.enqueue(2_000)
    while shard.claim(100):
        pass
    assert 1_000 <= len(shard.state.leases) <= 1_300


def test_spilled_payloads_of_leases_are_the_payloads(shard: Any) -> None:
    wanted = {}
    for at in range(300):
        payload = bytes([at % 256]) * 900
        wanted[shard.enqueue(payload=payload)[0]] = payload
    while shard.claim(30):
        pass
    bodies = 0
    for key, lease in shard.state.leases.items():
        payload = lease.job.payload
        if isinstance(payload, BodyRef):
            bodies += 1
            payload = shard.objects[payload.name][payload.start : payload.start + payload.length]
        assert payload == wanted[key]
    assert bodies > 0


def test_results_do_not_grow_the_head_and_stay_readable(shard: Any) -> None:
    shard.enqueue(400)
    results = {}
    while leases := shard.claim(60):
        result = shard.chance.randbytes(1_000)
        results.update({lease.job.key: result for lease in leases})
        shard.apply(done(leases, result))
        for row in shard.state.finished:
            kept = row.result
            if isinstance(kept, BodyRef):
                kept = shard.objects[kept.name][kept.start : kept.start + kept.length]
            assert kept == results[row.job.key]
    assert shard.head_bytes_most < HEAD_BYTES_MAX
    shard.check()
    assert shard.left


@pytest.mark.parametrize("fails", [False, True])
def test_payloads_for_the_archive_do_not_grow_the_head_and_stay_readable(shard: Any, fails: bool) -> None:
    shard.apply(ChangeSettings(archive_payloads=True))
    wanted = {}
    for at in range(400):
        payload = bytes([at % 256]) * 1_000
        wanted[shard.enqueue(payload=payload, max_attempts=1)[0]] = payload
    met = set()
    while leases := shard.claim(60):
        ends = tuple(FailedAttempt(each.job.key, each.token, "no") for each in leases)
        shard.apply(FailJobs(ends) if fails else done(leases, bytes(900)))
        for row in shard.state.finished:
            kept = row.payload
            if isinstance(kept, BodyRef):
                assert not fails or row.spent is None  # no second copy beside the head: the dead letter's own
                kept = shard.objects[kept.name][kept.start : kept.start + kept.length]
            assert kept == wanted[row.job.key]
            assert len(encode(row)) <= finished_weight(row)
            met.add(row.key)
    assert met == wanted.keys()
    assert shard.head_bytes_most < HEAD_BYTES_MAX
    shard.check()


def test_jobs_with_long_histories_do_not_grow_the_head(shard: Any) -> None:
    keys = shard.enqueue(100, max_attempts=1_000)
    for _ in range(9):
        pending = len(keys)
        while pending:
            leases = shard.claim(pending)
            assert leases
            shard.apply(
                FailJobs(tuple(FailedAttempt(each.job.key, each.token, "é" * 300, 1_000) for each in leases))
            )
            pending -= len(leases)
        shard.now += 1_000
    assert shard.head_bytes_most < HEAD_BYTES_MAX
    shard.check()


# ── Sessions ─────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("quarter")
def test_when_sessions_are_full_a_new_writer_is_told_so_and_an_old_one_is_not(shard: Any) -> None:
    count = fill_sessions(shard)
    assert 500 < count < 1_000
    refused = shard.commit([shard.request(EnqueueJobs((shard.new(),)), env="newcomer")])
    assert refused.crowded
    assert not refused.outcomes
    assert not refused.changed
    assert shard.apply(EnqueueJobs((shard.new(),)), env=f"{3:016x}")[0].code == Code.QUEUED
    assert shard.head_bytes_most < HEAD_BYTES_MAX


@pytest.fixture
def quarter() -> Iterator[None]:
    """Room for a quarter of the writers that a head has room for."""
    with limited({"SESSIONS_BYTES_MAX": limits.SESSIONS_BYTES_KEPT}):
        yield


def fill_sessions(shard: Any) -> int:
    """Let writers come until there is no room for another. Return how many came."""
    count = 0
    while not shard.commit([shard.request(EnqueueJobs((shard.new(),)), env=f"{count:016x}")]).crowded:
        count += 1
    return count


def test_a_burst_of_writers_is_served_and_forgotten_once_they_are_idle(shard: Any) -> None:
    assert fill_sessions(shard) > 2_500
    shard.now += limits.SESSION_IDLE_MS_MIN
    assert shard.apply(EnqueueJobs((shard.new(),)), env="f" * 16)[0].code == Code.QUEUED
    assert 0 < shard.state.sessions_bytes <= limits.SESSIONS_BYTES_KEPT


@pytest.mark.usefixtures("quarter")
def test_idle_writers_make_room_and_the_floor_rises_past_them(shard: Any) -> None:
    count = fill_sessions(shard)
    late = shard.request(
        EnqueueJobs((shard.new(),)), env=f"{0:016x}"
    )  # on its way for longer than anybody waits
    shard.now += limits.SESSION_IDLE_MS_MIN
    for _ in range(10):
        shard.apply(EnqueueJobs((shard.new(),)), env=f"{count - 1:016x}")
    assert shard.commit([shard.request(EnqueueJobs((shard.new(),)), env="f" * 16)]).outcomes
    dropped = count + 1 - len(shard.state.sessions)
    assert dropped >= 1
    assert shard.state.floor >= dropped  # one commit each, the oldest first
    assert late.born >= shard.state.floor or not shard.commit([late]).outcomes


@pytest.mark.usefixtures("quarter")
def test_nobody_who_spoke_within_two_minutes_is_forgotten(shard: Any) -> None:
    fill_sessions(shard)
    shard.now += limits.SESSION_IDLE_MS_MIN - 1
    assert shard.commit([shard.request(EnqueueJobs((shard.new(),)), env="f" * 16)]).crowded


@pytest.mark.usefixtures("quarter")
def test_a_request_born_below_the_floor_is_never_applied(shard: Any) -> None:
    shard.enqueue()
    old = shard.request(EnqueueJobs((shard.new(),)), env="late")
    fill_sessions(shard)
    shard.now += limits.SESSION_IDLE_MS_MIN
    shard.commit([shard.request(EnqueueJobs((shard.new(),)), env="x" * 16)])
    assert shard.state.floor > old.born
    assert not shard.commit([old]).outcomes


@pytest.mark.usefixtures("quarter")
def test_long_outcomes_of_many_writers_do_not_grow_the_head(shard: Any) -> None:
    shard.enqueue(1)
    (lease,) = shard.claim()
    fill_sessions(shard)
    held = (
        LeaseBeat(lease.job.key, lease.token),
        LeaseBeat(b"x" * 16, "no"),
    ) * 500  # a code of its own for every item
    for writer in range(200):
        assert shard.commit([shard.request(ExtendLeases(held), env=f"{writer:016x}")]).crowded
    assert shard.head_bytes_most < HEAD_BYTES_MAX


@pytest.mark.usefixtures("quarter")
def test_long_outcomes_are_remembered_while_there_is_room(shard: Any) -> None:
    (lease,) = (shard.enqueue(1), shard.claim())[1]
    held = (LeaseBeat(lease.job.key, lease.token), LeaseBeat(b"x" * 16, "no")) * 500
    taken = [
        not shard.commit([shard.request(ExtendLeases(held), env=f"{writer:016x}")]).crowded
        for writer in range(200)
    ]
    assert 10 < sum(taken) < 200
    assert shard.state.sessions_bytes <= limits.SESSIONS_BYTES_MAX


def test_a_thousand_jobs_that_die_at_once_with_long_tracebacks_grow_the_head_for_one_commit_at_most(
    shard: Any,
) -> None:
    shard.apply(EnqueueJobs(tuple(shard.new(max_attempts=1) for _ in range(1_000))))
    leases = shard.claim(1_000)
    trace = "t" * limits.TRACE_CHARS_MAX
    error = "e" * limits.ERROR_CHARS_MAX
    items = tuple(
        FailedAttempt(each.job.key, each.token, error, final=True, error_type="E", trace=trace)
        for each in leases
    )
    shard.apply(FailJobs(items))
    assert len(leases) > 900
    assert (
        shard.head_bytes < 1.5 * HEAD_BYTES_MAX
    )  # what the archive is to be told of, none of it committed yet
    shard.enqueue()
    assert shard.head_bytes < HEAD_BYTES_MAX / 3
    shard.apply(RunTimers(flush=True))
    assert sum(table.count for table in shard.state.tables) == len(leases)  # the archive hears of all of them
