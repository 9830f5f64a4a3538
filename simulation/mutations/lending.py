"""Slots that a limiter lends to shards, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import Submit
from osqueue.core import lending, pacing, reduce
from osqueue.core.draft import Draft
from osqueue.core.lending import AHEAD_US, LentSlots, runs_of
from osqueue.core.ops import Outcome
from osqueue.core.queue_ops import ReserveSlots
from osqueue.core.rates import borrowed
from osqueue.core.rows import Lent
from osqueue.operations import lending as borrowing
from osqueue.operations.claims import ClaimFlows

from ..explore_lending import explore_lending
from .control import Control, Detection, dispatched, in_runs, patched

_reserve, _rest, _take = pacing.reserve, LentSlots.rest, LentSlots.take


def _unused(self: LentSlots) -> Lent | None:
    """The head keeps all that there were."""
    return self._lent


def _undying(runs: Any, now_us: int) -> Any:
    return tuple(runs)


def _any_moment(self: LentSlots, count: int) -> None:
    runs = []
    for run in self._runs:
        taken = min(count, run.count)
        count -= taken
        runs.append(replace(run, at_us=run.at_us + taken * run.interval_us, count=run.count - taken))
    self._runs = tuple([run for run in runs if run.count])


def _unreserved(limiter: str, lender: Any, queue: str, shard: int, writer: Any, wanted: int) -> Any:
    """What the limiter would give, without asking it."""
    yield from ()
    while (head := lender.head) is None:
        yield Submit(limiter, ())
    row, now_us = head.state.pacer, lender.now_ms(head.state) * 1000
    runs = runs_of(now_us, now_us, row.interval_us, row.burst, wanted)
    return borrowing.Loan(Lent(limiter, row.epoch, runs) if row.interval_us else None)


def _deposited_again(self: ClaimFlows, shard: int, op: Any) -> Any:
    """Whoever claims once more brings the same slots along."""
    answer = yield Submit(shard, (op,))
    if op.lent is not None:
        answer = yield Submit(shard, (op,))
    return answer.outcomes[0]


def _paused_or_not(draft: Draft, op: ReserveSlots) -> Outcome:
    row = draft.pacer
    if not op.borrower or not row.paused_ms:
        return _reserve(draft, op)
    draft.pacer = replace(row, paused_ms=0)
    answer = _reserve(draft, op)
    draft.pacer = replace(draft.pacer, paused_ms=row.paused_ms)
    return answer


def _standing(draft: Draft, op: ReserveSlots) -> Outcome:
    """What was lent is lent to the next one as well."""
    row, answer = draft.pacer, _reserve(draft, op)
    draft.pacer = replace(draft.pacer, tat_us=row.tat_us) if op.borrower else draft.pacer
    return answer


def used_again() -> AbstractContextManager[None]:
    """A start leaves its slot in the head."""
    return patched((LentSlots, "rest", _unused))


def undying() -> AbstractContextManager[None]:
    """A slot may be used at any time after its moment."""
    return patched((lending, "alive", _undying))


def too_early() -> AbstractContextManager[None]:
    """A slot may be used before its moment."""
    return patched((LentSlots, "left", LentSlots.all_left), (LentSlots, "take", _any_moment))


def unreserved() -> AbstractContextManager[None]:
    """A claim deposits slots that it has not reserved."""
    return patched((borrowing, "borrow", _unreserved))


def deposited_again() -> AbstractContextManager[None]:
    """A claim that is made once more deposits once more."""
    return patched((ClaimFlows, "claim_in", _deposited_again))


def paused_or_not() -> AbstractContextManager[None]:
    """A paused limiter lends."""
    return dispatched(ReserveSlots, _paused_or_not)


def standing() -> AbstractContextManager[None]:
    """What is lent does not move the next."""
    return dispatched(ReserveSlots, _standing)


def far_ahead() -> AbstractContextManager[None]:
    """Slots are lent however far ahead they are."""
    return patched((borrowing, "AHEAD_US", 3600 * AHEAD_US))


def _forgiven(self: LentSlots) -> Lent | None:
    lent = _rest(self)
    return None if lent is None else replace(lent, owed=0)


def nothing_owed() -> AbstractContextManager[None]:
    """A job of many units uses what there is, and that is all."""
    return patched((LentSlots, "rest", _forgiven))


def _one_each(self: LentSlots, units: int) -> None:
    _take(self, min(units, 1))


def one_each() -> AbstractContextManager[None]:
    """Whatever starts together uses one slot."""
    return patched((LentSlots, "take", _one_each))


def _of_any_limiter(draft: Draft, lent: Lent) -> None:
    draft.starts = borrowed(draft.starts, lent, draft.now)
    draft.changed = True


def of_any_limiter() -> AbstractContextManager[None]:
    """A claim deposits slots of a limiter that the queue has no more."""
    return patched((reduce, "_deposit", _of_any_limiter))


def in_every_order(words: str) -> Detection:
    """Some interleaving of two claimers goes wrong."""
    name = "two shards and one slot"
    return Detection(name, lambda: explore_lending(name).violation, words)


CONTROLS: tuple[Control, ...] = (
    Control("a start uses up a slot", used_again, (in_runs("lending", "started by"),)),
    Control("a slot dies", undying, (in_runs("lending", "started by"),)),
    Control("a slot has its moment", too_early, (in_runs("lending", "started by"),)),
    Control("what is deposited was reserved", unreserved, (in_runs("lending", "nobody had reserved"),)),
    Control(
        "slots are deposited once", deposited_again, (in_runs("lending", "nobody had reserved, or twice"),)
    ),
    Control("a paused limiter lends nothing", paused_or_not, (in_runs("lending", "paused limiter lent"),)),
    Control(
        "each slot is lent to one",
        standing,
        (
            in_runs("lending", "jobs of all shards started"),
            in_every_order("jobs of all shards started|there was one slot"),
        ),
    ),
    Control(
        "what a job of many units lacks is owed",
        nothing_owed,
        (in_runs("lending units", "units were started by"),),
    ),
    Control("each unit uses up a slot", one_each, (in_runs("lending units", "units were started by"),)),
    Control("slots are of the queue's limiter", of_any_limiter, (in_runs("two limiters", "not its own"),)),
    Control("slots are lent for soon", far_ahead, (in_runs("lending", "lent for long after"),)),
)
