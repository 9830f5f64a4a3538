"""Running limits and paused kinds, with one check removed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from osqueue.core import pauses, timers
from osqueue.core.gate import Gate
from osqueue.core.pauses import without_ended
from osqueue.core.settings import QueueSettings
from osqueue.core.state import LeaseRecord

from .control import Control, in_runs, patched


def _not_charged(gate: Gate, kind: str, started: Sequence[LeaseRecord]) -> None:
    return None


def _whole_queue(gate: Gate, kind: str) -> int:
    return gate._most(None)


def _kinds_alone(gate: Gate, kind: str) -> int:
    return 0 if kind in gate._paused else gate._most(kind)


def not_charged() -> AbstractContextManager[None]:
    """What a claim has started does not count for what it starts next."""
    return patched((Gate, "charge", _not_charged))


def whole_queue() -> AbstractContextManager[None]:
    """Only the queue's own limit is looked at."""
    return patched((Gate, "room_for", _whole_queue))


def kinds_alone() -> AbstractContextManager[None]:
    """Only the limits of kinds are looked at."""
    return patched((Gate, "room_for", _kinds_alone))


def _ended_early(settings: QueueSettings, now_ms: int) -> QueueSettings:
    return without_ended(settings, now_ms + 900)


def _never_ended(settings: QueueSettings, now_ms: int) -> QueueSettings:
    return settings


def ended_early() -> AbstractContextManager[None]:
    """Pauses end a moment too soon."""
    return patched((timers, "without_ended", _ended_early))


def never_ended() -> AbstractContextManager[None]:
    """Nobody ends a pause that is over."""
    return patched((timers, "without_ended", _never_ended))


def _always(row: object, until_ms: int) -> bool:
    return True


def latest_word() -> AbstractContextManager[None]:
    """A worker's word on a pause counts, however long it was to last."""
    return patched((pauses, "_ends_before", _always))


CONTROLS: tuple[Control, ...] = (
    Control("a claim counts what it starts", not_charged, (in_runs("limits", "jobs .*run, "),)),
    Control("kinds have their limits", whole_queue, (in_runs("limits", "of kind .* (run|started)"),)),
    Control(
        "pauses last until their end", ended_early, (in_runs("limits", "the pause of .* early", seed=4),)
    ),
    Control("pauses end by themselves", never_ended, (in_runs("limits", "the pause of .* is over"),)),
    Control(
        "no worker makes a pause shorter",
        latest_word,
        (in_runs("throttles", "the pause of .* (shorter|was given an end)", seed=8),),
    ),
    Control("the queue has its limit", kinds_alone, (in_runs("limits", "^[0-9]+ jobs run, "),)),
)
