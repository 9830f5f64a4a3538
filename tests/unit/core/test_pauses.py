"""Pauses: how they end, by themselves and otherwise, judged by the head's time."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue.core.context import ReductionContext
from osqueue.core.job_ops import ClaimJobs
from osqueue.core.ops import Code
from osqueue.core.pauses import ENDLESS_MS, lasting, next_end_ms, without_ended
from osqueue.core.queue_ops import ChangeSettings, RunTimers
from osqueue.core.reduce import has_claimable, reduce
from osqueue.core.state import KindSettings, QueueSettings
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
