"""An archive in a store of its own, with one rule of the way between the two removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from osqueue.commit.effects import Flow
from osqueue.maintenance import two_clocks
from osqueue.stores.base import BACKUPS, Found, Get, Store, StoreRequest
from osqueue.stores.split import SplitStore

from .control import Control, in_runs, patched

RUNS = partial(in_runs, "two stores")


def backups_read_beside_heads() -> AbstractContextManager[None]:
    """Copies of heads are written to the second store, and read in the first."""
    real = SplitStore._alone

    def alone(self: SplitStore, request: StoreRequest) -> Store | None:
        if isinstance(request, Get) and request.key.startswith(BACKUPS):
            return self.first
        return real(self, request)

    return patched((SplitStore, "_alone", alone))


def hours_by_the_archives_clock() -> AbstractContextManager[None]:
    """A part lies in the hour that the archive's own clock shows."""
    return patched((SplitStore, "_told", lambda self, store, reply: reply))


def copies_as_old_as_their_store_says() -> AbstractContextManager[None]:
    """A restore takes the other clock's word on when a backup was made."""

    def made_ms(queue: str, shard: int, copy: Found, now_ms: int) -> Flow[int]:
        yield from ()
        return copy.modified_ms

    return patched((two_clocks, "made_ms", made_ms))


CONTROLS: tuple[Control, ...] = (
    Control(
        "backups are read where they are written",
        backups_read_beside_heads,
        (RUNS("was purged, and can be read in backup/", seed=17, seeds=1),),
    ),
    Control(
        "hours go by the clock of heads",
        hours_by_the_archives_clock,
        (RUNS("in an hour (before its jobs finished|that is yet to come)", seeds=2),),
    ),
    Control(
        "backups are as old as the clock of heads says",
        copies_as_old_as_their_store_says,
        (RUNS("count as archived and are in no part", seed=109, seeds=1),),
    ),
)
