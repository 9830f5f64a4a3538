"""Of one commit for several callers: was each given its own share, and nothing of another's?"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from osqueue.core.job_ops import ClaimJobs, CompleteJobs, EnqueueJobs, ExtendLeases, FailJobs
from osqueue.core.ops import Op, Outcome

from .ledger import Applied, ClientCall, Violation

_ITEMS = {EnqueueJobs: "jobs", CompleteJobs: "items", FailJobs: "items", ExtendLeases: "held"}


def check(call: ClientCall, applied: Applied, outcomes: Sequence[Outcome]) -> None:
    """Everything that the caller was told, was committed for what it asked."""
    true = _told(applied.request.ops, applied.outcomes)
    asked: dict[Hashable, int] = {}
    for thing, codes in _told(call.ops, outcomes).items():
        asked[thing] = len(codes)
        if thing not in true:
            raise Violation(f"{call.client} was answered for another's operations")
        if not codes <= true[thing]:
            raise Violation(f"{call.client} was told {codes} of {thing!r}; committed was {true[thing]}")
    granted = [(op, each) for op, each in zip(applied.request.ops, applied.outcomes, strict=True)]
    for op, told in zip(call.ops, outcomes, strict=True):
        if isinstance(op, ClaimJobs):
            _claim(call, op, told, [each for other, each in granted if isinstance(other, ClaimJobs)])


def _claim(call: ClientCall, op: ClaimJobs, told: Outcome, granted: Sequence[Outcome]) -> None:
    leases = {lease.token for each in granted for lease in each.leases if lease.worker == op.worker}
    mine = {lease.token for lease in told.leases}
    if not mine <= leases:
        raise Violation(f"{call.client} was given a lease that it was not granted")
    if len(told.leases) > op.limit:
        raise Violation(f"{call.client} claimed {op.limit} jobs and was given {len(told.leases)}")
    if len(told.leases) == op.limit:
        return
    reasons = {code for each in granted for code, _ in each.runs}
    if told.runs[-1][0] not in reasons:
        raise Violation(f"{call.client} was given too few jobs for a reason that nobody committed")


def _told(ops: Sequence[Op], outcomes: Sequence[Outcome]) -> dict[Hashable, set[Any]]:
    """The codes of every single thing that was asked for."""
    found: dict[Hashable, set[Any]] = {}
    for op, outcome in zip(ops, outcomes, strict=True):
        if not isinstance(op, ClaimJobs):
            for thing, code in _things(op, outcome):
                found.setdefault(thing, set()).add(code)
    return found


def _things(op: Op, outcome: Outcome) -> Iterator[tuple[Hashable, Any]]:
    items = _ITEMS.get(type(op))
    if items is None:
        yield repr(op), outcome.runs
        return
    for item, code in zip(getattr(op, items), outcome.codes, strict=True):
        yield (type(op).__name__, item.key, getattr(item, "token", "")), code
