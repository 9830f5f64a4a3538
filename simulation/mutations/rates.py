"""Rates, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from osqueue.core import gcra
from osqueue.core.gate import Gate
from osqueue.core.rates import Allowance, Whose
from osqueue.core.state import NO_STARTS, Starts

from .control import Control, in_runs, patched

_allowed = gcra.allowed


def _nothing_taken(allowance: Allowance, whose: Whose, count: int) -> None:
    return None


def _forgotten(allowance: Allowance) -> Starts:
    return NO_STARTS


def _one_too_many(*limits: int) -> int:
    return _allowed(*limits) + 1


def _queue_alone(gate: Gate, kind: str) -> int:
    return 0 if kind in gate._paused else min(gate._most(None), gate.room(kind))


def _from_the_last(tat_us: int, now_us: int, interval_us: int, units: int = 1) -> int:
    return now_us + units * interval_us


def nothing_taken() -> AbstractContextManager[None]:
    """What starts is not taken from any rate."""
    return patched((Allowance, "take", _nothing_taken))


def forgotten() -> AbstractContextManager[None]:
    """The next claim knows nothing of what has started."""
    return patched((Allowance, "starts", _forgotten))


def one_too_many() -> AbstractContextManager[None]:
    """A bucket gives one more than it holds."""
    return patched((gcra, "allowed", _one_too_many))


def queue_alone() -> AbstractContextManager[None]:
    """Only the queue's own rate is looked at."""
    return patched((Gate, "room_for", _queue_alone))


def from_the_last() -> AbstractContextManager[None]:
    """What was owed before a start is let off."""
    return patched((gcra, "moved", _from_the_last))


WORDS = "jobs of .* started in"
CONTROLS: tuple[Control, ...] = (
    Control("a start is taken from its rates", nothing_taken, (in_runs("limits", WORDS),)),
    Control("heads keep what rates are owed", forgotten, (in_runs("limits", WORDS),)),
    Control("a bucket gives what it holds", one_too_many, (in_runs("limits", WORDS),)),
    Control("kinds have their rates", queue_alone, (in_runs("limits", "jobs of kind .* started in"),)),
    Control("what is owed stays owed", from_the_last, (in_runs("limits", WORDS),)),
)
