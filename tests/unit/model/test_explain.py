"""The story of a job, in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osqueue.model.explain import (
    ARCHIVE,
    JobContext,
    Story,
    distance_text,
    duration_text,
    explain_job,
    iso,
    past_steps,
)
from osqueue.model.job import Attempt, Job

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def job(**more: Any) -> Job:
    fields: dict[str, Any] = {
        "job_id": "x",
        "state": "queued",
        "kind": None,
        "priority": 5,
        "enqueued_at": NOON,
        "attempt": 0,
        "max_attempts": 3,
        "payload_bytes": 10,
    }
    return Job(**{**fields, **more})


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def told(more: dict[str, Any], now: float, **about: Any) -> Story:
    return explain_job(job(**more), JobContext("emails", dead_ttl=3600, **about), after(now))


LEASED = {"state": "processing", "attempt": 1, "worker": "w", "started_at": after(1), "expires_at": after(31)}
DEAD = {
    "state": "failed",
    "attempt": 3,
    "attempts": (Attempt(3, "w", after(1), after(2), "failed", "boom 7", "OSError"),),
}
DONE = {
    "state": "completed",
    "attempt": 1,
    "attempts": (Attempt(1, "w", after(1), after(3), "completed", None),),
    "finished_at": after(3),
    "expires_at": after(63),
}


@pytest.mark.parametrize(
    ("more", "now", "about", "present", "following"),
    [
        (
            {},
            5,
            {"ahead": 0},
            "queued, and the next to be claimed",
            "attempt 1 of 3, as soon as a worker claims it",
        ),
        ({"kind": "k"}, 5, {"ahead": 1_234}, "behind about 1,234 jobs", "a worker that takes jobs of kind k"),
        ({}, 5, {"ahead": 1, "paused": True}, "the queue is paused", "until somebody resumes the queue"),
        (
            {"state": "scheduled", "due_at": after(90)},
            30,
            {},
            "waiting for its time until 2030-01-01T12:01:30.000Z (in 60 s)",
            "attempt 1 of 3, when a worker claims it after 2030-01-01T12:01:30.000Z",
        ),
        (
            {"state": "failing", "attempt": 1, "due_at": after(90)},
            30,
            {"paused": True},
            "waiting for retry until 2030-01-01T12:01:30.000Z (in 60 s); the queue is paused",
            "attempt 2 of 3",
        ),
        (
            {"state": "failing", "attempt": 1, "due_at": after(9)},
            30,
            {},
            "due since",
            "the next write to the queue",
        ),
        (
            LEASED,
            11,
            {},
            "leased by w until 2030-01-01T12:00:31.000Z (in 20 s), no heartbeat yet",
            "goes back to",
        ),
        (
            {**LEASED, "heartbeat_at": after(6)},
            11,
            {},
            "last heartbeat 2030-01-01T12:00:06.000Z (5 s ago)",
            "goes",
        ),
        ({**LEASED, "attempt": 3}, 11, {}, "(attempt 3 of 3)", "is dead: it has no attempts left"),
        ({**LEASED, "cancel_requested": True}, 11, {}, "a cancel was requested", "is cancelled"),
        (
            LEASED,
            41,
            {},
            "the lease of w ended 2030-01-01T12:00:31.000Z (10 s ago)",
            "or the next reap, the job goes",
        ),
        (
            DEAD,
            62,
            {},
            "a dead letter since 2030-01-01T12:00:02.000Z (60 s ago)",
            "2030-01-01T13:00:02.000Z (in 59 min)",
        ),
        (DEAD, 5_000, {}, "the last error was OSError: boom 7 (fingerprint ", "the next reap lets it go"),
        (
            DONE,
            33,
            {},
            "completed 2030-01-01T12:00:03.000Z (30 s ago) by w; its result is kept until",
            "nothing",
        ),
        (DONE, 99, {}, "its result is not kept any more", "nothing; the archive has its record"),
        (
            {"state": "cancelled", "finished_at": after(3), "expires_at": after(63)},
            5,
            {},
            "on request, while no worker held it",
            "nothing",
        ),
        (
            {**DONE, "state": "cancelled"},
            5,
            {"why": "gave up"},
            "by its worker w: gave up",
            "nothing",
        ),
        (DONE, 99, {"source": ARCHIVE}, "the queue has forgotten it", "only the archive has its record"),
        (
            {**DEAD, "finished_at": after(2)},
            99,
            {"source": ARCHIVE},
            "failed for good 2030-01-01T12:00:02.000Z (97 s ago); the last error was OSError: boom 7",
            "only the archive",
        ),
    ],
)
def test_it_says_how_the_job_stands_and_what_comes_next(
    more: dict[str, Any], now: float, about: dict[str, Any], present: str, following: str
) -> None:
    story = told(more, now, **about)
    assert present in story.now
    assert following in story.next


def test_the_past_tells_every_lease() -> None:
    attempts = (
        Attempt(3, "a", after(1), after(2.5), "failed", "boom"),
        Attempt(4, "b", after(4), after(34), "stalled", None),
        Attempt(5, "b", after(36), after(70), "stalled", None, None, after(40)),
        Attempt(6, "b", after(72), after(102), "stalled", None, None, after(72)),
        Attempt(7, "c", after(104), after(105), "released", None),
        Attempt(8, "c", after(106), after(107), "failed", "no", "ValueError"),
        Attempt(9, "c", after(108), after(109), "released", None),
        Attempt(10, "c", after(110), after(111), "cancelled", None),
    )
    words = [
        step.what for step in past_steps(job(kind="k", attempt=5, attempts=attempts, id="o-7"), after(90))
    ]
    assert words == [
        "enqueued under the id 'o-7' (kind k, priority 5, 10 bytes), not to be claimed before 2030-01-01T12:01:30.000Z",
        "(what came before, up to run 2, is not shown)",
        "lease 3: claimed by a",
        "lease 3: failed after 1.5 s: boom",
        "lease 4: claimed by b",
        "lease 4: stalled: no heartbeat came, the lease ended after 30 s",
        "lease 5: claimed by b",
        "lease 5: stalled: no heartbeat came, the lease ended after 34 s (last heartbeat 2030-01-01T12:00:40.000Z)",
        "lease 6: claimed by b",
        "lease 6: stalled: no heartbeat came, the lease ended after 30 s (it never beat)",
        "lease 7: claimed by c",
        "lease 7: given back after 1 s; the attempt does not count",
        "lease 8: claimed by c",
        "lease 8: failed after 1 s: ValueError: no",
        "lease 9: claimed by c",
        "lease 9: given back after 1 s; the attempt does not count",
        "lease 10: claimed by c",
        "lease 10: cancelled by its worker after 1 s",
    ]


def test_a_lease_after_a_restore_is_the_first_one_all_the_same() -> None:
    """A restore raises the numbers of leases far above any there can have been."""
    attempts = (Attempt(100_000_004, "a", after(1), after(2), "completed", None),)
    words = [
        step.what
        for step in past_steps(job(state="completed", attempt=1, attempts=attempts, finished_at=after(2)))
    ]
    assert words[1:] == [
        "lease 100000004: claimed by a",
        "lease 100000004: completed after 1 s",
        "completed",
    ]


def test_a_job_with_more_failures_than_attempts_used_was_redriven() -> None:
    assert "it was redriven" in told({**DEAD, "state": "queued", "attempt": 0}, 5, ahead=0).now
    failing = {**DEAD, "state": "failing", "attempt": 1, "due_at": after(9)}
    assert "it was redriven" not in told(failing, 5).now


def test_whatever_an_error_says_takes_one_line() -> None:
    attempts = (Attempt(1, "w", after(1), after(2), "failed", "two\nlines\r\x0band more"),)
    story = told({"state": "failed", "attempts": attempts, "id": "order-7"}, 5)
    lines = str(story).splitlines()
    assert len(lines) == 6
    assert lines[0] == "job x (order-7) of queue emails: failed"
    assert lines[3] == "  2030-01-01T12:00:02.000Z  lease 1: failed after 1 s: two lines  and more, 3 s ago"


def test_spans_read_like_speech() -> None:
    assert [duration_text(s) for s in (0.05, 1.5, 90, 150, 7200, 200_000)] == [
        "50 ms",
        "1.5 s",
        "90 s",
        "2.5 min",
        "2 h",
        "2.3 d",
    ]
    assert (distance_text(after(9), NOON), distance_text(NOON, after(9))) == ("in 9 s", "9 s ago")
    assert iso(NOON.astimezone()) == "2030-01-01T12:00:00.000Z"
