"""Rates, with one check removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from osqueue.core import gcra
from osqueue.core.gate import Gate
from osqueue.core.group_rates import GroupAllowance
from osqueue.core.rates import Allowance, Whose
from osqueue.core.state import NO_STARTS, JobRecord, LeaseRecord, Starts

from .control import Control, in_runs, patched

_allowed = gcra.allowed


def _nothing_taken(allowance: Allowance, whose: Whose, units: int) -> None:
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


_take, _charge, _take_of_group = Allowance.take, Gate.charge, GroupAllowance.take


def _of_one_unit(is_spared: Callable[[Whose], bool]) -> AbstractContextManager[None]:
    """Rates of the queue, or of kinds, take a job for one of one unit."""

    def take(allowance: Allowance, whose: Whose, units: int) -> None:
        if not is_spared(whose):
            _take(allowance, whose, units)

    def charge(gate: Gate, kind: str, started: Sequence[LeaseRecord]) -> None:
        _charge(gate, kind, started)
        for whose in filter(is_spared, (None, kind)):
            _take(gate.rates, whose, len(started))

    return patched((Allowance, "take", take), (Gate, "charge", charge))


def not_of_the_queue() -> AbstractContextManager[None]:
    """The queue's rate counts jobs."""
    return _of_one_unit(lambda whose: whose is None)


def not_of_the_kind() -> AbstractContextManager[None]:
    """A kind's rate counts jobs."""
    return _of_one_unit(lambda whose: whose is not None)


def _one_of_the_group(rates: GroupAllowance, group: bytes, units: int = 1) -> bool:
    return _take_of_group(rates, group)


def not_of_the_group() -> AbstractContextManager[None]:
    """A group's rate counts jobs."""
    return patched((GroupAllowance, "take", _one_of_the_group))


def _as_many_as_units(gate: Gate, jobs: Iterable[JobRecord], kind: str, most: int) -> int:
    return min(most, gate.room_for(kind))


def as_many_as_units() -> AbstractContextManager[None]:
    """A claim starts as many jobs at once as it may start units."""
    return patched((Gate, "first_of", _as_many_as_units))


WORDS = "jobs of .* started in"
CONTROLS: tuple[Control, ...] = (
    Control("a start is taken from its rates", nothing_taken, (in_runs("limits", WORDS),)),
    Control("heads keep what rates are owed", forgotten, (in_runs("limits", WORDS),)),
    Control("a bucket gives what it holds", one_too_many, (in_runs("limits", WORDS),)),
    Control("kinds have their rates", queue_alone, (in_runs("limits", "jobs of kind .* started in"),)),
    Control("what is owed stays owed", from_the_last, (in_runs("limits", WORDS),)),
    Control(
        "the queue's rate counts units", not_of_the_queue, (in_runs("units", "jobs of queue started in"),)
    ),
    Control("a kind's rate counts units", not_of_the_kind, (in_runs("units", "jobs of kind .* started in"),)),
    Control(
        "a group's rate counts units",
        not_of_the_group,
        (in_runs("units of groups", "jobs of group .* started in"),),
    ),
    Control(
        "a claim counts the units of what it starts", as_many_as_units, (in_runs("units", WORDS, seed=5),)
    ),
)
