"""What flow control promises, asked of every commit: of groups, schedules, batches, and claims that find nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osqueue.core.state import State

from . import consuming, empty_claims, following, grouping, schedules
from .ledger import RecordedReduction
from .places import JobPlace

if TYPE_CHECKING:
    from .invariants import Invariants


def check(
    inv: Invariants,
    before: State | None,
    state: State,
    batch: RecordedReduction,
    found: dict[bytes, JobPlace],
) -> None:
    """A commit was made; ``found`` are the places of all jobs after it, ``inv.found`` those before."""
    inv.cancels.commit(before, state, batch, inv.found, found)
    schedules.check(inv, before, state, batch, found)
    grouping.check(before, state, batch, found)
    following.check(inv, before, state, batch, found)
    empty_claims.check_holds(state, found)
    consuming.check(before, state, batch, found)
