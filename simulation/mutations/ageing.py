"""Ageing, with one check removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from osqueue.core import ageing, reduce
from osqueue.core.backlog import BacklogDraft

from .control import Control, in_runs, patched

_in_turn = ageing.in_turn


def _strictly(
    lanes: Mapping[tuple[int, str], BacklogDraft], ageing_ms: int, may_start: Callable[[str], bool]
) -> list[BacklogDraft]:
    return _in_turn(lanes, 10**15, may_start)


def strictly() -> AbstractContextManager[None]:
    """However long a job has waited, it is passed by all that are more urgent."""
    return patched((reduce, "in_turn", _strictly))


CONTROLS: tuple[Control, ...] = (
    Control("who waits has its turn", strictly, (in_runs("limits", "a job was passed by one"),)),
)
