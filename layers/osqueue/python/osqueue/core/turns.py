"""Whose turn it is, where a pass looks at one of 24 parts: each has an hour of every day, another one each day."""

from __future__ import annotations

from .. import limits

SLICES = 24  # parts of all, one for each hour of a day


def turn_of(now_ms: int) -> int:
    """The part whose turn it is in this hour: another one each day, for passes may come at one hour of the day only."""
    return (now_ms // limits.HOUR_MS + now_ms // limits.DAY_MS) % SLICES
