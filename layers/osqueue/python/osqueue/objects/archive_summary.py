"""Summing up the archive: what finished, hour by hour, how long it waited and ran, and what it failed of.

Pure, in bounded memory however many records there are: durations are counted to three significant digits, so a
percentile is within half a percent of the true one.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from msgspec import Struct

from ..core.archive_record import ArchiveRecord
from ..core.fingerprint import fingerprint, last_error, normalised
from ..core.state import CANCELLED, COMPLETED, FAILED
from ..limits import HOUR_MS
from ..model.fields import moment

DIGITS = 3  # of a duration in ms that count
FAILURES_MAX = 1_000  # different errors counted by name; later ones are counted as "other"
OTHER = "other"


class HourSummary(Struct, frozen=True):
    """What finished in one hour, or in all of them."""

    hour: datetime | None  # its beginning; None: the sum of all
    count: int  # endings; a job that failed, was redriven and finished again has several
    completed: int
    failed: int
    cancelled: int
    retried: int  # of those, how many had more than one lease
    wait_p50: float | None  # seconds from when a job could be claimed until it was
    wait_p95: float | None
    run_p50: float | None  # seconds that the lease lasted in which it finished
    run_p95: float | None


class FailureSummary(Struct, frozen=True):
    """Attempts that failed of one error, those that were retried included."""

    fingerprint: str
    count: int  # attempts
    dead: int  # of those, how many were a job's last
    error: str  # without what differs between them
    example: str  # the job id of one
    last_at: datetime


class Durations:
    """How long things took."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, ms: int) -> None:
        """Count one."""
        self._counts[round(ms, DIGITS - len(str(ms)))] += 1

    def percentile(self, share: float) -> float | None:
        """Seconds within which this share of them was done (nearest rank); None: there are none."""
        total = self._counts.total()
        rank, seen = max(1, -int(-share * total // 1)), 0
        for ms, count in sorted(self._counts.items()):
            seen += count
            if seen >= rank:
                return ms / 1000
        return None

    def update(self, other: Durations) -> None:
        """Add those of another."""
        self._counts.update(other._counts)


class _Hour:
    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.retried = 0
        self.waits = Durations()
        self.runs = Durations()

    def add(self, record: ArchiveRecord) -> None:
        self.states[record.state] += 1
        self.retried += len(record.attempts) > 1  # ``run`` counts redrives, too, and is raised by a restore
        if record.attempts and record.attempts[0].run == 1:
            ready = max(record.enqueued_ms, record.scheduled_ms)
            self.waits.add(max(0, record.attempts[0].started_ms - ready))
        if record.attempts and record.state in (COMPLETED, FAILED):
            last = record.attempts[-1]
            self.runs.add(max(0, last.ended_ms - last.started_ms))

    def update(self, other: _Hour) -> None:
        self.states.update(other.states)
        self.retried += other.retried
        self.waits.update(other.waits)
        self.runs.update(other.runs)

    def summary(self, hour: datetime | None) -> HourSummary:
        return HourSummary(
            hour,
            self.states.total(),
            self.states[COMPLETED],
            self.states[FAILED],
            self.states[CANCELLED],
            self.retried,
            self.waits.percentile(0.5),
            self.waits.percentile(0.95),
            self.runs.percentile(0.5),
            self.runs.percentile(0.95),
        )


class Summary:
    """Records being summed up."""

    def __init__(self) -> None:
        self._hours: dict[int, _Hour] = {}
        self._failures: dict[str, FailureSummary] = {}

    def add(self, record: ArchiveRecord) -> None:
        """Count one record."""
        self._hours.setdefault(record.finished_ms // HOUR_MS, _Hour()).add(record)
        for at, attempt in enumerate(record.attempts):
            if attempt.outcome in ("failed", "stalled"):
                last = record.state == FAILED and at == len(record.attempts) - 1
                self._failed(record, at, last)

    def _failed(self, record: ArchiveRecord, at: int, last: bool) -> None:
        kind, error = last_error(record.attempts[: at + 1])
        mark = fingerprint(kind, error)
        known = self._failures.get(mark)
        if known is None and len(self._failures) >= FAILURES_MAX:
            mark, kind, error = OTHER, "", "errors that came after the first thousand different ones"
            known = self._failures.get(mark)
        when = moment(record.attempts[at].ended_ms)
        self._failures[mark] = FailureSummary(
            mark,
            1 + (known.count if known else 0),
            int(last) + (known.dead if known else 0),
            known.error
            if known
            else normalised(error if not kind else f"{kind}: {error.removeprefix(f'{kind}: ')}"),
            record.job_id,
            max(when, known.last_at) if known else when,
        )

    def hours(self) -> list[HourSummary]:
        """One for each hour in which something finished, in order."""
        return [
            self._hours[at].summary(datetime.fromtimestamp(at * HOUR_MS / 1000, UTC))
            for at in sorted(self._hours)
        ]

    def total(self) -> HourSummary:
        """Of all hours together."""
        everything = _Hour()
        for hour in self._hours.values():
            everything.update(hour)
        return everything.summary(None)

    def failures(self) -> list[FailureSummary]:
        """What attempts failed of, the most frequent first."""
        return sorted(self._failures.values(), key=lambda each: (-each.count, each.fingerprint))
