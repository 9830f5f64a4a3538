"""What a pass of the reaper looks after and tells, with one check removed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import QueueFlow, Submit
from osqueue.core.state import State
from osqueue.errors import OsqueueError
from osqueue.maintenance.compaction import _Broken
from osqueue.maintenance.reaper import Reaper
from osqueue.objects import backups

from .control import Control, in_scene, patched


def lost_heads_were_never_there() -> AbstractContextManager[None]:
    """Where there is no head nothing is amiss."""

    def saved(queue: str, shard: int) -> QueueFlow[list[str]]:
        yield from ()
        return []

    return patched((backups, "saved", saved))


def tables_set_aside_in_silence() -> AbstractContextManager[None]:
    """A table that cannot be read is left as it is, and nobody is told."""

    def set_aside(self: Any, broken: _Broken, moved: bool) -> None:
        self.aside.add(broken.table.name)

    return patched((Reaper, "_set_aside", set_aside))


def stuck_in_silence() -> AbstractContextManager[None]:
    """Nobody looks whether jobs that are due can be read."""

    def stuck(self: Any, shard: int, state: State) -> QueueFlow[None]:
        yield from ()

    return patched((Reaper, "_stuck", stuck))


def troubles_forgotten() -> AbstractContextManager[None]:
    """What goes wrong in one step is forgotten when the others are done."""

    def try_(self: Any, step: QueueFlow[Any], otherwise: Any) -> QueueFlow[Any]:
        try:
            return (yield from step)
        except OsqueueError:
            return otherwise

    return patched((Reaper, "_try", try_))


def announced_requests_are_left() -> AbstractContextManager[None]:
    """A pass takes no announced requests along."""
    real = Reaper._sweep

    def sweep(self: Any, shard: int, before: Any) -> QueueFlow[Any]:
        flow, reply = real(self, shard, before), None
        while True:
            try:
                effect = flow.send(reply)
            except StopIteration as stop:
                return stop.value
            reply = yield replace(effect, look=False) if isinstance(effect, Submit) else effect

    return patched((Reaper, "_sweep", sweep))


_SILENT = "met with trouble, and told"

CONTROLS: tuple[Control, ...] = (
    Control(
        "heads that are lost are told of",
        lost_heads_were_never_there,
        (in_scene("a head is lost", _SILENT),),
    ),
    Control(
        "tables that are damaged are told of",
        tables_set_aside_in_silence,
        (in_scene("a table is damaged", _SILENT),),
    ),
    Control(
        "jobs that cannot come in are told of", stuck_in_silence, (in_scene("due, and damaged", _SILENT),)
    ),
    Control("trouble of a step is told of", troubles_forgotten, (in_scene("due, and damaged", _SILENT),)),
    Control(
        "announced requests are taken along",
        announced_requests_are_left,
        (in_scene("announced, and reaped", "left an announced request"),),
    ),
)
