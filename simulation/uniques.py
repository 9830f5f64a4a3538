"""Unique ids: callers who ask that an id be taken for less or for longer, and jobs that take the place of others.

At most one job of an id waits, but for those that went back to wait after another had been allowed behind them. A
replacement is whole: the old job waited until its commit and is over with it, the new one is there from it on. An id is
never free while the job that took the place of the one that it stands for is under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from osqueue.core.job_ops import JobSpec, ReplaceJobs, Replacement
from osqueue.core.ops import Code
from osqueue.core.state import FAILING, PROCESSING, QUEUED, SCHEDULED
from osqueue.model.unique import RESTART, Unique

from .ledger import RecordedReduction, Violation

WAITING = (SCHEDULED, QUEUED, FAILING)
TAKEN = (Code.QUEUED, Code.SCHEDULED)
WINDOWS_SECONDS = (None, None, None, 5.0, 90.0)


def replacements(batch: RecordedReduction) -> Iterator[tuple[Replacement, Code]]:
    """What a commit was asked to replace, and its answers."""
    for request in batch.requests:
        outcomes = batch.reduction.outcomes.get(request.identity, ())
        for op, answer in zip(request.ops, outcomes, strict=False):
            if isinstance(op, ReplaceJobs):
                yield from zip(op.items, answer.codes, strict=True)


def check(batch: RecordedReduction) -> None:
    """Check that each replacement of a commit is whole, and that no job is postponed for too long."""
    for job in batch.reduction.state.delayed.jobs:
        if 0 < job.due_by_ms < job.due_ms and not job.history:  # it has not been put off by a worker
            raise Violation(f"a job was postponed {job.due_ms - job.due_by_ms} ms beyond its longest wait")
    came = {event.key for event in batch.reduction.events if event.cause == "replace"}
    ended = {event.key for event in batch.reduction.events if event.cause == "replaced"}
    news = {item.new.key for item, code in replacements(batch) if code in TAKEN}
    heirs = {row.key: row.successor for row in batch.reduction.state.finished if row.key in ended}
    if came != news or set(heirs.values()) != news or len(ended) != len(news):
        raise Violation(f"{len(news)} jobs were to take a place; {len(came)} came for {len(ended)} that went")


def may_come_beside(new: JobSpec, state: str) -> bool:
    """Does the rule of a new job let it in while the one before it is there? To restart that is to ask it to end."""
    if new.unique is not None and new.unique.on_duplicate == RESTART and state == PROCESSING:
        return False
    held = "" if new.unique is None else new.unique.while_
    return (held == "waiting" and state not in WAITING) or (
        held == "live" and state not in (*WAITING, PROCESSING)
    )


def unique_of(dice: Random, share: float) -> dict[str, Any]:
    """What a caller says of an id, and what goes with it."""
    if dice.random() > share:
        return {}
    what = dice.choice((None, "replace", "replace", "debounce", "debounce"))
    rule: dict[str, Any] = {
        "while_": dice.choice((None, "kept", "live", "waiting")),
        "window": dice.choice(WINDOWS_SECONDS),
        "on_duplicate": what,
    }
    if what == "debounce":
        rule["max_wait"] = dice.choice((None, 20.0))
        return {"unique": Unique(**rule), "delay": dice.choice((1.0, 8.0))}
    return {"unique": Unique(**rule)}
