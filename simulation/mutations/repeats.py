"""What makes a repeated call over the API harmless, removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

from osqueue.client import call
from osqueue.commit.effects import QueueFlow
from osqueue.core.job_ops import Completion
from osqueue.core.state import State
from osqueue.operations.endings import EndingFlows
from osqueue.server import flows

from .control import Control, in_runs, patched


def keys_of_the_server() -> AbstractContextManager[None]:
    """Whoever calls, the server draws the keys of the jobs."""
    return patched((flows, "_drawn", lambda job: None))


def keys_in_the_head_alone() -> AbstractContextManager[None]:
    """A key counts as new unless its job stands in the head."""

    def outside(root: str, state: State, keys: Collection[bytes]) -> QueueFlow[set[bytes]]:
        yield from ()
        return set()

    return patched((flows, "_outside", outside))


def claims_repeated() -> AbstractContextManager[None]:
    """A claim whose answer was lost is sent again."""
    return patched((call, "repeatable", lambda route, failure: True))


def endings_forgotten() -> AbstractContextManager[None]:
    """A completion is told lost although it repeats the one that won."""

    def won_before(self: Any, shard: int, items: Sequence[Completion]) -> QueueFlow[list[bool]]:
        yield from ()
        return [False] * len(items)

    return patched((EndingFlows, "_won_before", won_before))


CONTROLS: tuple[Control, ...] = (
    Control("keys that clients draw", keys_of_the_server, (in_runs("remote", "came in|no job of its own"),)),
    Control(
        "keys wherever they are",
        keys_in_the_head_alone,
        (in_runs("remote", "accepted a second time|came in twice|in two places"),),
    ),
    Control("claims are not repeated", claims_repeated, (in_runs("remote", "was not told of"),)),
    Control("completions look back", endings_forgotten, (in_runs("remote", "told that its lease was lost"),)),
)
