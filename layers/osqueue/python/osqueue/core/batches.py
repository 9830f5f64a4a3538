"""Batches: jobs whose common end is waited for.

All jobs of a batch are in one shard, which the batch's key names. So what ends a job counts it off in the same commit,
and the commit that counts off the last makes the jobs that wait for that: neither early, nor twice, nor never.

    open      jobs may join: until it is sealed from outside, and after that for as long as one of its jobs lives
    over      sealed, and none is left. ``on_complete`` comes; ``on_success`` only if every job completed
    over, with dead letters    a redrive opens it again, and ``on_success`` comes with the last that completes

Follow-ups of a job that is of a batch are of it, too. They join in the commit that counts their parent off, so it is
not over between the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from .. import limits
from .encoding import encode
from .rows import BatchRow
from .settings import QueueSettings
from .state import JobRecord

Batches = dict[bytes, BatchRow]
COUNT_BYTES = 56  # more than a zero each, of a row's times and counts and its key, as long as they can get


def batch_weight(row: BatchRow) -> int:
    """An upper estimate of a row's encoded bytes, with its key."""
    return (
        len(encode(replace(row, created_ms=0, total=0, left=0, failed=0, cancelled=0, ended_ms=0)))
        + COUNT_BYTES
    )


def is_open(row: BatchRow | None) -> bool:
    """May jobs join?"""
    return row is not None and (not row.sealed or row.left > 0)


def batch_of(job: JobRecord) -> bytes:
    """The key of the batch of a job; empty: it is of none."""
    return b"" if job.links is None else job.links.batch


def counted(
    rows: Batches, key: bytes, *, total: int = 0, left: int = 0, failed: int = 0, cancelled: int = 0
) -> Batches:
    """The rows with so many jobs more of one batch. One that is forgotten counts nothing any more."""
    row = rows.get(key)
    if row is None:
        return rows
    row = replace(
        row,
        total=row.total + total,
        left=row.left + left,
        failed=row.failed + failed,
        cancelled=row.cancelled + cancelled,
    )
    return {**rows, key: row}


def waits_for_dead(row: BatchRow) -> bool:
    """Is all that keeps ``on_success`` from coming that some jobs are dead letters?"""
    return bool(row.on_success and row.failed and not row.cancelled)


def without_old(rows: Batches, settings: QueueSettings, now_ms: int) -> Batches:
    """The rows without those that were over long ago."""

    def is_kept(row: BatchRow) -> bool:
        kept_ms = limits.BATCH_KEPT_MS
        if waits_for_dead(row):
            kept_ms = max(kept_ms, settings.dead_ttl_ms)
        return not row.ended_ms or now_ms < row.ended_ms + kept_ms

    return (
        rows if all(map(is_kept, rows.values())) else {key: row for key, row in rows.items() if is_kept(row)}
    )


def with_room(rows: Batches, row: BatchRow) -> Batches | None:
    """The rows, and room for another; None: too many are open.

    Of those that are over the first to go ended first, and before those whose dead letters may still be redriven.
    """
    weights = {key: batch_weight(each) for key, each in rows.items()}
    excess = sum(weights.values()) + batch_weight(row) - limits.BATCHES_BYTES_MAX
    over = [key for key, each in rows.items() if each.ended_ms]
    gone: set[bytes] = set()
    for key in sorted(over, key=lambda key: (waits_for_dead(rows[key]), rows[key].ended_ms)):
        if excess <= 0:
            break
        excess -= weights[key]
        gone.add(key)
    if excess > 0:
        return None
    return {key: each for key, each in rows.items() if key not in gone} if gone else rows


def of_a_new_life(
    rows: Batches, living: Mapping[bytes, int], completed: Mapping[bytes, int], failed: Mapping[bytes, int]
) -> Batches:
    """The rows of a restored head, by the jobs of each that live in it, and that became something else since.

    Whatever was left, does not live, and is not known to have completed or failed counts as cancelled: what is lost
    must not bring what waits for success. Where a dead letter is over, what waits for that comes after all.
    """
    return {
        key: replace(
            row,
            left=living.get(key, 0),
            failed=row.failed + failed.get(key, 0),
            cancelled=max(
                0,
                row.cancelled + row.left - living.get(key, 0) - completed.get(key, 0) - failed.get(key, 0),
            ),
            ended_ms=0 if failed.get(key, 0) < 0 else row.ended_ms,
        )
        for key, row in rows.items()
    }


def at_another_time(rows: Batches, now_ms: int) -> Batches:
    """The rows of a head whose clock is set."""
    return {key: replace(row, ended_ms=min(row.ended_ms, now_ms)) for key, row in rows.items()}
