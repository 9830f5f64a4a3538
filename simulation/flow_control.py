"""What flow control promises, asked of every commit: of groups, schedules, batches, and claims that find nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osqueue.core.state import State

from . import consuming, empty_claims, first_come, following, grouping, schedules
from .fairness import GroupTurns
from .ledger import RecordedReduction
from .mass_cancels import MassCancels
from .open_jobs import choice_of
from .places import JobPlace

if TYPE_CHECKING:
    from .invariants import Invariants


class FlowControl:
    """What has to be remembered for it from commit to commit, of one shard."""

    def __init__(self) -> None:
        self.cancels = MassCancels()
        self.order = grouping.GroupOrder()
        self.turns = GroupTurns()
        self.called: set[tuple[int, bytes, str]] = (
            set()
        )  # what waited for batches and came: see ``following``

    def commit(
        self,
        inv: Invariants,
        before: State | None,
        state: State,
        batch: RecordedReduction,
        found: dict[bytes, JobPlace],
    ) -> None:
        """A commit was made; ``found`` are the places of all jobs after it, ``inv.found`` those before."""
        self.cancels.commit(before, state, batch, inv.found, found)
        schedules.check(inv, before, state, batch, found)
        if before is not None:
            choice = choice_of(before, state, batch, found)
            self.turns.commit(before, state, batch, found, choice)
            if choice is not None:
                first_come.check(inv.library, before, choice)
            grouping.check_limits(before, state, batch)
            self.order.commit(before, state, batch, inv.found, found)
        following.check(inv, before, state, batch, found)
        empty_claims.check_holds(state, found)
        consuming.check(before, state, batch, found)
