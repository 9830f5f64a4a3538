"""More writers than the head can remember, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from osqueue.commit import announcements, publications
from osqueue.core import draft, reduce, spill
from osqueue.core.draft import Draft
from osqueue.core.ops import Request
from osqueue.core.state import Refusals, State

from .control import Control, in_runs, patched


def refusals_ignored() -> AbstractContextManager[None]:
    """A request that was turned away is applied once there is room."""

    def applicable(found: Draft | State, request: Request) -> bool:
        row = found.sessions.get(request.env)
        epoch = found.epoch if isinstance(found, State) else found.state.epoch
        return epoch == request.epoch and request.born >= found.floor and (row is None or request.n > row.n)

    return patched(
        (reduce, "applicable", applicable),
        (announcements, "applicable", applicable),
        (publications, "applicable", applicable),
    )


def refusals_forgotten_first() -> AbstractContextManager[None]:
    """Refusals are forgotten after a while, and the floor stays where it is."""

    def kept(self: Draft) -> tuple[Refusals, ...]:
        young = tuple(each for each in self.refusals if self.now - each.at_ms < 2_000)
        fresh = (Refusals(self.state.seq + 1, self.now, frozenset(self.turned_away)),)
        return (*young, *(fresh if self.turned_away else ()))

    return patched((spill, "forget_refusals", lambda found: None), (draft.Draft, "_refusals", kept))


CONTROLS: tuple[Control, ...] = (
    Control("refusals", refusals_ignored, (in_runs("forgetful", "told that it was not"),)),
    Control(
        "refusals outlived by the floor",
        refusals_forgotten_first,
        (in_runs("forgetful", "told that it was not"),),
    ),
)
