"""Running limits: no commit starts more than may run, of the queue or of a kind, and nothing of a paused kind."""

from __future__ import annotations

from collections import Counter

from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.rates import share_of
from osqueue.core.settings import KindSettings, QueueSettings
from osqueue.core.state import PROCESSING, State

from .ledger import RecordedReduction, Violation


def check(before: State, state: State, batch: RecordedReduction) -> None:
    """A commit was made. What changed the settings in it may have come before its claims, between them, or after."""
    _pauses(before, state, batch)
    started = Counter(each.kind for each in batch.reduction.events if each.target == PROCESSING)
    if not started:
        return
    known = (before.settings, state.settings)
    changes = [op for each in batch.requests for op in each.ops if isinstance(op, ChangeSettings)]
    resumed = {
        row.kind for op in changes for row in op.kinds if row.paused is False
    }  # perhaps paused again since
    resumed |= {kind for op in changes for kind in op.kinds_dropped}
    running = Counter(lease.job.kind for lease in state.leases.values())
    stood = [op.max_running for op in changes if op.max_running is not None]
    most = max(_most(limit, each) for each in known for limit in (each.max_running, *stood))
    if sum(running.values()) > most:
        raise Violation(f"{sum(running.values())} jobs run, {most} may")
    for kind in started:
        rows = [[row for row in each.kinds if row.kind == kind] for each in known]
        stood = [row.max_running or 0 for op in changes for row in op.kinds if row.kind == kind]
        limits = [
            _most(limit, each)
            for row, each in zip(rows, known, strict=True)
            for limit in (row[0].max_running or 0 if row else 0, *stood)
        ]
        if running[kind] > max(limits):
            raise Violation(f"{running[kind]} jobs of kind {kind!r} run, {max(limits)} may")
        if all(row and _is_paused(row[0], state.now_ms) for row in rows) and kind not in resumed:
            raise Violation(f"a job of kind {kind!r} started, which is paused")
    if all(_is_paused(each, state.now_ms) for each in known) and all(
        op.paused is not False for op in changes
    ):
        raise Violation(f"{sum(started.values())} jobs started, and the queue is paused")


def _pauses(before: State, state: State, batch: RecordedReduction) -> None:
    """None outlives its end, and none ends before it, unless somebody says so."""
    ends = _ends(state.settings)
    if late := [kind for kind, end in ends.items() if end <= state.now_ms]:
        raise Violation(f"the pause of {late} is over, and stands")
    told = any(isinstance(op, ChangeSettings) for each in batch.requests for op in each.ops)
    for kind, end in _ends(before.settings).items():
        if not told and kind not in ends and end > state.now_ms:
            raise Violation(f"the pause of {kind!r} ended {end - state.now_ms} ms early")
        if not told and 0 < ends.get(kind, 0) < end:
            raise Violation(f"the pause of {kind!r} was made {end - ends[kind]} ms shorter")
    for kind in _endless(before.settings) & ends.keys():
        if not told:
            raise Violation(f"the pause of {kind!r}, which somebody has to end, was given an end")


def _endless(settings: QueueSettings) -> set[str | None]:
    """What is paused until somebody resumes it."""
    kinds: set[str | None] = {row.kind for row in settings.kinds if row.paused and not row.paused_until_ms}
    return kinds | ({None} if settings.paused and not settings.paused_until_ms else set())


def _ends(settings: QueueSettings) -> dict[str | None, int]:
    """When pauses end: of the queue (None) and of kinds."""
    ends: dict[str | None, int] = {row.kind: row.paused_until_ms or 0 for row in settings.kinds}
    ends[None] = settings.paused_until_ms
    return {kind: end for kind, end in ends.items() if end}


def _is_paused(row: KindSettings | QueueSettings, now_ms: int) -> bool:
    """Is it paused, and the pause not over by the head's time?"""
    return bool(row.paused) and not 0 < (row.paused_until_ms or 0) <= now_ms


def _most(limit: int, settings: QueueSettings) -> int:
    return share_of(limit, settings) if limit else 1 << 62
