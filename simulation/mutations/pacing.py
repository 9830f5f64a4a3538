"""Pacers, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.commit import announcements, publications, request_status, steps
from osqueue.commit.pacer_writer import PacerWriter
from osqueue.core import pacing, reduce
from osqueue.core.draft import Draft
from osqueue.core.ops import Code, Outcome
from osqueue.core.queue_ops import ChangePacer, ReserveSlots, ReturnSlot
from osqueue.core.state import State
from osqueue.operations.pacer_access import FREE, StartPace
from osqueue.operations.pacing import PacerFlows

from .. import pacers
from .control import Control, dispatched, in_runs, patched

_reserve, _change, _give_back = pacing.reserve, pacing.change, pacing.give_back
_outcomes_of = request_status.outcomes_of


def _standing(draft: Draft, op: ReserveSlots) -> Outcome:
    before, answer = draft.pacer, _reserve(draft, op)
    if draft.pacer is not before:
        draft.pacer = replace(draft.pacer, tat_us=max(before.tat_us, answer.runs[2][0]))
    return answer


def _unnumbered(draft: Draft, op: ReserveSlots) -> Outcome:
    before, answer = draft.pacer, _reserve(draft, op)
    draft.pacer = replace(draft.pacer, number=before.number) if draft.pacer is not before else before
    return answer


def _unshifted(draft: Draft, op: ChangePacer) -> Outcome:
    before, answer = draft.pacer, _change(draft, op)
    if op.paused is False and draft.pacer is not before:
        draft.pacer = replace(draft.pacer, shift_ms=before.shift_ms)
    return answer


def _any_slot_back(draft: Draft, op: ReturnSlot) -> Outcome:
    return _give_back(draft, replace(op, number=draft.pacer.number))


def _untaken_back(draft: Draft, op: ReturnSlot) -> Outcome:
    before = draft.pacer
    draft.pacer = replace(before, latest_units=op.units)
    answer = _give_back(draft, op)
    if answer.code != Code.OK:
        draft.pacer = before
    return answer


def _once_more(draft: Any, request: Any) -> bool:
    """Whatever was applied is applied again, when it comes again, by whichever way."""
    epoch = draft.epoch if isinstance(draft, State) else draft.state.epoch
    return bool(request.epoch == epoch)


def _unread(self: PacerFlows, held: Any) -> Any:
    """Nobody looks."""
    yield from ()
    return replace(held, seen=self.machine.moment())


def _by_the_wall(self: PacerWriter) -> int | None:
    told = self.store_clock()
    return self.machine.now_ms() if told is None else told


def _next_number(state: Any, request: Any) -> tuple[Outcome, ...]:
    """A caller who asks again is told what the next one gets."""
    return tuple(
        Outcome((each.runs[0], (state.pacer.number + 1, each.runs[1][1]), *each.runs[2:]))
        if each.runs and each.runs[0][0] == Code.RESERVED
        else each
        for each in _outcomes_of(state, request)
    )


def standing() -> AbstractContextManager[None]:
    """The theoretical arrival time does not move."""
    return dispatched(ReserveSlots, _standing)


def unnumbered() -> AbstractContextManager[None]:
    """The number does not grow."""
    return dispatched(ReserveSlots, _unnumbered)


def unshifted() -> AbstractContextManager[None]:
    """A resume does not move the slots."""
    return dispatched(ChangePacer, _unshifted)


def any_slot_back() -> AbstractContextManager[None]:
    """A slot may be given back although others were taken since."""
    return dispatched(ReturnSlot, _any_slot_back)


def untaken_back() -> AbstractContextManager[None]:
    """A slot may be given back with other units than it was taken with, or although no caller took it."""
    return dispatched(ReturnSlot, _untaken_back)


def applied_again() -> AbstractContextManager[None]:
    """A request that is sent again takes another slot."""
    return patched(
        (reduce, "applicable", _once_more),
        (announcements, "applicable", _once_more),
        (publications, "applicable", _once_more),
    )


def told_another() -> AbstractContextManager[None]:
    """After an ambiguous answer a caller is told of another slot than its own."""
    return patched((steps, "outcomes_of", _next_number))


def unread() -> AbstractContextManager[None]:
    """Who has waited does not look at the pacer again."""
    return patched((PacerFlows, "_look", _unread))


def late_is_no_matter() -> AbstractContextManager[None]:
    """A slot may be used at any time after it."""
    return patched((PacerFlows, "_grace_us", lambda self, row: 10**15))


def by_the_wall() -> AbstractContextManager[None]:
    """The machine's clock counts, whatever the store's says."""
    return patched((PacerWriter, "time_ms", _by_the_wall))


def pauses_at_once() -> AbstractContextManager[None]:
    """A pause returns while a holder may still start by an older look."""
    return patched((StartPace, "pause", 0.0))


def looks_are_old() -> AbstractContextManager[None]:
    """A holder starts by a look that was sent long before."""
    return patched((pacers, "FREE", replace(FREE, checked=10.0, ahead=1.0)))


def forgets_remotes() -> AbstractContextManager[None]:
    """A pause does not know of holders over an API, whose looks are older."""
    return patched((pacing, "holds_remotely", lambda row, now_ms: False))


CONTROLS: tuple[Control, ...] = (
    Control("each slot moves the next", standing, (in_runs("pacer", "too near"),)),
    Control("each slot has a number of its own", unnumbered, (in_runs("pacer", "given twice"),)),
    Control("a resume moves the slots", unshifted, (in_runs("pacer", "time leapt"),)),
    Control("only the latest slot is given back", any_slot_back, (in_runs("pacer", "too near|given back"),)),
    Control(
        "a slot is given back as it was taken",
        untaken_back,
        (in_runs("pacer", "was given back, but was not taken"),),
    ),
    Control("a request takes one slot", applied_again, (in_runs("pacer", "applied twice"),)),
    Control(
        "who asks again hears of his own slot", told_another, (in_runs("pacer", "never given|is held by"),)
    ),
    Control(
        "who has waited looks again",
        unread,
        (in_runs("pacer", "was void|was of a paused|had gone by|later|after a pause had returned"),),
    ),
    Control("a pause waits for old looks", pauses_at_once, (in_runs("pacer", "after a pause had returned"),)),
    Control(
        "a pause waits for looks over an API",
        forgets_remotes,
        (in_runs("pacer", "after a pause had returned", seed=15),),
    ),
    Control("a start needs a new look", looks_are_old, (in_runs("pacer", "was of a paused pacer"),)),
    Control("who is late takes another slot", late_is_no_matter, (in_runs("pacer", "had gone by"),)),
    Control("the store's clock bounds the machine's", by_the_wall, (in_runs("pacer", "later|had gone by"),)),
)
