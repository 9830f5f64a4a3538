"""Operations that are alike, made one: ten callers who claim a job each claim ten jobs together.

A batch carries operations of many callers. Only neighbours are coalesced, so all of them are applied in the order in
which they were asked for, and each caller gets what it would have got alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate, chain, groupby
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from ..core.job_ops import ClaimJobs, CompleteJobs, EnqueueJobs, ExtendLeases, FailJobs
from ..core.ops import Code, Op, Outcome, outcome
from ..core.pacing import split_slots
from ..core.queue_ops import ReserveSlots

OpRun = list[Any]  # neighbours that are alike

_FIELDS: dict[type, str] = {
    EnqueueJobs: "jobs",
    CompleteJobs: "items",
    FailJobs: "items",
    ExtendLeases: "held",
}
_ITEMS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    kind: attrgetter(field) for kind, field in _FIELDS.items()
}


def runs_of(ops: Sequence[Op]) -> list[OpRun]:
    """The operations in their order, those that can be made one together."""
    return [list(run) for _, run in groupby(ops, _likeness)]


def _likeness(op: Any) -> Hashable:
    """Equal for operations that differ in nothing but their items, or in how many jobs or slots they take."""
    kind = type(op)
    if kind is ClaimJobs:
        if op.lent is not None or op.use is not None:  # its slots, or its ticket, are its own
            return object()
        return op.worker, op.lease_ms, op.kinds
    if kind is ExtendLeases:
        return kind, op.lease_ms
    if kind is ReserveSlots:
        # A reservation of a borrower belongs to its shard.
        return object() if op.borrower else (kind, op.units, op.ahead_us, op.remote)
    return kind if kind in _FIELDS else object()


def coalesced(run: OpRun) -> Op:
    """One operation that does what all of a run do, one after the other."""
    first: Op = run[0]
    if len(run) == 1:
        return first
    if isinstance(first, ClaimJobs):
        return replace(first, limit=sum([op.limit for op in run]))
    if isinstance(first, ReserveSlots):
        return replace(first, count=sum([op.count for op in run]), lead_us=max([op.lead_us for op in run]))
    kind = type(first)
    items = tuple(chain.from_iterable(map(_ITEMS[kind], run)))
    return replace(first, **{_FIELDS[kind]: items})


def split_outcomes(run: OpRun, answer: Outcome) -> Sequence[Outcome]:
    """The outcome of each operation of a run."""
    if len(run) == 1:
        return (answer,)
    if isinstance(run[0], ClaimJobs):
        return _leases_shared(run, answer)
    if isinstance(run[0], ReserveSlots):
        return split_slots(run, answer)
    items = _ITEMS[type(run[0])]
    sizes = [len(items(op)) for op in run]
    if len(answer.runs) == 1:  # all went the same way
        code = answer.runs[0][0]
        return [Outcome(((code, size),)) for size in sizes]
    codes, ends = answer.codes, accumulate(sizes)
    return [outcome(codes[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def _leases_shared(run: OpRun, answer: Outcome) -> list[Outcome]:
    reason = answer.runs[-1]  # why there were no more, if some did not get all they asked for
    found: list[Outcome] = []
    at = 0
    for op in run:
        leases = answer.leases[at : at + op.limit]
        at += op.limit
        granted = ((int(Code.GRANTED), len(leases)),) if leases else ()
        found.append(Outcome(granted if len(leases) == op.limit else (*granted, reason), leases))
    return found
