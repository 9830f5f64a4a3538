"""Schedules in the head: one job a tick, missed ticks, overlaps, and what ends, changes and restores do to them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from osqueue import limits
from osqueue.core.context import ReductionContext, no_ticks
from osqueue.core.encoding import encode, encode_head
from osqueue.core.job_ops import (
    AbortJobs,
    CancelJob,
    CompleteJobs,
    Completion,
    FailedAttempt,
    FailJobs,
    JobSpec,
    LeaseRef,
    ReleaseJobs,
)
from osqueue.core.ops import Code
from osqueue.core.queue_ops import ChangeSchedule, ChangeSettings, RedriveJobs, RunTimers
from osqueue.core.restore import reset_clock
from osqueue.core.rows import BodyRef
from osqueue.core.scheduling import SHARED, of_a_new_life, schedule_weight
from osqueue.core.state import JobRecord, LeaseRecord, ScheduleRow
from osqueue.core.timers import has_due_timers, next_due_ms
from tests.support.machines import NOON_MS
from tests.support.shard import Shard

HOUR = limits.HOUR_MS
DAY = limits.DAY_MS
SPEC = encode(JobSpec(b"", b"", kind="report"))


class Blind(Shard):
    """A shard whose committer knows no time zones."""

    def context(self, commit: bytes, chance: int, blocks: Any) -> ReductionContext:
        return ReductionContext(self.now, commit, chance, blocks, ticks=no_ticks)


def row(name: str = "nightly", **fields: Any) -> ScheduleRow:
    """A schedule, by the hour unless it says otherwise."""
    wished = {"every_ms": HOUR, "job": SPEC, "payload": b"1"} | fields
    return ScheduleRow(name, **wished)


def put(shard: Shard, name: str = "nightly", **fields: Any) -> Code:
    return shard.apply(ChangeSchedule(name, row(name, **fields)))[0].code


def sweep(shard: Shard, later_ms: int = 0) -> None:
    """Somebody commits, so much later."""
    shard.now += later_ms
    shard.apply(RunTimers())


def there(shard: Shard, name: str = "nightly") -> ScheduleRow:
    (found,) = [each for each in shard.state.schedules if each.name == name]
    return found


def jobs(shard: Shard) -> list[JobRecord]:
    """All that wait."""
    return [
        job for lane in shard.state.lanes for job in shard.jobs(lane.backlog, set(shard.state.tombstones))
    ]


def hours(found: list[JobRecord]) -> list[float]:
    """Their ticks, in hours after noon."""
    return [(job.scheduled_ms - NOON_MS) / HOUR for job in found]


def refs(leases: tuple[LeaseRecord, ...]) -> tuple[LeaseRef, ...]:
    return tuple(LeaseRef(each.job.key, each.token) for each in leases)


def complete(shard: Shard) -> None:
    """Run and complete all that waits."""
    items = tuple(Completion(each.job.key, each.token) for each in shard.claim(1_000))
    shard.apply(CompleteJobs(items))


def test_a_head_without_schedules_has_no_bytes_for_them() -> None:
    shard = Shard()
    shard.enqueue()
    assert b"schedules" not in encode_head(shard.state)


def test_a_tick_makes_one_job_whoever_commits_and_however_often() -> None:
    shard = Shard()
    assert put(shard) == Code.OK
    assert there(shard).next_ms == NOON_MS + HOUR
    sweep(shard, HOUR - 1)
    assert jobs(shard) == []
    sweep(shard, 1)
    sweep(shard)
    sweep(shard, 10)
    (job,) = jobs(shard)
    assert (job.kind, job.payload, job.schedule, hours([job])) == ("report", b"1", "nightly", [1])
    assert there(shard).next_ms == NOON_MS + 2 * HOUR


def test_any_commit_ticks_and_only_one_that_is_due_is_wanted() -> None:
    shard = Shard()
    put(shard)
    assert next_due_ms(shard.state) == NOON_MS + HOUR
    assert not has_due_timers(shard.state, NOON_MS + HOUR - 1)
    assert has_due_timers(shard.state, NOON_MS + HOUR)
    shard.now += HOUR
    (lease,) = shard.claim()
    assert lease.job.schedule == "nightly"


def test_the_key_of_a_tick_s_job_is_of_the_first_shard_and_nobody_else_s() -> None:
    shard = Shard()
    for at in range(40):
        put(shard, f"each-{at}", missed="all", every_ms=limits.MINUTE_MS)
    sweep(shard, HOUR)
    found = jobs(shard)
    assert len({job.key for job in found}) == len(found) == 1_020
    assert {(job.key[15], job.key[6] >> 4, job.key[8] >> 6) for job in found} == {(0, 7, 2)}


@pytest.mark.parametrize(("missed", "made"), [("once", [5]), ("all", [1, 2, 3, 4, 5]), ("skip", [])])
def test_missed_ticks_go_by_their_policy(missed: str, made: list[float]) -> None:
    shard = Shard()
    put(shard, missed=missed)
    sweep(shard, 5 * HOUR + 30 * limits.MINUTE_MS)
    assert hours(jobs(shard)) == made
    assert there(shard).next_ms == NOON_MS + 6 * HOUR
    complete(shard)
    sweep(shard, 30 * limits.MINUTE_MS)
    assert hours(jobs(shard)) == [6]


def test_a_tick_is_late_only_after_two_rounds_of_a_reaper() -> None:
    for late, made in ((limits.TICK_LATE_MS - 1, 1), (limits.TICK_LATE_MS, 0)):
        shard = Shard()
        put(shard, missed="skip")
        sweep(shard, HOUR + late)
        assert len(jobs(shard)) == made


def test_of_the_missed_ticks_of_a_year_a_hundred_are_made_up_for() -> None:
    shard = Shard()
    put(shard, missed="all")
    sweep(shard, 365 * DAY)
    assert hours(jobs(shard)) == list(range(365 * 24 - 99, 365 * 24 + 1))
    sweep(shard)
    assert len(jobs(shard)) == 100


def test_a_commit_makes_about_a_thousand_jobs_and_the_next_one_goes_on() -> None:
    shard = Shard(checked=False)
    for at in range(15):
        put(shard, f"each-{at:02}", missed="all", every_ms=limits.MINUTE_MS)
    sweep(shard, DAY)
    assert len(jobs(shard)) == 1_000
    sweep(shard)
    assert len(jobs(shard)) == 1_500


def test_time_that_goes_back_ticks_nothing_twice() -> None:
    shard = Shard()
    put(shard)
    sweep(shard, HOUR)
    sweep(shard, -2 * HOUR)
    sweep(shard, 2 * HOUR)
    assert hours(jobs(shard)) == [1]


def test_a_clock_that_is_set_back_by_the_doctor_ticks_again_what_had_come_too_early() -> None:
    shard = Shard()
    put(shard)
    sweep(shard, 365 * DAY)
    complete(shard)
    shard.now = NOON_MS + HOUR // 2
    shard.state = reset_clock(shard.state, shard.now, bytes(16))
    sweep(shard, HOUR)
    assert hours(jobs(shard)) == [1]
    assert there(shard).next_ms == NOON_MS + 2 * HOUR


# ── Overlap ──────────────────────────────────────────────────────────────────
def test_a_tick_is_passed_over_while_a_job_lives() -> None:
    shard = Shard()
    put(shard, overlap="skip", missed="all")
    sweep(shard, 3 * HOUR)
    assert hours(jobs(shard)) == [1]
    shard.claim()
    sweep(shard, HOUR // 2 + limits.LEASE_MS_DEFAULT)  # it stalls, and waits again
    sweep(shard, HOUR)
    assert hours(jobs(shard)) == [1]
    complete(shard)
    assert there(shard).living == 0
    sweep(shard, HOUR)
    assert hours(jobs(shard)) == [5]


def test_the_latest_tick_is_remembered_until_the_last_job_ends() -> None:
    shard = Shard()
    put(shard, overlap="queue")
    sweep(shard, HOUR)
    leases = shard.claim(lease_ms=12 * HOUR)
    sweep(shard, HOUR)
    sweep(shard, HOUR)
    assert (hours(jobs(shard)), there(shard).waiting_ms) == ([], NOON_MS + 3 * HOUR)
    shard.apply(CompleteJobs(tuple(Completion(each.key, each.token) for each in refs(leases))))
    assert (hours(jobs(shard)), there(shard).waiting_ms) == ([3], 0)
    complete(shard)
    assert (jobs(shard), there(shard).living) == ([], 0)


def ends(shard: Shard, how: str) -> None:
    """End the one job that waits."""
    (job,) = jobs(shard)
    if how == "cancel":
        shard.apply(CancelJob(job.key))
        return
    leases = shard.claim(lease_ms=limits.LEASE_MS_DEFAULT)
    held = refs(leases)
    match how:
        case "complete":
            shard.apply(CompleteJobs(tuple(Completion(each.key, each.token) for each in held)))
        case "abort":
            shard.apply(AbortJobs(held))
        case "fail":
            shard.apply(
                FailJobs(tuple(FailedAttempt(each.key, each.token, "no", final=True) for each in held))
            )
        case "stall":
            shard.apply(CancelJob(job.key))
            sweep(shard, limits.LEASE_MS_DEFAULT)


@pytest.mark.parametrize("how", ["complete", "cancel", "abort", "fail", "stall"])
def test_whatever_ends_a_job_takes_it_off_the_count(how: str) -> None:
    shard = Shard()
    put(shard, overlap="skip")
    sweep(shard, HOUR)
    assert there(shard).living == 1
    ends(shard, how)
    assert there(shard).living == 0


def test_a_release_and_a_retry_leave_it_alive() -> None:
    shard = Shard()
    put(shard)
    sweep(shard, HOUR)
    shard.apply(ReleaseJobs(refs(shard.claim()), 5))
    sweep(shard, 10)
    (held,) = refs(shard.claim())
    shard.apply(FailJobs((FailedAttempt(held.key, held.token, "no"),)))
    assert there(shard).living == 1


def test_a_dead_letter_is_no_living_job_and_a_redriven_one_is() -> None:
    shard = Shard()
    put(shard, overlap="skip")
    sweep(shard, HOUR)
    ends(shard, "fail")
    shard.apply(RedriveJobs(10, 10))
    assert there(shard).living == 1
    ends(shard, "complete")
    assert there(shard).living == 0


def test_a_dead_letter_that_is_let_go_changes_no_count() -> None:
    shard = Shard()
    put(shard, overlap="skip")
    sweep(shard, HOUR)
    ends(shard, "fail")
    sweep(shard, limits.DEAD_TTL_MS_DEFAULT + HOUR)
    assert (len(jobs(shard)), there(shard).living) == (1, 1)  # the tick that has come meanwhile


def test_a_job_that_lies_in_a_segment_counts_as_well() -> None:
    shard = Shard()
    put(shard, missed="all", payload=b"x" * 250)
    sweep(shard, 100 * HOUR)
    shard.enqueue(800, kind="report", payload=b"y" * 900)
    put(shard, "often", missed="all", every_ms=limits.MINUTE_MS, payload=b"z" * 250)
    sweep(shard, HOUR // 2)
    shard.enqueue(800, kind="report", payload=b"y" * 900)
    assert any(lane.backlog.spans for lane in shard.state.lanes)
    before = there(shard).living, there(shard, "often").living
    assert before == (100, 30)
    for _ in range(20):
        complete(shard)
    assert [there(shard, name).living for name in ("nightly", "often")] == [0, 0]


# ── Changes ──────────────────────────────────────────────────────────────────
def test_the_same_words_again_change_nothing() -> None:
    shard = Shard()
    put(shard)
    before = shard.state
    assert put(shard) == Code.OK
    assert shard.last is not None
    assert not shard.last.changed
    assert shard.state is before


def test_a_body_that_holds_the_same_is_the_same_whenever_it_was_written() -> None:
    shard = Shard()
    put(shard, payload=BodyRef("bodies/000000000000-00000000000000aa-0" + SHARED, 0, 9, 1))
    put(shard, payload=BodyRef("bodies/000000000001-00000000000000aa-0" + SHARED, 0, 9, 1))
    assert there(shard).payload == BodyRef("bodies/000000000000-00000000000000aa-0" + SHARED, 0, 9, 1)
    put(shard, payload=BodyRef("bodies/000000000001-00000000000000bb-0" + SHARED, 0, 9, 1))
    assert "bb" in str(there(shard).payload)


def test_another_payload_keeps_the_time_and_another_time_begins_now() -> None:
    shard = Shard()
    put(shard)
    shard.now += HOUR // 2
    put(shard, payload=b"2")
    assert (there(shard).next_ms, there(shard).payload) == (NOON_MS + HOUR, b"2")
    shard.now += HOUR // 4
    put(shard, every_ms=limits.MINUTE_MS * 10)
    assert there(shard).next_ms == NOON_MS + 50 * limits.MINUTE_MS
    assert jobs(shard) == []


def test_a_change_at_a_tick_comes_after_it_and_does_not_double_it() -> None:
    shard = Shard()
    put(shard)
    shard.now += HOUR
    put(shard, every_ms=HOUR // 2, payload=b"2")
    sweep(shard)
    assert [(job.payload, *hours([job])) for job in jobs(shard)] == [(b"1", 1)]
    sweep(shard, HOUR // 2)
    assert [(job.payload, *hours([job])) for job in jobs(shard)] == [(b"1", 1), (b"2", 1.5)]


def test_a_name_that_is_used_again_knows_the_jobs_of_before() -> None:
    shard = Shard()
    put(shard, overlap="skip")
    sweep(shard, HOUR)
    leases = shard.claim(lease_ms=12 * HOUR)
    assert shard.apply(ChangeSchedule("nightly", removed=True))[0].code == Code.OK
    assert shard.apply(ChangeSchedule("nightly", removed=True))[0].code == Code.NOT_FOUND
    sweep(shard, 2 * HOUR)
    put(shard, overlap="skip")
    sweep(shard, HOUR)
    assert jobs(shard) == []
    shard.apply(CompleteJobs(tuple(Completion(each.key, each.token) for each in refs(leases))))
    sweep(shard, HOUR)
    assert hours(jobs(shard)) == [5]


def test_nothing_is_left_of_a_removed_one_when_its_last_job_has_ended() -> None:
    shard = Shard()
    put(shard)
    sweep(shard, HOUR)
    shard.apply(ChangeSchedule("nightly", removed=True))
    complete(shard)
    assert shard.state.schedules == ()


def test_a_dead_letter_of_a_removed_schedule_is_nobody_s_when_it_is_redriven() -> None:
    shard = Shard()
    put(shard, overlap="skip")
    sweep(shard, HOUR)
    ends(shard, "fail")
    shard.apply(ChangeSchedule("nightly", removed=True))
    sweep(shard)
    shard.apply(RedriveJobs(10, 10))
    put(shard, overlap="skip")
    assert [job.schedule for job in jobs(shard)] == [""]
    ends(shard, "complete")
    assert there(shard).living == 0


def test_a_paused_schedule_forgets_the_ticks_of_its_pause() -> None:
    shard = Shard()
    put(shard, missed="all")
    shard.apply(ChangeSchedule("nightly", paused=True))
    assert next_due_ms(shard.state) is None
    sweep(shard, 3 * HOUR + 1)
    assert put(shard, missed="all") == Code.OK
    assert there(shard).paused
    shard.apply(ChangeSchedule("nightly", paused=False))
    assert (jobs(shard), there(shard).next_ms) == ([], NOON_MS + 4 * HOUR)


def test_a_paused_queue_ticks_and_its_jobs_wait() -> None:
    shard = Shard()
    put(shard)
    shard.apply(ChangeSettings(paused=True))
    sweep(shard, HOUR)
    assert len(jobs(shard)) == 1


def test_run_now_makes_a_job_beside_the_ticks_and_once_for_each_key() -> None:
    shard = Shard()
    put(shard, overlap="skip")
    key = shard.key()
    assert shard.apply(ChangeSchedule("nightly", run=key))[0].code == Code.QUEUED
    assert shard.apply(ChangeSchedule("nightly", run=key))[0].code == Code.DUPLICATE
    (job,) = jobs(shard)
    assert (job.key, job.schedule, there(shard).living) == (key, "nightly", 1)
    assert shard.apply(ChangeSchedule("other", run=shard.key()))[0].code == Code.NOT_FOUND


# ── Limits ───────────────────────────────────────────────────────────────────
def test_about_a_hundred_schedules_fit_and_one_more_is_refused() -> None:
    shard = Shard()
    count = 0
    while (
        put(
            shard,
            f"schedule-{count:03}",
            payload=b"p" * 60,
            cron="0 3 * * *",
            zone="Europe/Berlin",
            every_ms=0,
        )
        == Code.OK
    ):
        count += 1
    assert 80 <= count <= 130
    assert sum(map(schedule_weight, shard.state.schedules)) <= limits.SCHEDULES_BYTES_MAX
    assert put(shard, "schedule-000", payload=b"q" * 60) == Code.OK


def test_the_weight_of_a_row_is_never_less_than_its_bytes() -> None:
    most = row(living=2**31, next_ms=2**45, last_ms=2**45, waiting_ms=2**45)
    assert len(encode(most)) <= schedule_weight(row())


def test_a_tick_finds_a_lane_however_many_kinds_wait() -> None:
    shard = Shard()
    for at in range(2 * limits.LANES_MAX):
        shard.enqueue(kind=f"kind-{at}")
    put(shard)
    sweep(shard, HOUR)
    assert there(shard).next_ms == NOON_MS + 2 * HOUR
    assert hours([job for job in jobs(shard) if job.schedule]) == [1]


def test_who_knows_no_time_zone_leaves_a_schedule_to_others() -> None:
    shard = Blind()
    assert put(shard, cron="30 14 * * *", zone="Europe/Berlin", every_ms=0) == Code.OK
    sweep(shard, 8 * HOUR)
    assert jobs(shard) == []
    assert has_due_timers(shard.state, shard.now)
    seeing = Shard()
    seeing.state, seeing.now = shard.state, shard.now
    seeing.now += 1
    seeing.apply(RunTimers(), env="other")
    (job,) = jobs(seeing)
    assert datetime.fromtimestamp(job.scheduled_ms / 1000, UTC).strftime("%H:%M") == "13:30"


def test_a_schedule_whose_body_may_be_gone_is_staged_again() -> None:
    shard = Shard()
    shard.apply(RunTimers())
    shard.enqueue()
    shard.state = replace(shard.state, gc_floor=1)
    assert (
        put(shard, payload=BodyRef("bodies/000000000000-00000000000000aa-0" + SHARED, 0, 9, 1)) == Code.STALE
    )


# ── A head made anew ─────────────────────────────────────────────────────────
def test_a_restored_head_counts_its_jobs_and_has_no_tick_behind_it_that_is_to_come() -> None:
    body = BodyRef("bodies/000000000000-00000000000000aa-0" + SHARED, 0, 9, 1)
    rows = (
        row("ahead", living=3, last_ms=NOON_MS + HOUR, next_ms=NOON_MS + 2 * HOUR, waiting_ms=NOON_MS + HOUR),
        row("gone", payload=body, living=1, last_ms=NOON_MS - HOUR),
        row("sound", living=0, last_ms=NOON_MS - HOUR, next_ms=NOON_MS + HOUR),
    )
    ahead, gone, sound = of_a_new_life(rows, {"gone": 2, "sound": 1}, {body.name}, NOON_MS)
    assert (ahead.living, ahead.last_ms, ahead.next_ms, ahead.waiting_ms) == (0, NOON_MS, NOON_MS, 0)
    assert (gone.living, gone.every_ms, gone.payload) == (2, 0, b"")
    assert (sound.living, sound.last_ms, sound.payload) == (1, NOON_MS - HOUR, b"1")
