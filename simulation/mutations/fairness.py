"""Fairness of groups, with one check removed at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from msgspec.structs import replace

from osqueue import limits
from osqueue.core import mixed
from osqueue.core.fairness import FairSearch, FairShare
from osqueue.core.labels import narrowed
from osqueue.core.mixed import MixedDraft, Wanted
from osqueue.core.rows import NO_ROUND, Round
from osqueue.core.state import Labels

from .control import Control, in_runs, patched

FEWER = "while one of .* waited, of which"
TURN = "while one of .* waited, whose turn it was"


_opens = FairSearch.opens


def _whoever_is_due(search: FairSearch, group: bytes) -> bool:
    search._level = limits.RUNNING_MAX
    return _opens(search, group)


def only_in_turn() -> AbstractContextManager[None]:
    """Groups take turns, however many of their jobs run."""
    return patched((FairSearch, "opens", _whoever_is_due))


def _not_counted(share: FairShare, group: bytes) -> None:
    share._served = {**share._served, group: None}


def not_counted() -> AbstractContextManager[None]:
    """What a claim starts itself is not counted."""
    return patched((FairShare, "take", _not_counted))


def _at_once(lane: MixedDraft, at: int, wanted: Wanted) -> None:
    span = lane.spans[at]
    if span.labels and wanted.passed.get(span.name):
        lane.spans[at] = replace(span, labels=narrowed(span.labels, wanted))


def narrowed_at_once() -> AbstractContextManager[None]:
    """The labels of a segment are narrowed before all of it was looked at."""
    return patched((MixedDraft, "_narrow", _at_once))


def _emptied(labels: Labels, wish: Wanted) -> Labels:
    return Labels()


def emptied() -> AbstractContextManager[None]:
    """A segment in which there is nothing that is wanted tells of nothing else either."""
    return patched((mixed, "narrowed", _emptied))


def _by_age(share: FairShare, groups: Sequence[bytes], count: int) -> Sequence[bytes]:
    return groups


def by_age() -> AbstractContextManager[None]:
    """Where as many run of several groups, that of the oldest job goes first."""
    return patched((FairShare, "next_of", _by_age))


def _all_are_due(share: FairShare, group: bytes) -> bool:
    return True


def all_are_due() -> AbstractContextManager[None]:
    """A group that had its turn is asked for with those that had none."""
    return patched((FairShare, "is_due", _all_are_due))


def _no_round(share: FairShare) -> Round:
    return NO_ROUND


def turns_forgotten() -> AbstractContextManager[None]:
    """The next claim does not know who had a turn."""
    return patched((FairShare, "round", _no_round))


CONTROLS: tuple[Control, ...] = (
    Control("groups of which fewer run go first", only_in_turn, (in_runs("fair", FEWER),)),
    Control(
        "a fair claim counts what it starts itself", not_counted, (in_runs("fair", FEWER, seeds=30, seed=11),)
    ),
    Control("ties take turns", by_age, (in_runs("groups in turn", TURN),)),
    Control("who had no turn goes first", all_are_due, (in_runs("groups in turn", TURN),)),
    Control("heads keep whose turn it was", turns_forgotten, (in_runs("groups in turn", TURN),)),
    Control("labels are narrowed when all was looked at", narrowed_at_once, (in_runs("fair", ""),)),
    Control("labels lose what was looked for alone", emptied, (in_runs("fair", ""),)),
)
