"""Follow-ups and batches, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.core import batches, draft, follow_ups
from osqueue.core.draft import Draft
from osqueue.core.rows import BatchRow, StoredContent
from osqueue.core.state import JobRecord

from .control import Control, in_runs, patched


def _followed_by_nobody(draft: Draft, job: JobRecord, result: StoredContent, codec: str) -> int:
    return 0


def followed_by_nobody() -> AbstractContextManager[None]:
    """A job that completes drops what follows it."""
    return patched((follow_ups, "follow", _followed_by_nobody))


def _always_open(row: BatchRow | None) -> bool:
    return True


def always_open() -> AbstractContextManager[None]:
    """Jobs join a batch that is over, or that there is not."""
    return patched((batches, "is_open", _always_open))


_counted = batches.counted


def _ends_uncounted(rows: Any, key: bytes, **more: int) -> Any:
    return rows if more.get("left", 0) < 0 and more.get("cancelled") else _counted(rows, key, **more)


def cancelled_uncounted() -> AbstractContextManager[None]:
    """A job that is cancelled stays one of those that are left."""
    return patched((draft, "counted", _ends_uncounted))


_settle = follow_ups.settle


def _unsealed(working: Draft) -> None:
    real = working.batches
    working.batches = {key: replace(row, sealed=True) for key, row in real.items()}
    _settle(working)
    working.batches = {
        key: replace(row, sealed=real[key].sealed if key in real else True)
        for key, row in working.batches.items()
    }


def comes_unsealed() -> AbstractContextManager[None]:
    """What waits for a batch comes whenever none of its jobs is left."""
    return patched((follow_ups, "settle", _unsealed))


def comes_again() -> AbstractContextManager[None]:
    """A batch that a redrive opens again waits for what came with its first end."""
    told: dict[bytes, bytes] = {}

    def settle(working: Draft) -> None:
        told.update({key: row.on_complete for key, row in working.batches.items() if row.on_complete})
        _settle(working)
        working.batches = {
            key: row if row.ended_ms else replace(row, on_complete=told.get(key, b""))
            for key, row in working.batches.items()
        }

    return patched((follow_ups, "settle", settle))


CONTROLS: tuple[Control, ...] = (
    Control(
        "what follows a job comes with its end", followed_by_nobody, (in_runs("follows", "followed others"),)
    ),
    Control("a batch that is over is closed", always_open, (in_runs("follows", "joined a batch"),)),
    Control("a cancelled job is counted off", cancelled_uncounted, (in_runs("follows", "are left; it is"),)),
    Control("what waits for a batch comes once", comes_again, (in_runs("follows", "came a second time"),)),
    Control(
        "what waits for a batch comes when it is sealed",
        comes_unsealed,
        (in_runs("follows", "followed others"),),
    ),
)
