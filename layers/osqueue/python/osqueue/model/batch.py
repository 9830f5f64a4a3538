"""Batches as callers see them: jobs whose common end makes another one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from .. import limits
from ..core.rows import BatchRow
from ..errors import NotFound, Rejected, shown
from .fields import moment
from .follow_ups import Next, encoded_next, told_next
from .keys import is_key, job_id, key_of
from .validation import text

OPEN, SEALED, OVER = "open", "sealed", "over"


class BatchStatus(Struct, frozen=True, kw_only=True):
    """How far a batch is."""

    batch_id: str
    name: str | None = None
    state: str  # "open": jobs may join; "sealed": none come from outside any more; "over": none is left
    total: int  # jobs that ever were of it, follow-ups of its jobs included
    left: int  # that wait or run
    completed: int
    failed: int  # dead letters
    cancelled: int
    created_at: datetime
    ended_at: datetime | None = None
    on_complete: Next | None = None  # still to come: when none is left
    on_success: Next | None = None  # the same: when all are completed


def batch_row(name: Any, on_complete: Any, on_success: Any) -> BatchRow:
    """The row of a wished batch. Raises Rejected."""
    return BatchRow(
        "" if name is None else text(name, "name", limits.BATCH_NAME_CHARS_MAX),
        on_complete=encoded_next(on_complete, "on_complete"),
        on_success=encoded_next(on_success, "on_success"),
    )


def batch_key(value: Any) -> bytes:
    """The key of a batch by its id. Raises Rejected."""
    if not isinstance(value, str) or not is_key(value) or key_of(value)[15] >= limits.SHARDS_MAX:
        raise Rejected(
            f"batch: {shown(value)} is no id of a batch. Give the one that q.batch() made.", field="batch"
        )
    return key_of(value)


def no_batch(key: bytes) -> NotFound:
    """The error for a batch that is not there."""
    return NotFound(
        f"batch {job_id(key)}: there is none, or it was over for a day. 'osqueue batch ls ADDRESS QUEUE' lists those"
        " there are."
    )


def batch_view(key: bytes, row: BatchRow) -> BatchStatus:
    """A row as callers see it."""
    return BatchStatus(
        batch_id=job_id(key),
        name=row.name or None,
        state=OVER if row.ended_ms else SEALED if row.sealed else OPEN,
        total=row.total,
        left=row.left,
        completed=row.total - row.left - row.failed - row.cancelled,
        failed=row.failed,
        cancelled=row.cancelled,
        created_at=moment(row.created_ms),
        ended_at=moment(row.ended_ms) if row.ended_ms else None,
        on_complete=told_next(row.on_complete),
        on_success=told_next(row.on_success),
    )
