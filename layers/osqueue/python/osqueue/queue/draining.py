"""Waiting until a queue, or one of its kinds, has no job left that waits or runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import limits
from ..clock import Machine
from ..commit.effects import QueueFlow, Sleep
from ..core.state import FAILING, PROCESSING, QUEUED, SCHEDULED
from ..errors import WaitTimeout
from ..model import validation

if TYPE_CHECKING:  # loaded where they are used
    from ..client.admin import RemoteAdmin as RemoteSteering
    from ..operations.admin import AdminFlows

LIVE = (PROCESSING, QUEUED, FAILING, SCHEDULED)
PAUSES_SECONDS = (0.1, 0.2, 0.5, 1.0)  # between looks; the last one from then on


def drained(
    steering: AdminFlows | RemoteSteering, machine: Machine, kind: str | None, timeout: float
) -> QueueFlow[None]:
    """Look until nothing is left. Raises WaitTimeout with what there is then."""
    kinds = None if kind is None else [validation.kind(kind)]
    until = machine.monotonic() + validation.milliseconds(timeout, "timeout", 0, limits.DAY_MS) / 1000
    looks = 0
    while left := (yield from _left(steering, kinds)):
        pause = PAUSES_SECONDS[min(looks, len(PAUSES_SECONDS) - 1)]
        remaining = until - machine.monotonic()
        if remaining <= 0:
            raise WaitTimeout(
                f"the queue is not drained: {left}. Jobs go on; wait again, or see 'osqueue queue stats'."
            )
        yield Sleep(min(pause, remaining))
        looks += 1


def _left(steering: AdminFlows | RemoteSteering, kinds: list[str] | None) -> QueueFlow[str]:
    """What is left, in words; nothing when all is done."""
    if kinds is None:
        stats: dict[str, Any] = yield from steering.stats()
        return ", ".join(f"{stats[state]:,} {state}" for state in LIVE if stats[state])
    for state in LIVE:
        cursor: str | None = None
        while True:
            found, cursor = yield from steering.jobs(state, 1, cursor, kinds=kinds)
            if found:
                return f"a job of kind {kinds[0]!r} is {state}"
            if cursor is None:
                break
    return ""
