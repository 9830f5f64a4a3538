"""Running limits and paused kinds, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from osqueue.core.gate import Gate

from .control import Control, in_runs, patched

_room_for = Gate.room_for


def _not_charged(gate: Gate, kind: str, count: int) -> None:
    return None


def _whole_queue(gate: Gate, kind: str) -> int:
    return gate.room


def _kinds_alone(gate: Gate, kind: str) -> int:
    room, gate.room = gate.room, 1 << 62
    try:
        return _room_for(gate, kind)
    finally:
        gate.room = room


def not_charged() -> AbstractContextManager[None]:
    """What a claim has started does not count for what it starts next."""
    return patched((Gate, "charge", _not_charged))


def whole_queue() -> AbstractContextManager[None]:
    """Only the queue's own limit is looked at."""
    return patched((Gate, "room_for", _whole_queue))


def kinds_alone() -> AbstractContextManager[None]:
    """Only the limits of kinds are looked at."""
    return patched((Gate, "room_for", _kinds_alone))


CONTROLS: tuple[Control, ...] = (
    Control("a claim counts what it starts", not_charged, (in_runs("limits", "jobs .*run, "),)),
    Control("kinds have their limits", whole_queue, (in_runs("limits", "of kind .* (run|started)"),)),
    Control("the queue has its limit", kinds_alone, (in_runs("limits", "^[0-9]+ jobs run, "),)),
)
