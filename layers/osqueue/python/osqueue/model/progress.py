"""A heartbeat, with what is new of its job's progress."""

from __future__ import annotations

from .. import limits
from ..core.job_ops import LeaseBeat
from . import validation


def beat_of(key: bytes, token: str, progress: float | None = None, note: str | None = None) -> LeaseBeat:
    """A heartbeat for a lease. Raises Rejected for a progress that is none, or too long a note."""
    return LeaseBeat(
        key,
        token,
        -1 if progress is None else validation.thousandths(progress, "progress"),
        None if note is None else validation.text(note, "note", limits.NOTE_CHARS_MAX),
    )
