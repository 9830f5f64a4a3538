"""Elections, with one check removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ... import election
from ...commit.effects import Flow
from ...election import ElectionBase, Record
from ...stores.base import Put
from .control import Control, Sighting, in_runs, patched

RUNS = 60  # short ones: a clock must be slow, another one fast, and nothing heard at the right moment


def no_condition() -> AbstractContextManager[None]:
    """The record is written whatever it has become."""
    return patched((election, "PutIfMatch", lambda key, body, version: Put(key, body)))


def no_margin() -> AbstractContextManager[None]:
    """A leader believes in itself until the very end, by a clock that may be slow."""
    return patched((election, "MARGIN", 0.0))


def counted_from_the_answer() -> AbstractContextManager[None]:
    """A leadership counts from when its beat was answered."""
    real = ElectionBase._begin

    def begin(self: Any, term: int, began: float, resigned: int, beat: bool) -> bool:
        return real(self, term, self.machine.monotonic(), resigned, beat)

    return patched((ElectionBase, "_begin", begin))


def no_end() -> AbstractContextManager[None]:
    """A leader believes in itself until it reads that another one leads."""

    def current(self: Any) -> Any:
        return self._tenure

    return patched((ElectionBase, "_current", current))


def impatient() -> AbstractContextManager[None]:
    """A candidate takes over at once, however short the silence."""

    def is_stale(self: Any, seen: Any, seldom: bool) -> Flow[bool]:
        yield from ()
        return True

    return patched((ElectionBase, "_is_stale", is_stale))


def whole_seconds_believed() -> AbstractContextManager[None]:
    """A store that tells whole seconds is believed to the millisecond."""
    return patched((election, "CLOCK_STEP_MS", 0))


def names_for_marks() -> AbstractContextManager[None]:
    """A candidate takes a record for its own by the name in it."""

    def is_mine(self: Any, record: Record) -> bool:
        return bool(record.candidate == self.candidate)

    return patched((ElectionBase, "_is_mine", is_mine))


def late_beats() -> AbstractContextManager[None]:
    """A beat that is answered when its leadership is over brings it back."""
    return _begin(lambda self, term, began, resigned, beat: (term, began, resigned, False))


def resigned_in_vain() -> AbstractContextManager[None]:
    """A beat that was under way when its candidate resigned counts."""
    return _begin(lambda self, term, began, resigned, beat: (term, began, self._resigned, False))


def _begin(changed: Callable[..., tuple[Any, ...]]) -> AbstractContextManager[None]:
    real = ElectionBase._begin

    def begin(self: Any, *given: Any) -> bool:
        return real(self, *changed(self, *given))

    return patched((ElectionBase, "_begin", begin))


def same_term() -> AbstractContextManager[None]:
    """A new leadership has the term of the one before."""
    real = ElectionBase._look

    def look(self: Any) -> Flow[bool]:
        found = yield from real(self)
        if self.fence is None:
            self._term = max(0, self._term - 1)
        return found

    return patched((ElectionBase, "_look", look))


def _seen(words: str) -> tuple[Sighting, ...]:
    return (in_runs("election", words, seeds=RUNS),)


CONTROLS: tuple[Control, ...] = (
    Control("a record's condition", no_condition, _seen("without a condition")),
    Control("a margin for slow clocks", no_margin, _seen("two lead at once")),
    Control("counted from before the beat", counted_from_the_answer, _seen("after term|two lead")),
    Control("leading ends by itself", no_end, _seen("two lead at once")),
    Control("silence is waited for", impatient, _seen("two lead at once")),
    Control("whole seconds", whole_seconds_believed, _seen("two lead at once|after term")),
    Control("marks, not names", names_for_marks, _seen("two lead at once|was led by")),
    Control("late beats count for nothing", late_beats, _seen("after it was over|two lead")),
    Control("resigned is resigned", resigned_in_vain, _seen("after it was over|resigned|two lead")),
    Control("a term for each leader", same_term, _seen("was led by|went back|two lead")),
)
