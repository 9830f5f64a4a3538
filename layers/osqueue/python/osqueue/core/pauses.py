"""Pauses: nothing of a queue, or of one kind, is handed out, until somebody resumes it or until a time.

The time is the head's. Whoever commits after it has ended the pause, so nobody has to come for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from .. import limits
from .draft import Draft
from .ops import Code, Outcome, outcome
from .queue_ops import LengthenPauses
from .settings import KindSettings, QueueSettings

ENDLESS_MS = 1 << 62  # later than any pause ends


def with_pause(said: dict[str, Any], latest_ms: int, none: int | None) -> dict[str, Any]:
    """What was said of settings, with its pause as a row keeps it; ``none`` is how that says that there is no end.

    A pause with an end is a pause. One for so long counts from the latest that the clock may show.
    """
    until = said.get("paused_until_ms") or 0
    if not (until or "paused" in said):
        return said
    paused = said.get("paused", True)
    ends = latest_ms - until if until < 0 else until
    return {**said, "paused": paused, "paused_until_ms": (ends if paused else 0) or none}


def next_end_ms(settings: QueueSettings) -> int:
    """When the next pause ends by itself."""
    ends = [row.paused_until_ms for row in settings.kinds if row.paused_until_ms]
    return min([settings.paused_until_ms or ENDLESS_MS, *ends])


def without_ended(settings: QueueSettings, now_ms: int) -> QueueSettings:
    """The settings as they hold at a time: without the pauses that are over by then. The same ones where none is."""
    if next_end_ms(settings) > now_ms:
        return settings
    kinds = [
        replace(row, paused=None, paused_until_ms=None) if 0 < (row.paused_until_ms or 0) <= now_ms else row
        for row in settings.kinds
    ]
    settings = replace(settings, kinds=tuple([row for row in kinds if row != KindSettings(row.kind)]))
    if 0 < settings.paused_until_ms <= now_ms:
        settings = replace(settings, paused=False, paused_until_ms=0)
    return settings


def lengthened(settings: QueueSettings, ends: Iterable[tuple[str | None, int]]) -> QueueSettings:
    """The settings with pauses that last until a time at least, of kinds or of the queue (None).

    None gets shorter. One more kind than may have settings of its own is left as it is.
    """
    rows = {row.kind: row for row in settings.kinds}
    for kind, until in ends:
        if kind is None:
            if _ends_before(settings, until):
                settings = replace(settings, paused=True, paused_until_ms=until)
        elif kind in rows or len(rows) < limits.KINDS_MAX:
            row = rows.get(kind, KindSettings(kind))
            if _ends_before(row, until):
                rows[kind] = replace(row, paused=True, paused_until_ms=until)
    kinds = tuple([rows[kind] for kind in sorted(rows)])
    return settings if kinds == settings.kinds else replace(settings, kinds=kinds)


def _ends_before(row: QueueSettings | KindSettings, until_ms: int) -> bool:
    return not row.paused or 0 < (row.paused_until_ms or 0) < until_ms


def is_held(settings: QueueSettings, kind: str) -> bool:
    """Does nothing of a kind start?"""
    return settings.paused or any(row.paused for row in settings.kinds if row.kind == kind)


def timed(settings: QueueSettings) -> tuple[tuple[str | None, int], ...]:
    """The pauses that end by themselves, and when."""
    rows = [(row.kind, row.paused_until_ms) for row in settings.kinds if row.paused_until_ms]
    queue = [(None, settings.paused_until_ms)] if settings.paused_until_ms else []
    return (*queue, *rows)


# ── In the head ──────────────────────────────────────────────────────────────
def lengthen(draft: Draft, op: LengthenPauses) -> Outcome:
    """Somebody saw pauses in another shard."""
    hold(draft, [(kind, until) for kind, until in op.ends if until > draft.now])
    return outcome([Code.OK])


def hold(draft: Draft, ends: Iterable[tuple[str | None, int]]) -> None:
    """Let pauses last until a time at least."""
    settings = lengthened(draft.settings, ends)
    draft.changed |= settings != draft.settings
    draft.settings = settings


def at_another_time(settings: QueueSettings, old_ms: int, new_ms: int) -> QueueSettings:
    """The settings when the head's time is set anew: what is left of a pause stays."""

    def moved(until_ms: int | None) -> int | None:
        return max(1, until_ms - old_ms + new_ms) if until_ms else until_ms

    if next_end_ms(settings) == ENDLESS_MS:
        return settings
    kinds = tuple([replace(row, paused_until_ms=moved(row.paused_until_ms)) for row in settings.kinds])
    return replace(settings, kinds=kinds, paused_until_ms=moved(settings.paused_until_ms))


def lasting(settings: QueueSettings) -> QueueSettings:
    """The settings without the pauses that end by themselves: each shard has its own end of them."""
    return without_ended(settings, ENDLESS_MS - 1)
