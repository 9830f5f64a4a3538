"""What is told of a pacer."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from .. import limits
from ..core.pacing import ahead, exists, head_us, next_us, own_us
from ..core.state import PacerRow
from .fields import moment


class PacerStatus(Struct, frozen=True):
    """A pacer as it was at one moment."""

    name: str
    interval: float  # seconds between two slots
    burst: int  # slots that it gives at once after a rest
    next_in: float  # seconds until the next slot that can be reserved; of a paused one, from when it goes on
    ahead: int  # units that are reserved, with slots still to come
    number: int  # of the latest slot
    paused_at: datetime | None  # since when it is paused; None: it is not

    @property
    def paused(self) -> bool:
        """Does it stand still?"""
        return self.paused_at is not None


def status_of(name: str, row: PacerRow, now_ms: int) -> PacerStatus | None:
    """A row as callers see it; None: there is no such pacer."""
    if not exists(row):
        return None
    now = own_us(row, now_ms)
    return PacerStatus(
        name,
        row.interval_us / 1e6,
        row.burst,
        (next_us(row, now) - now) / 1e6,
        ahead(row, now),
        row.number,
        moment(row.paused_ms) if row.paused_ms else None,
    )


def slot_moment(row: PacerRow, at_us: int, now_ms: int) -> datetime:
    """Return when a slot is, in the head's time; of a paused pacer, if it were resumed now.

    A slot after the year 9999, which is too far ahead to be taken, is at the end of that year.
    """
    return moment(0) + timedelta(microseconds=min(head_us(row, at_us, now_ms), limits.AT_MS_MAX * 1000))
