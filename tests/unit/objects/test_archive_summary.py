"""Summing up the archive."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from osqueue.core.archive_record import ArchiveRecord, AttemptRecord
from osqueue.limits import HOUR_MS
from osqueue.objects.archive_summary import FAILURES_MAX, OTHER, Durations, Summary

T0 = 1_893_456_000_000  # 2030-01-01T00:00:00Z


def record(at_ms: int = 0, **more: Any) -> ArchiveRecord:
    fields: dict[str, Any] = {
        "format": 1,
        "job_id": "x",
        "run": 1,
        "state": "completed",
        "enqueued_ms": T0 + at_ms,
        "finished_ms": T0 + at_ms + 3_000,
        "attempt": 1,
        "payload_bytes": 0,
        "attempts": (AttemptRecord(1, "w", T0 + at_ms + 1_000, T0 + at_ms + 3_000, "completed"),),
    }
    return ArchiveRecord(**{**fields, **more})


def test_every_hour_has_its_numbers_and_so_have_all_together() -> None:
    summary = Summary()
    summary.add(record())
    summary.add(record(5_000, state="cancelled", attempts=()))
    late = (
        AttemptRecord(2, "w", T0, T0 + 500, "failed"),
        AttemptRecord(3, "w", T0 + 500, T0 + 9_500, "completed"),
    )
    summary.add(record(HOUR_MS, run=3, attempts=late))
    first, second = summary.hours()
    assert first.hour == datetime(2030, 1, 1, 0, tzinfo=UTC)
    assert (first.count, first.completed, first.cancelled, first.failed, first.retried) == (2, 1, 1, 0, 0)
    assert (first.wait_p50, first.wait_p95, first.run_p50, first.run_p95) == (1.0, 1.0, 2.0, 2.0)
    assert (second.retried, second.wait_p50, second.run_p50) == (1, None, 9.0)
    total = summary.total()
    assert (total.hour, total.count, total.run_p50, total.run_p95) == (None, 3, 2.0, 9.0)
    assert Summary().total().count == 0


def test_a_run_that_was_no_lease_is_no_retry() -> None:
    """A redrive counts as a run, and a restore raises it far above any lease."""
    summary = Summary()
    lease = AttemptRecord(1, "w", T0, T0 + 1, "failed")
    summary.add(record(state="cancelled", run=2, attempts=(lease,)))
    summary.add(record(run=100_000_007, attempts=(AttemptRecord(100_000_007, "w", T0, T0 + 1, "completed"),)))
    assert summary.total().retried == 0


def test_a_delayed_job_waits_from_when_it_could_be_claimed() -> None:
    summary = Summary()
    summary.add(record(scheduled_ms=T0 + 600))
    assert summary.total().wait_p50 == 0.4


def test_failures_are_counted_by_what_they_failed_of() -> None:
    summary = Summary()
    tries = (
        AttemptRecord(1, "w", T0, T0 + 1, "failed", "row 1 is bad", "ValueError"),
        AttemptRecord(2, "w", T0 + 2, T0 + 3, "stalled"),
        AttemptRecord(3, "w", T0 + 4, T0 + 5, "failed", "row 2 is bad", "ValueError"),
    )
    summary.add(record(state="failed", run=3, attempts=tries))
    summary.add(record(state="completed", run=2, attempts=(*tries[:1], record().attempts[0])))
    rows, stalls = summary.failures()
    assert (rows.count, rows.dead, rows.error) == (3, 1, "ValueError: row <n> is bad")
    assert (stalls.count, stalls.dead) == (1, 0)
    assert rows.last_at == datetime.fromtimestamp((T0 + 5) / 1000, UTC)


def test_ever_different_errors_do_not_fill_the_memory() -> None:
    summary = Summary()
    words = [
        f"{chr(97 + at % 26)}{chr(97 + at // 26 % 26)}{chr(97 + at // 676)}" for at in range(FAILURES_MAX + 5)
    ]
    for word in words:
        summary.add(record(state="failed", attempts=(AttemptRecord(1, "w", T0, T0 + 1, "failed", word),)))
    failures = summary.failures()
    assert len(failures) == FAILURES_MAX + 1
    assert (failures[0].fingerprint, failures[0].count) == (OTHER, 5)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0.001), (0.5, 0.5), (0.95, 0.95), (1.0, 1.0)])
def test_percentiles_are_those_of_the_nearest_rank(share: float, expected: float) -> None:
    durations = Durations()
    for ms in range(1, 1_001):
        durations.add(ms)
    assert durations.percentile(share) == expected


def test_long_durations_keep_three_digits() -> None:
    durations = Durations()
    durations.add(123_456_789)
    assert durations.percentile(0.5) == 123_000.0
    assert Durations().percentile(0.5) is None
