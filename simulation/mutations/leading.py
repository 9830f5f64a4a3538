"""Elections, with one check removed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Flow
from osqueue.election import base
from osqueue.election.base import ElectionBase, ElectionRecord
from osqueue.stores.base import Failed, Put, Refused, Store, StoreReply, Written

from .. import election_scenes
from ..ledger import Violation
from .control import Control, Detection, in_runs, patched

RUNS = 60  # short ones: a clock must be slow, another one fast, and nothing heard at the right moment


def no_condition() -> AbstractContextManager[None]:
    """The record is written whatever it has become."""
    return patched((base, "PutIfMatch", lambda key, body, version: Put(key, body)))


def no_margin() -> AbstractContextManager[None]:
    """A leader believes in itself until the very end, by a clock that may be slow."""
    return patched((base, "MARGIN", 0.0))


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
    return patched((Store, "clock_tick_ms", 0))


def names_for_marks() -> AbstractContextManager[None]:
    """A candidate takes a record for its own by the name in it."""

    def is_mine(self: Any, record: ElectionRecord) -> bool:
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


def led_whatever_was_answered(reply: type[StoreReply]) -> AbstractContextManager[None]:
    """A record counts as written when the store gave this answer."""
    real = ElectionBase._take_note

    def take_note(self: Any, given: StoreReply, record: ElectionRecord) -> bool:
        return real(self, Written("somebody's") if isinstance(given, reply) else given, record)

    return patched((ElectionBase, "_take_note", take_note))


def leading_whatever_the_record_says() -> AbstractContextManager[None]:
    """A leadership goes on although the record names another candidate."""
    real = ElectionBase._look

    def look(self: Any) -> Flow[bool]:
        before = self._tenure
        found = yield from real(self)
        self._tenure = before
        return found

    return patched((ElectionBase, "_look", look))


def beats_that_elect() -> AbstractContextManager[None]:
    """A beat of a leadership that is over begins another one."""
    real = ElectionBase._step
    return patched((ElectionBase, "_step", lambda self, only: real(self, None)))


def terms_of_the_past() -> AbstractContextManager[None]:
    """A beat of an earlier term counts in a later one."""
    real = ElectionBase._begin

    def begin(self: Any, term: int, began: float, resigned: int, beat: bool) -> bool:
        if self.fence is not None and term < self.fence:
            self._tenure = None
            beat = False
        return real(self, term, began, resigned, beat)

    return patched((ElectionBase, "_begin", begin))


def children_lead() -> AbstractContextManager[None]:
    """A child of the leader's process leads as well."""

    def current(self: Any) -> Any:
        tenure = self._tenure
        return tenure if tenure and self.machine.monotonic() < tenure.until else None

    return patched((ElectionBase, "_current", current))


def children_know_their_parents_marks() -> AbstractContextManager[None]:
    """A child of the leader's process takes the leader's record for its own."""
    real = ElectionBase._check_process

    def check_process(self: Any) -> None:
        marks = self._marks
        real(self)
        self._marks = marks

    return patched((ElectionBase, "_check_process", check_process))


def silent_where_no_time_is_told() -> AbstractContextManager[None]:
    """A leader counts as silent if the store does not tell what time it is."""
    real = ElectionBase._is_stale

    def is_stale(self: Any, seen: Any, seldom: bool) -> Flow[bool]:
        flow, reply = real(self, seen, seldom), None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return bool(stop.value)
            reply = yield effect
            if isinstance(reply, Failed):
                return True

    return patched((ElectionBase, "_is_stale", is_stale))


def patience_of_its_own() -> AbstractContextManager[None]:
    """A candidate waits for as long as it would be silent itself, whatever the leader said."""
    real = ElectionBase._is_stale

    def is_stale(self: Any, seen: Any, seldom: bool) -> Flow[bool]:
        record = replace(seen.record, stale_after_ms=self._stale_after_ms)
        return (yield from real(self, replace(seen, record=record), seldom))

    return patched((ElectionBase, "_is_stale", is_stale))


def beats_unheard() -> AbstractContextManager[None]:
    """The silence counts from when a candidate first saw a record, whatever was written since."""
    real = ElectionBase._look

    def look(self: Any) -> Flow[bool]:
        before = self._seen
        found = yield from real(self)
        if before is not None and self._seen is not None:
            self._seen = replace(self._seen, since=before.since)
        return found

    return patched((ElectionBase, "_look", look))


def resigned_for_another() -> AbstractContextManager[None]:
    """Who resigns ends whatever leadership there is."""
    real = ElectionBase._resign

    def resign(self: Any) -> Flow[bool]:
        self._is_mine = lambda record: True
        done = yield from real(self)
        del self._is_mine
        return done

    return patched((ElectionBase, "_resign", resign))


def in_election_scene(name: str, words: str) -> tuple[Detection, ...]:
    """A scene of candidates goes wrong."""

    def look() -> str:
        try:
            election_scenes.play(name)
        except Violation as violation:
            return str(violation)
        return ""

    return (Detection(name, look, words),)


def _seen(words: str) -> tuple[Detection, ...]:
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
    Control(
        "records that were refused",
        partial(led_whatever_was_answered, Refused),
        in_election_scene("elected at once", "two lead at once|was led by"),
    ),
    Control(
        "records perhaps written",
        partial(led_whatever_was_answered, Failed),
        in_election_scene("perhaps elected", "two lead at once|was led by"),
    ),
    Control(
        "a leader whom the record names",
        leading_whatever_the_record_says,
        in_election_scene("told of another leader", "leads on"),
    ),
    Control("beats elect nobody", beats_that_elect, in_election_scene("beaten too late", "began term 2")),
    Control(
        "beats of an earlier term",
        terms_of_the_past,
        in_election_scene("answered in the next term", "after it was over"),
    ),
    Control("children do not lead", children_lead, in_election_scene("forked", "two lead at once|was led")),
    Control(
        "children's own marks",
        children_know_their_parents_marks,
        in_election_scene("forked", "two lead at once"),
    ),
    Control(
        "silence that is known",
        silent_where_no_time_is_told,
        in_election_scene("no time told", "two lead at once"),
    ),
    Control(
        "the leader's word",
        patience_of_its_own,
        in_election_scene("patience of its own", "two lead at once"),
    ),
    Control("beats are heard", beats_unheard, in_election_scene("beating", "two lead at once")),
    Control(
        "resigned for oneself",
        resigned_for_another,
        in_election_scene("resigned by another", "two lead at once"),
    ),
)
