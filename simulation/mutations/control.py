"""What a mutation is: one safety check, how to take it out, and where that is seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msgspec import Struct

from osqueue.core import reduce
from osqueue.core.draft import Draft
from osqueue.core.ops import Outcome
from osqueue.errors import OsqueueError

from .. import (
    bulk_scenes,
    collect_scenes,
    few_scenes,
    id_scenes,
    look_scenes,
    mend_scenes,
    restart_scenes,
    scenes,
    shelf_scenes,
    steer_scenes,
    too_late_scenes,
    turn_scenes,
    unique_scenes,
    upkeep_scenes,
)
from ..explore import SCENARIOS, explore
from ..ledger import Violation
from ..profile import PROFILES
from ..run import simulate
from ..scenes import Play, play

Mutation = Callable[[], AbstractContextManager[None]]

ALL_SCENES: dict[str, Callable[[Play], Any]] = {
    **scenes.SCENES,
    **upkeep_scenes.SCENES,
    **id_scenes.SCENES,
    **mend_scenes.SCENES,
    **look_scenes.SCENES,
    **bulk_scenes.SCENES,
    **collect_scenes.SCENES,
    **few_scenes.SCENES,
    **shelf_scenes.SCENES,
    **steer_scenes.SCENES,
    **turn_scenes.SCENES,
    **unique_scenes.SCENES,
    **restart_scenes.SCENES,
    **too_late_scenes.SCENES,
}
SEEDS = 9  # runs that a mutation may survive


class Detection(Struct, frozen=True):
    """Where the lack of a check is seen, and what the violation says."""

    place: str
    look: Callable[[], str]  # the violation, or nothing
    words: str  # a pattern


class Control(Struct, frozen=True):
    """One safety check."""

    name: str
    remove: Mutation
    detections: tuple[Detection, ...]


def in_runs(profile: str, words: str, *, seed: int = 0, seeds: int = SEEDS) -> Detection:
    """One of a few runs of a profile goes wrong in that way."""

    def look() -> str:
        found = ""
        for each in range(seed, seed + seeds):
            try:
                found = simulate(each, PROFILES[profile]).violation or found
            except OsqueueError as error:  # what a check met where it should not be
                found = f"{type(error).__name__}: {error}"
            if re.search(words, found):
                break
        return found

    return Detection(profile, look, words)


def in_scene(name: str, words: str) -> Detection:
    """A scene goes wrong."""

    def look() -> str:
        try:
            play(ALL_SCENES[name])
        except Violation as violation:
            return str(violation)
        return ""

    return Detection(name, look, words)


def in_interleavings(scenario: str, words: str, *, rows: bool = True) -> Detection:
    """Some interleaving of a scenario goes wrong. ``rows=False`` judges only what comes of a dropped row."""
    return Detection(scenario, lambda: explore(SCENARIOS[scenario], rows=rows).violation, words)


@contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Give names of modules or classes other values for a while."""
    before = [(home, name, getattr(home, name)) for home, name, _ in changes]
    for home, name, value in changes:
        setattr(home, name, value)
    try:
        yield
    finally:
        for home, name, value in before:
            setattr(home, name, value)


@contextmanager
def dispatched(op: type, apply: Callable[[Draft, Any], Outcome]) -> Iterator[None]:
    """Let the reducer apply an operation in another way for a while."""
    before = reduce._APPLY[op]
    reduce._APPLY[op] = apply
    try:
        yield
    finally:
        reduce._APPLY[op] = before
