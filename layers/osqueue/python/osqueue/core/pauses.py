"""Pauses: nothing of a queue, or of one kind, is handed out, until somebody resumes it or until a time.

The time is the head's. Whoever commits after it has ended the pause, so nobody has to come for that.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from .state import KindSettings, QueueSettings

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
