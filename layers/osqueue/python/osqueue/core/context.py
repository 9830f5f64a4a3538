"""What a reduction is given besides the state and the requests, and what it wants to be written before its commit."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from .backlog import Blocks

# (cron, zone, every_ms, after_ms, until_ms, most): the latest ticks of that time, at most so many, and the first one
# behind it, 0 where there is none. None: nobody here knows the time zone.
TicksOf = Callable[[str, str, int, int, int, int], tuple[tuple[int, ...], int] | None]


def no_ticks(*_: object) -> None:
    """Nobody knows any time zone."""


class ReductionContext(Struct, frozen=True):
    """Everything a reduction may know besides the state and the requests: all of it chosen outside."""

    now_ms: int  # the commit's time; a time before the head's own is ignored
    commit: bytes  # the new commit id, 16 random bytes
    chance: int  # 64 random bits that name whatever this reduction spills
    blocks: Blocks = {}  # what was read from segments so far
    unreadable: frozenset[tuple[str, int]] = frozenset()  # places that cannot be read: go on without
    observed: bool = True  # somebody wants to know the transitions
    latest_ms: int = 0  # the latest that the store's clock may show at that time; never before ``now_ms``
    ticks: TicksOf = no_ticks  # when the ticks of a schedule are
    wakes: bool = False  # can its writer invoke functions?
    again: bool | None = None  # its writer committed just before; None: writers do not publish here


class StagedObject(Struct, frozen=True):
    """An immutable object to write before the commit that refers to it."""

    name: str
    body: bytes
