"""Pauses: how they end, by themselves and otherwise, judged by the head's time."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue.core.claim_search import has_claimable
from osqueue.core.context import ReductionContext
from osqueue.core.job_ops import ClaimJobs, LeaseRef, ReleaseJobs
from osqueue.core.ops import Code
from osqueue.core.pauses import ENDLESS_MS, lasting, next_end_ms, timed, without_ended
from osqueue.core.queue_ops import ChangeSettings, LengthenPauses, RunTimers
from osqueue.core.reduce import reduce
from osqueue.core.settings import KindSettings, QueueSettings
from osqueue.core.timers import has_due_timers, next_due_ms
from tests.support.shard import Shard


@pytest.fixture
def shard() -> Shard:
    return Shard()


def claim(shard: Shard, limit: int = 10) -> Any:
    return shard.apply(ClaimJobs(limit, "ada", 30_000))[0]


def kinds(**rows: dict[str, Any]) -> ChangeSettings:
    return ChangeSettings(kinds=tuple(KindSettings(kind, **row) for kind, row in rows.items()))


def test_a_pause_of_the_queue_ends_by_itself(shard: Shard) -> None:
    shard.enqueue(3)
    shard.apply(ChangeSettings(paused_until_ms=-600_000))
    ends = shard.now + 600_000
    assert (shard.state.settings.paused, shard.state.settings.paused_until_ms) == (True, ends)
    assert next_due_ms(shard.state) == ends
    shard.now = ends - 1
    assert claim(shard).code == Code.PAUSED
    assert not has_due_timers(shard.state, shard.now)
    shard.now = ends
    assert has_due_timers(shard.state, shard.now)
    assert not has_claimable(shard.state)  # not as it stands: a claim commits that it has ended
    assert len(claim(shard).leases) == 3
    assert shard.state.settings == QueueSettings()
    assert next_end_ms(shard.state.settings) == ENDLESS_MS


def test_a_pause_of_a_kind_ends_and_leaves_nothing_behind(shard: Shard) -> None:
    shard.enqueue(2, kind="send")
    shard.enqueue(1, kind="other")
    shard.apply(kinds(send={"paused_until_ms": shard.now + 5_000}, other={"max_attempts": 2}))
    assert [lease.job.kind for lease in claim(shard).leases] == ["other"]
    shard.now += 5_000
    assert len(claim(shard).leases) == 2
    assert shard.state.settings.kinds == (KindSettings("other", max_attempts=2),)


def test_a_pass_ends_a_pause_where_nobody_claims(shard: Shard) -> None:
    shard.apply(kinds(send={"paused": True, "paused_until_ms": -1_000}))
    shard.now += 1_000
    shard.apply(RunTimers())
    assert shard.state.settings.kinds == ()


def test_what_else_a_kind_has_of_its_own_outlives_its_pause(shard: Shard) -> None:
    shard.apply(kinds(send={"paused_until_ms": -1_000, "priority": 1}))
    shard.now += 1_000
    shard.apply(RunTimers())
    assert shard.state.settings.kinds == (KindSettings("send", priority=1),)


@pytest.mark.parametrize(
    ("changes", "paused", "left"),
    [
        ([{"paused": True}], True, 0),
        ([{"paused_until_ms": -1}], True, 1),
        ([{"paused": True}, {"paused_until_ms": -7}], True, 7),  # the latest word counts
        ([{"paused_until_ms": -7}, {"paused": True}], True, 0),
        ([{"paused_until_ms": -7}, {"paused": False}], False, 0),
        ([{"paused": False, "paused_until_ms": -7}], False, 0),
        ([{"paused_until_ms": -7}, {"max_attempts": 2}], True, 7),
    ],
)
def test_the_latest_word_on_a_pause_counts(
    shard: Shard, changes: list[dict[str, Any]], paused: bool, left: int
) -> None:
    for change in changes:
        shard.apply(ChangeSettings(**change), kinds(send=change))
    settings = shard.state.settings
    (row,) = settings.kinds
    ends = shard.now + left if left else 0
    assert (settings.paused, settings.paused_until_ms) == (paused, ends)
    assert (row.paused, row.paused_until_ms or 0) == (paused, ends)


def test_an_end_that_has_passed_is_no_pause(shard: Shard) -> None:
    shard.enqueue(1)
    shard.apply(ChangeSettings(paused_until_ms=shard.now - 5))
    assert len(claim(shard).leases) == 1


def test_a_pause_for_so_long_counts_from_the_latest_that_the_clock_may_show(shard: Shard) -> None:
    shard.enqueue(1)
    context = ReductionContext(shard.now, bytes(16), 0, latest_ms=shard.now + 900)
    done = reduce(shard.state, [shard.request(ChangeSettings(paused_until_ms=-1_000))], context)
    assert done.state.settings.paused_until_ms == shard.now + 1_900


def test_settings_without_pauses_that_end_are_themselves() -> None:
    settings = QueueSettings(paused=True, kinds=(KindSettings("a", paused=True),))
    assert without_ended(settings, ENDLESS_MS - 1) is settings
    timed = QueueSettings(paused=True, paused_until_ms=5, kinds=(KindSettings("a", paused_until_ms=9),))
    assert without_ended(timed, 5).kinds == timed.kinds
    assert lasting(timed) == QueueSettings()


# ── By a worker's word ───────────────────────────────────────────────────────
def throttle(shard: Shard, lease: Any, ms: int = 30_000, **more: Any) -> Any:
    held = (LeaseRef(lease.job.key, lease.token),)
    return shard.apply(ReleaseJobs(held, pause_ms=ms, **more))[0]


def test_a_job_that_is_throttled_goes_back_and_its_kind_rests(shard: Shard) -> None:
    shard.enqueue(3, kind="send")
    shard.enqueue(1, kind="other")
    lease = claim(shard, 1).leases[0]
    assert throttle(shard, lease, why="429 from api.example").code == Code.OK
    assert [each.job.kind for each in claim(shard).leases] == ["other"]
    assert claim(shard).runs == ((Code.KINDS_PAUSED, 30_000),)
    shard.now += 30_000
    first, *_ = claim(shard).leases
    assert (first.job.key, first.job.attempt, first.job.run) == (lease.job.key, 1, 2)
    (past,) = first.job.history
    assert (past.outcome, past.error) == ("released", "429 from api.example")


def test_the_whole_queue_rests_where_a_worker_says_so(shard: Shard) -> None:
    shard.enqueue(2)
    throttle(shard, claim(shard, 1).leases[0], whole=True)
    assert claim(shard).runs == ((Code.PAUSED, 30_000),)
    assert shard.state.settings.kinds == ()


def test_a_worker_without_its_lease_pauses_nothing(shard: Shard) -> None:
    shard.enqueue(1, kind="send")
    lease = claim(shard).leases[0]
    shard.now += 30_001
    assert throttle(shard, lease).code == Code.LEASE_LOST
    assert throttle(shard, lease, whole=True).code == Code.LEASE_LOST
    assert shard.state.settings == QueueSettings()


@pytest.mark.parametrize("before", [{"paused": True}, {"paused_until_ms": -90_000}])
def test_no_worker_makes_a_pause_shorter(shard: Shard, before: dict[str, Any]) -> None:
    shard.enqueue(1, kind="send")
    lease = claim(shard).leases[0]
    shard.apply(ChangeSettings(**before), kinds(send=before))
    known = shard.state.settings
    throttle(shard, lease)
    shard.apply(LengthenPauses(((None, shard.now + 30_000), ("send", shard.now + 30_000))))
    assert shard.state.settings == known


def test_a_worker_makes_a_pause_longer(shard: Shard) -> None:
    shard.enqueue(1, kind="send")
    lease = claim(shard).leases[0]
    shard.apply(kinds(send={"paused_until_ms": -1_000, "priority": 3}))
    throttle(shard, lease)
    (row,) = shard.state.settings.kinds
    assert (row.priority, row.paused_until_ms) == (3, shard.now + 30_000)


def test_where_no_more_kinds_have_settings_the_job_alone_waits(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("osqueue.limits.KINDS_MAX", 1)
    shard.apply(kinds(other={"priority": 1}))
    shard.enqueue(2, kind="send")
    lease = claim(shard, 1).leases[0]
    throttle(shard, lease)
    assert shard.where(lease.job.key) == "scheduled"
    assert len(claim(shard).leases) == 1
    assert len(shard.state.settings.kinds) == 1


def test_pauses_of_another_shard_are_taken_over_while_they_last(shard: Shard) -> None:
    shard.enqueue(1, kind="send")
    shard.apply(LengthenPauses(((None, shard.now), ("send", shard.now + 5_000))))
    assert timed(shard.state.settings) == (("send", shard.now + 5_000),)
    before = shard.state
    shard.apply(LengthenPauses((("send", shard.now + 4_000),)))
    assert shard.state is before


def test_a_job_is_given_back_until_a_time(shard: Shard) -> None:
    shard.enqueue(1)
    lease = claim(shard).leases[0]
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),), at_ms=shard.now + 7_000))
    assert claim(shard).code == Code.EMPTY
    shard.now += 7_000
    lease = claim(shard).leases[0]
    shard.apply(ReleaseJobs((LeaseRef(lease.job.key, lease.token),), at_ms=shard.now - 7_000))
    assert claim(shard).leases[0].job.attempt == 1
