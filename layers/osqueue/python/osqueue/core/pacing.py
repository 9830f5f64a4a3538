"""Pacing: callers anywhere take slots, the moments at which each of them may act, one interval apart.

A slot is a start that is taken in advance: see ``gcra``. So in any window of length W at most ``W / interval + burst``
units have their slots, and with a burst of 1 two slots are an interval apart at least.

Times here are integer microseconds of the pacer's *own time*: the head's, less all the pauses there were. It stands
still during a pause. So whoever resumes a pacer moves all slots by the length of the pause; their distances stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from . import gcra
from .draft import Draft
from .lending import borrowers_of, share_of_block
from .ops import Code, Outcome, outcome
from .queue_ops import ChangePacer, ReserveSlots, ReturnSlot
from .state import NO_PACER, PacerRow

REMOTE_REST_MS = 2_000  # that a resumed pacer stands still if a holder looks at it over an API
GRACE_US_MAX = limits.DAY_MS * 1000  # that a holder may choose


class Slot(Struct, frozen=True):
    """A moment at which its holder may act."""

    number: int  # grows with each slot of an epoch; none is given twice
    at_us: int  # in the pacer's own time
    units: int
    epoch: int


def exists(row: PacerRow) -> bool:
    """Is there a pacer?"""
    return row.interval_us > 0


def own_us(row: PacerRow, now_ms: int) -> int:
    """The pacer's own time when the head's is ``now_ms``."""
    return ((row.paused_ms or now_ms) - row.shift_ms) * 1000


def head_us(row: PacerRow, at_us: int, now_ms: int) -> int:
    """The head's time, in microseconds, of a moment of the pacer's own; of a paused one, should it go on now."""
    paused = now_ms + row.rest_ms - row.paused_ms if row.paused_ms else 0
    return at_us + (row.shift_ms + paused) * 1000


def holds_remotely(row: PacerRow, now_ms: int) -> bool:
    """Return whether a holder over an API may still start by a slot.

    A slot may be used for its grace: a day at most, or a part of the interval.
    """
    return row.remote_us > 0 and own_us(row, now_ms) < row.remote_us + GRACE_US_MAX + row.interval_us


def next_us(row: PacerRow, now_us: int) -> int:
    """The next slot, in the pacer's own time."""
    return gcra.next_us(row.tat_us, now_us, row.interval_us, row.burst)


def ahead(row: PacerRow, now_us: int) -> int:
    """How many units are reserved whose slots are still to come."""
    waiting = row.tat_us - row.burst * row.interval_us - now_us
    return max(0, -(-waiting // row.interval_us))


# ── In the head ──────────────────────────────────────────────────────────────
def change(draft: Draft, op: ChangePacer) -> Outcome:
    """Create, reset, pause, resume or remove the pacer."""
    row = draft.pacer
    if op.created is not None:
        if exists(row) and not op.reset:
            return outcome([Code.DUPLICATE])
        draft.pacer = _begun(row, op.created, draft.now)
    elif not exists(row):
        return outcome([Code.NOT_FOUND])
    elif op.removed:
        remote_us = _remote_us(row, draft.now)
        draft.pacer = replace(NO_PACER, remote_us=remote_us) if remote_us else NO_PACER
    elif op.paused and not row.paused_ms:
        rest_ms = max(op.rest_ms, REMOTE_REST_MS) if holds_remotely(row, draft.now) else op.rest_ms
        draft.pacer = replace(row, paused_ms=draft.now, rest_ms=rest_ms)
    elif op.paused is False and row.paused_ms:
        shift_ms = row.shift_ms + draft.now + row.rest_ms - row.paused_ms
        draft.pacer = replace(row, paused_ms=0, rest_ms=0, shift_ms=shift_ms)
    draft.changed |= draft.pacer is not row
    return outcome([Code.OK])


def _begun(row: PacerRow, created: PacerRow, now_ms: int) -> PacerRow:
    """A pacer that begins now. What was reserved before is void; the latest slot that was used keeps its distance."""
    now = now_ms * 1000
    used = min(max(row.tat_us - own_us(row, now_ms), 0), created.interval_us)
    remote_us = _remote_us(row, now_ms)
    return replace(
        created, tat_us=now + used, number=row.number, shift_ms=0, paused_ms=0, remote_us=remote_us
    )


def _remote_us(row: PacerRow, now_ms: int) -> int:
    """Return ``remote_us`` of a pacer that takes the place of this one: its holder may not have looked yet."""
    return now_ms * 1000 if holds_remotely(row, now_ms) else 0


def reserve(draft: Draft, op: ReserveSlots) -> Outcome:
    """Take slots: as many of those asked for as are near enough.

    The outcome holds what all of them follow from: see ``slot_of``.
    """
    row = draft.pacer
    if not exists(row):
        return outcome([Code.NOT_FOUND])
    if op.borrower:
        return _lend(draft, op)
    now = own_us(row, draft.now)
    start = now + op.lead_us
    base = max(row.tat_us, start)
    near = now + max(op.ahead_us, op.lead_us)
    count = min(op.count, gcra.allowed(row.tat_us, start, row.interval_us, row.burst, op.units, near))
    if count:
        tat = gcra.moved(row.tat_us, start, row.interval_us, count * op.units)
        draft.pacer = replace(row, tat_us=tat, number=row.number + count, latest_units=op.units)
        if op.remote:
            rest_ms = max(row.rest_ms, REMOTE_REST_MS) if row.paused_ms else row.rest_ms
            draft.pacer = replace(draft.pacer, remote_us=max(tat, 1), rest_ms=rest_ms)
        draft.changed = True
    code = Code.RESERVED if count == op.count else Code.TOO_FAR
    return Outcome(
        (
            (int(code), count),
            (row.number + 1, base),
            (start, row.epoch),
            (row.interval_us, row.burst),
        )
    )


def _lend(draft: Draft, op: ReserveSlots) -> Outcome:
    """Take slots for a shard: its share at most, and none of a paused pacer. The outcome tells the head's time."""
    row = draft.pacer
    if row.paused_ms:
        return outcome([Code.PAUSED])
    now = own_us(row, draft.now)
    start = now + op.lead_us
    borrowers = borrowers_of(row.borrowers, op.borrower, draft.now)
    at_once = gcra.allowed(row.tat_us, start, row.interval_us, row.burst)
    share = share_of_block(row.interval_us, at_once, len(borrowers))
    near = next_us(row, start) <= now + op.ahead_us  # the first of them
    count = min(op.count, share) if near else 0
    base, shift = max(row.tat_us, start), row.shift_ms * 1000
    if count:
        tat = gcra.moved(row.tat_us, start, row.interval_us, count)
        draft.pacer = replace(row, tat_us=tat, number=row.number + count, borrowers=borrowers, latest_units=0)
        draft.changed = True
    return Outcome(
        (
            (int(Code.RESERVED if count else Code.TOO_FAR), count),
            (row.number + 1, base + shift),
            (start + shift, row.epoch),
            (row.interval_us, row.burst),
        )
    )


def give_back(draft: Draft, op: ReturnSlot) -> Outcome:
    """Take the latest slot back. Its number is not given again, and nor can it be given back again."""
    row = draft.pacer
    latest = (row.epoch, row.number, row.latest_units)
    if not exists(row) or latest != (op.epoch, op.number, op.units):
        return outcome([Code.NOT_FOUND])
    tat_us = row.tat_us - op.units * row.interval_us
    draft.pacer = replace(row, tat_us=tat_us, number=row.number + 1, latest_units=0)
    draft.changed = True
    return outcome([Code.OK])


# ── What an outcome tells ────────────────────────────────────────────────────
def slot_of(op: ReserveSlots, answer: Outcome) -> Slot:
    """The first slot of an outcome: taken, where its code is RESERVED, else the one that was too far ahead."""
    (number, base), (start, epoch), (interval, burst) = answer.runs[1:]
    return Slot(number, gcra.next_us(base, start, interval, burst, op.units), op.units, epoch)


def burst_of(answer: Outcome) -> int:
    """The burst of the pacer that gave an outcome."""
    return answer.runs[3][1]


def split_slots(run: Sequence[ReserveSlots], answer: Outcome) -> list[Outcome]:
    """The outcome of each operation of a run that was made one: each has its slots, in their order."""
    if answer.code not in (Code.RESERVED, Code.TOO_FAR):
        return [answer] * len(run)
    (_, left), (number, base), *rest = answer.runs
    found: list[Outcome] = []
    for op in run:
        count = min(op.count, left)
        code = Code.RESERVED if count == op.count else Code.TOO_FAR
        found.append(Outcome(((int(code), count), (number, base), *rest)))
        left -= count
        number += count
        base += count * op.units * rest[1][0]
    return found
