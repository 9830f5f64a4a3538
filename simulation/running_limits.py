"""Running limits: no commit starts more than may run, of the queue or of a kind, and nothing of a paused kind."""

from __future__ import annotations

from collections import Counter

from osqueue.core.gate import share_of
from osqueue.core.state import PROCESSING, QueueSettings, State

from .ledger import RecordedReduction, Violation


def check(before: State, state: State, batch: RecordedReduction) -> None:
    """A commit was made. What changed the settings in it may have come before its claims, or after them."""
    started = Counter(each.kind for each in batch.reduction.events if each.target == PROCESSING)
    if not started:
        return
    known = (before.settings, state.settings)
    running = Counter(lease.job.kind for lease in state.leases.values())
    most = max(_most(each.max_running, each) for each in known)
    if sum(running.values()) > most:
        raise Violation(f"{sum(running.values())} jobs run, {most} may")
    for kind in started:
        rows = [[row for row in each.kinds if row.kind == kind] for each in known]
        limits = [
            _most(row[0].max_running or 0 if row else 0, each) for row, each in zip(rows, known, strict=True)
        ]
        if running[kind] > max(limits):
            raise Violation(f"{running[kind]} jobs of kind {kind!r} run, {max(limits)} may")
        if all(row and row[0].paused for row in rows):
            raise Violation(f"a job of kind {kind!r} started, which is paused")


def _most(limit: int, settings: QueueSettings) -> int:
    return share_of(limit, settings) if limit else 1 << 62
