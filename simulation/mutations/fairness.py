"""Fairness of groups, with one check removed at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec.structs import replace

from osqueue import limits
from osqueue.core import mixed
from osqueue.core.fairness import FairSearch, FairShare
from osqueue.core.labels import narrowed
from osqueue.core.mixed import MixedDraft, Wanted
from osqueue.core.state import Labels

from .control import Control, in_runs, patched

FEWER = "while one of .* waited, of which"


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


CONTROLS: tuple[Control, ...] = (
    Control("groups of which fewer run go first", only_in_turn, (in_runs("fair", FEWER),)),
    Control("a fair claim counts what it starts itself", not_counted, (in_runs("fair", FEWER),)),
    Control("labels are narrowed when all was looked at", narrowed_at_once, (in_runs("fair", ""),)),
    Control("labels lose what was looked for alone", emptied, (in_runs("fair", ""),)),
)
