"""Run-time limits and start deadlines: jobs and kinds that have some, and what must hold of them.

No attempt goes on for longer than its job allows, and none starts too late: by the head's time, in every commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from osqueue.core.queue_ops import ChangeSettings
from osqueue.core.settings import KindSettings
from osqueue.core.state import CANCELLED, PROCESSING, State, is_late

from .ledger import RecordedReduction, Violation
from .places import JobPlace


def check(
    before: State | None, state: State, batch: RecordedReduction, found: Mapping[bytes, JobPlace]
) -> None:
    """A commit was made. ``found`` is where each job lay before it."""
    held = before.leases if before is not None else {}
    for lease in state.leases.values():
        limit = lease.job.run_within_ms
        if not limit:
            continue
        if lease.until_ms < lease.started_ms + limit:
            raise Violation(
                f"an attempt may run for {lease.until_ms - lease.started_ms} ms, its job says {limit}"
            )
        known = held.get(lease.job.key)
        if known is not None and known.token == lease.token and known.until_ms != lease.until_ms:
            raise Violation("the end of an attempt was moved")
        if lease.expires_ms > lease.until_ms:
            raise Violation("a lease goes on past the run-time limit of its job")
        if lease.until_ms <= state.now_ms:
            raise Violation("an attempt is over its run-time limit, and has its lease")
    for event in batch.reduction.events:
        if event.target == PROCESSING:
            job = state.leases[event.key].job
            if is_late(job, state.now_ms):
                raise Violation("an attempt started after its deadline")
        elif event.cause == "timed_out":
            lease = held[event.key]
            if not 0 < lease.until_ms <= state.now_ms:
                raise Violation("an attempt was ended before its run-time limit")
        elif event.cause == "expired" and event.target == CANCELLED and event.key in found:
            job = found[event.key].job
            if not is_late(job, state.now_ms):
                raise Violation("a job was cancelled before its start deadline")
        elif event.cause == "replaced" and event.key in found and is_late(found[event.key].job, state.now_ms):
            raise Violation("a job was replaced after its start deadline")


def limits_of(dice: Random, share: float) -> dict[str, Any]:
    """The time limits of a new job, and what it leaves to its kind."""
    if dice.random() > share:
        return {}
    return {
        "run_within_ms": dice.choice((None, 2_000, 20_000)),
        "start_within_ms": dice.choice((None, 500, 5_000, 30_000)),
        "max_attempts": dice.choice((None, 1, 3)),
    }


def of_a_kind(dice: Random, kinds: Sequence[str]) -> ChangeSettings:
    """Give a kind limits of its own, or take them away."""
    kind = dice.choice(kinds)
    if dice.random() < 0.3:
        return ChangeSettings(kinds_dropped=(kind,))
    wished = KindSettings(
        kind,
        max_attempts=dice.choice((None, 2)),
        run_within_ms=dice.choice((None, 0, 3_000)),
        start_within_ms=dice.choice((None, 0, 10_000)),
        max_running=dice.choice((None, 0, 1, 3)),
        paused=dice.choice((None, False, False, True)),
        paused_until_ms=dice.choice((None, None, -1_000, -10_000)),
        rate=dice.choice((None, (0, 0), (1, 3_000), (2, 1_000))),
        burst=dice.choice((None, 0, 2)),
    )
    if dice.random() < 0.3:
        rate = dice.choice(((0, 0), (3, 2_000), (1, 700)))
        return ChangeSettings(
            kinds=(wished,),
            max_running=dice.choice((0, 4)),
            rate=rate,
            burst=dice.choice((0, 1, 3)),
            ageing_ms=dice.choice((0, 500, 4_000)),
        )
    return ChangeSettings(kinds=(wished,))
