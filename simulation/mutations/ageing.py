"""Ageing, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager

from osqueue.core import ageing, claim_search
from osqueue.core.backlog import BacklogDraft

from .control import Control, in_runs, patched

_turn_of = ageing.turn_of


def _strictly(priority: int, lane: BacklogDraft, ageing_ms: int) -> tuple[int, bytes]:
    return _turn_of(priority, lane, 10**15)


def strictly() -> AbstractContextManager[None]:
    """However long a job has waited, it is passed by all that are more urgent."""
    return patched((claim_search, "turn_of", _strictly))


CONTROLS: tuple[Control, ...] = (
    Control("who waits has its turn", strictly, (in_runs("limits", "a job was passed by one"),)),
)
