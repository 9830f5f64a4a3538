"""Schedules, over every store and API, blocking and async."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osqueue import NotFound, Rejected, Throttled

HOUR = 3_600_000


def until_next(clock: Any, schedule: Any) -> None:
    """Move the clock to a schedule's next tick."""
    clock.shift_ms += round((schedule.next_at.timestamp() * 1000) - clock.now_ms()) + 1_500


def test_a_tick_makes_a_job_with_its_payload_and_options(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    made = q.schedule(
        "report", every=900, payload={"to": "ada"}, kind="report", priority=2, headers={"a": "b"}
    )
    assert (made.every, made.options["kind"], made.living) == (900, "report", 0)
    assert list(q.claim()) == []
    until_next(clock, made)
    (lease,) = q.claim(5)
    assert (lease.payload, lease.kind, lease.priority, lease.headers) == (
        {"to": "ada"},
        "report",
        2,
        {"a": "b"},
    )
    assert (lease.schedule, lease.scheduled_at) == ("report", made.next_at)
    assert [each.living for each in q.schedules()] == [1]
    lease.complete()
    (after,) = q.schedules()
    assert (after.living, after.next_at) == (0, made.next_at + timedelta(seconds=900))
    assert list(q.claim()) == []


def test_a_large_payload_is_shared_by_its_jobs(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    text = "x" * 5_000
    made = q.schedule("big", every=3600, payload=text, missed="all")
    clock.shift_ms += 3 * HOUR
    leases = q.claim(10)
    assert [lease.payload for lease in leases] == [text] * len(leases)
    assert 3 <= len(leases) <= 4
    assert made.payload_bytes == 5_002
    q.complete_many(list(leases))


def test_missed_ticks_and_overlaps_go_by_their_policy(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    for missed in ("once", "all", "skip"):
        q.schedule(missed, "30 * * * *", missed, missed=missed)
    q.schedule("alone", "30 * * * *", "alone", missed="all", overlap="skip")
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    clock.shift_ms += (50 - now.minute) % 60 * 60_000 + 3 * HOUR  # twenty minutes after a tick
    found = [lease.payload for lease in q.claim(50)]
    assert {name: found.count(name) for name in ("once", "skip", "alone")} == {
        "once": 1,
        "skip": 0,
        "alone": 1,
    }
    assert 3 <= found.count("all") <= 4


def test_a_reaper_serves_the_ticks_of_a_queue_that_nobody_uses(
    opened: Callable[..., Any], clock: Any
) -> None:
    q = opened()
    until_next(clock, q.schedule("poll", every=3600, payload=1))
    q.reap()
    assert (q.stats()["queued"], q.schedules()[0].living) == (1, 1)


def test_the_same_words_again_change_nothing(opened: Callable[..., Any]) -> None:
    q = opened()
    first = q.schedule("nightly", "0 3 * * *", {"a": 1}, tz="Europe/Berlin")
    commits = q.stats()["commits"]
    assert q.schedule("nightly", "0  3 * * * ", {"a": 1}, tz="Europe/Berlin") == first
    assert q.stats()["commits"] == commits
    again = q.schedule("nightly", "@daily", {"a": 1}, tz="Europe/Berlin")
    assert again.cron == "0 0 * * *"
    assert again.words == "At 00:00 every day, Europe/Berlin"


def test_pause_run_and_remove(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    made = q.schedule("hourly", every=3600, payload=1)
    assert q.pause_schedule("hourly").next_at is None
    done = q.run_schedule("hourly")
    (lease,) = q.claim()
    assert (lease.job_id, lease.schedule) == (done.job_id, "hourly")
    assert "made by schedule 'hourly' for " in str(q.why(lease.job_id))
    lease.complete()
    clock.shift_ms += 5 * HOUR
    assert list(q.claim()) == []
    assert q.resume_schedule("hourly").next_at > made.next_at
    assert q.unschedule("hourly") is True
    assert q.unschedule("hourly") is False
    assert q.schedules() == []
    clock.shift_ms += 5 * HOUR
    assert list(q.claim()) == []


def test_what_is_not_there_is_not_found(opened: Callable[..., Any]) -> None:
    q = opened()
    for call in (q.run_schedule, q.pause_schedule, q.resume_schedule):
        with pytest.raises(NotFound, match="there is none of this name"):
            call("nightly")


@pytest.mark.parametrize(
    ("wish", "field", "words"),
    [
        ({"cron": "0 3 * *"}, "cron", "five fields"),
        ({"cron": "* * * * * *"}, "cron", "Pacer, or Snooze"),
        ({"cron": "0 3 * * *", "tz": "Europe/Atlantis"}, "tz", "tzdata"),
        ({"every": 30}, "every", r"Snooze\(30\)"),
        ({"every": 1e9}, "every", "from 60 to"),
        ({}, "cron", "every=900"),
        ({"cron": "0 3 * * *", "every": 60}, "cron", "every=900"),
        ({"every": 60, "missed": "never"}, "missed", "once, all, skip"),
        ({"every": 60, "overlap": "never"}, "overlap", "allow, skip, queue"),
        ({"every": 60, "delay": 5}, "delay", "says by itself"),
        ({"every": 60, "id": "x"}, "id", "handler"),
        ({"every": 60, "priority": 11}, "priority", "from 0 to 9"),
    ],
)
def test_a_bad_schedule_is_refused_by_its_field(
    opened: Callable[..., Any], wish: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(Rejected, match=words) as refused:
        opened().schedule("bad", **wish)
    assert refused.value.field == field


def test_a_bad_name_is_refused(opened: Callable[..., Any]) -> None:
    for name in ("", "a/b", "x" * 65, "ü"):
        with pytest.raises(Rejected, match="name"):
            opened().schedule(name, every=60)


def test_more_schedules_than_there_is_room_for_are_refused(opened: Callable[..., Any]) -> None:
    q = opened(timeout=2)  # an API is asked again for so long
    words = {f"header-{at}": "x" * 250 for at in range(7)}
    for at in range(8):
        q.schedule(f"schedule-{at}", every=3600, headers=words)
    with pytest.raises(Throttled, match="about a hundred"):
        q.schedule("one-more", every=3600, headers=words)
    assert len(q.schedules()) == 8


def test_more_shards_keep_the_schedules(opened: Callable[..., Any], clock: Any) -> None:
    q = opened()
    made = q.schedule("hourly", every=3600, payload=1)
    q.configure(shards=3)
    until_next(clock, made)
    found: list[Any] = []
    for _ in range(4):
        found += q.claim(5)
    assert [lease.payload for lease in found] == [1]


def test_a_worker_adds_the_schedules_of_its_handlers_once(opened: Callable[..., Any]) -> None:
    q = opened()
    if not hasattr(q, "handler"):
        pytest.skip("no handlers")

    @q.handler(kind="nightly", cron="0 3 * * *", tz="Europe/Berlin", overlap="skip")
    def nightly(job: Any) -> None: ...

    q.run(until_empty=True, signals=False)
    (found,) = q.schedules()
    assert (found.name, found.cron, found.overlap, found.options) == (
        "nightly",
        "0 3 * * *",
        "skip",
        {"kind": "nightly"},
    )
    commits = q.stats()["commits"]
    q.run(until_empty=True, signals=False)
    assert q.stats()["commits"] == commits
