"""Which records tell of moments that cannot be: written by a machine whose clock was wrong.

An archive part is written in an hour of the store's clock, and what it tells of happened before. So a moment is suspect
that lies more than AHEAD_MS_MAX after that hour, or more than LIVED_MS_MAX before it. A job may have been enqueued
earlier by the longest delay there is, if it was delayed; and one that was redriven may have died at any time.

A suspect record stays in ``jobs`` and ``attempts``, where ``clock_suspect`` names what is wrong. Metrics and reports
leave it out, leases and all, and say how many they left out: one of them would otherwise make a history of decades.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.archive_record import ArchiveRecord, AttemptRecord
from ..limits import DELAY_MS_MAX
from .archive import HOUR_MS

AHEAD_MS_MAX = HOUR_MS  # of the end of the hour in which the part was written
LIVED_MS_MAX = 400 * 24 * HOUR_MS  # before that hour: what waits or is worked at for longer is not believed
TRUSTED = "clock_suspect IS NULL"


def wrong_moments(
    record: ArchiveRecord, own: Sequence[AttemptRecord], timed: bool, hour_ms: int
) -> str | None:
    """The columns of a record whose moments cannot be, where its part is of an hour; None: there are none.

    ``own`` are the leases since it was enqueued or redriven. ``timed`` says that it waited from its enqueue on.
    """
    early, late = _bounds(hour_ms)

    def names() -> Iterator[str]:
        claimable = max(record.enqueued_ms, record.scheduled_ms)
        if not early - DELAY_MS_MAX <= record.enqueued_ms <= late or (timed and claimable < early):
            yield "enqueued_at"
        if not all(early <= each.started_ms <= late and early <= each.ended_ms <= late for each in own):
            yield "attempts"
        if not early <= record.finished_ms <= late:
            yield "finished_at"

    return ", ".join(names()) or None


def possible(first_ms: int, last_ms: int, hour_ms: int) -> bool:
    """Are moments possible of which these are the first and the last? One look at most parts is enough."""
    early, late = _bounds(hour_ms)
    return early <= first_ms and last_ms <= late


def _bounds(hour_ms: int) -> tuple[int, int]:
    return hour_ms - LIVED_MS_MAX, hour_ms + HOUR_MS + AHEAD_MS_MAX
