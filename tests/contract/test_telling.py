"""The story of a job and dead letters, over every store, for the blocking queue and the async one alike."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import NotFound, Rejected

DAY = 86_400_000


def dead(q: Any, *errors: str, kind: str | None = None, **options: Any) -> list[str]:
    """Jobs that died of these errors; their ids."""
    ids = [q.enqueue(error, kind=kind, max_attempts=1, **options).job_id for error in errors]
    for lease in q.claim(len(errors), kinds=[kind or ""]):
        lease.fail(lease.payload)
    return ids


# ── Why ──────────────────────────────────────────────────────────────────────
def test_a_story_goes_from_enqueue_to_the_archive(q: Any, clock: Any) -> None:
    done = q.enqueue({"to": "ada"}, id="order-7", kind="welcome", priority=2, delay=60)
    assert "waiting for its time until" in q.why("order-7")
    clock.shift_ms += 63_000
    q.enqueue("first", kind="welcome", priority=1)
    q.claim(kinds=["other"])  # nothing; but time passes
    q.reap()
    assert "queued behind about 1 job" in q.why(done.job_id)
    (lease,) = q.claim(kinds=["welcome"], worker="w0")
    lease.release()
    first, second = q.claim(2, worker="w1")
    second.heartbeat()
    story = q.story("order-7")
    assert (story.state, story.source, story.id) == ("processing", "queue", "order-7")
    assert story.now.startswith("leased by w1 until")
    assert second.fail(ValueError("no 17"), retry_in=600) == "failing"
    assert "waiting for retry until" in q.why("order-7")
    clock.shift_ms += 603_000
    first.complete() if first.seconds_left > 0 else None
    lease = next(each for each in q.claim(2, worker="w2") if each.job_id == done.job_id)
    lease.complete("sent")
    text = q.why("order-7")
    assert "lease 1: failed" in text
    assert "no 17" in text
    assert "completed" in text
    q.reap()
    assert q.story("order-7").source == "queue"
    clock.shift_ms += 2 * DAY
    q.reap()
    assert q.status(done.job_id) is None
    story = q.story(done.job_id)
    assert (story.source, story.state, story.id) == ("archive", "completed", "order-7")
    assert "only the archive has its record" in story.next
    with pytest.raises(NotFound, match="looks through it"):
        q.why("order-7")


def test_the_archive_joins_the_endings_of_a_job_that_was_redriven(q: Any, clock: Any) -> None:
    (job_id,) = dead(q, "boom")
    q.reap()
    assert "a dead letter since" in q.why(job_id)
    assert q.redrive() == 1
    assert "it was redriven" in q.why(job_id)
    q.claim()[0].complete()
    q.reap()
    clock.shift_ms += 2 * DAY
    q.reap()
    outcomes = [each.outcome for each in q.story(job_id).job.attempts]
    assert outcomes == ["failed", "completed"]


def test_a_stalled_attempt_tells_the_last_sign_of_life(q: Any, clock: Any) -> None:
    done = q.enqueue(1)
    (lease,) = q.claim(worker="w", lease=600)
    clock.shift_ms += 11_000
    lease.heartbeat()
    clock.shift_ms += 603_000
    assert "ended" in q.story(done.job_id).now
    q.reap()
    (attempt,) = q.status(done.job_id).attempts
    assert attempt.outcome == "stalled"
    assert (attempt.heartbeat_at - attempt.started_at).total_seconds() >= 10
    assert "(last heartbeat " in q.why(done.job_id)


def test_a_job_in_a_segment_knows_about_how_many_are_before_it(q: Any) -> None:
    done = q.enqueue_many([{"payload": at} for at in range(3_000)])
    told = [q.story(done[at].job_id).now for at in (0, 2_999)]
    assert told[0] == "queued, and the next to be claimed"
    assert told[1].startswith("queued behind about 2,")
    q.pause()
    assert "the queue is paused" in q.story(done[7].job_id).now


def test_a_job_that_never_was_has_no_story(q: Any) -> None:
    done = q.enqueue(1)
    other = f"{done.job_id[:-3]}{int(done.job_id[-3], 16) ^ 1:x}{done.job_id[-2:]}"
    with pytest.raises(NotFound, match="neither the queue nor its archive"):
        q.why(other)
    with pytest.raises(Rejected):
        q.why("")


# ── Dead letters ─────────────────────────────────────────────────────────────
def test_dead_letters_are_grouped_by_what_they_died_of(q: Any) -> None:
    ids = dead(q, "row 1 is bad", "no such file '/a'", "row 2 is bad", kind="a")
    ids += dead(q, "row 3 is bad", kind="b")
    rows, files = q.dead_letter_groups()
    assert (rows.count, rows.error, rows.kinds) == (3, "row <n> is bad", {"a": 2, "b": 1})
    assert (files.count, files.example.job_id) == (1, ids[1])
    assert rows.first_at <= rows.last_at
    assert [each.count for each in q.dead_letter_groups(kinds=["b"])] == [1]
    found, cursor = q.dead_letters(fingerprint=rows.fingerprint)
    assert ([each.job_id for each in found], cursor) == ([ids[0], ids[2], ids[3]], None)
    assert (found[0].error, found[0].attempts, found[0].kind) == ("row 1 is bad", 1, "a")
    assert (found[0].kept_until - found[0].failed_at).days == 14
    page, cursor = q.dead_letters(limit=3)
    rest, end = q.dead_letters(limit=3, cursor=cursor)
    assert [each.job_id for each in (*page, *rest)] == ids
    assert end is None
    assert [each.job_id for each in q.dead_letters(error="/a")[0]] == [ids[1]]


def test_only_one_error_is_redriven(q: Any) -> None:
    dead(q, "row 1 is bad", "disk full", "row 2 is bad")
    (mark,) = {each.fingerprint for each in q.dead_letters(error="row")[0]}
    assert q.redrive(fingerprint=mark, dry_run=True) == 2
    assert q.redrive(fingerprint="00000000") == 0
    assert q.redrive(fingerprint=mark, limit=1) == 1
    assert q.redrive(fingerprint=mark) == 1
    assert sorted(lease.payload for lease in q.claim(9)) == ["row 1 is bad", "row 2 is bad"]
    assert [each.error for each in q.dead_letters()[0]] == ["disk full"]


def test_a_redrive_of_thousands_reaches_into_segments_and_keeps_the_order_of_the_rest(q: Any) -> None:
    q.enqueue_many(
        [{"payload": f"{'row' if at % 3 else 'disk'} {at}", "max_attempts": 1} for at in range(1_500)]
    )
    while leases := q.claim(500):
        q.fail_many([{"job_id": e.job_id, "token": e.token, "error": e.payload} for e in leases])
    assert {group.error: group.count for group in q.dead_letter_groups()} == {
        "row <n>": 1_000,
        "disk <n>": 500,
    }
    before = [each.job_id for each in q.dead_letters(limit=1_000, error="disk")[0]]
    (mark,) = {group.fingerprint for group in q.dead_letter_groups(error="row")}
    assert q.redrive(fingerprint=mark) == 1_000
    assert q.stats()["failed"] == 500
    assert [each.job_id for each in q.dead_letters(limit=1_000)[0]] == before


@pytest.mark.parametrize(
    "options",
    [{"fingerprint": "row"}, {"fingerprint": 7}, {"rate": 0}, {"rate": "fast"}, {"limit": 0, "rate": 1}],
)
def test_a_redrive_that_makes_no_sense_is_refused(q: Any, options: dict[str, Any]) -> None:
    dead(q, "x")
    with pytest.raises(Rejected):
        q.redrive(**options)
    assert q.stats()["failed"] == 1
