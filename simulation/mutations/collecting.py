"""The collector with one check removed: each way by which a head leads to an object, and what it must not believe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from osqueue.commit.effects import All, Flow, QueueFlow
from osqueue.core.encoding import Footer, born_of, decode_head
from osqueue.core.state import Backlog, Span, State, TableRef, referenced_objects
from osqueue.errors import OsqueueError
from osqueue.maintenance import garbage_collection
from osqueue.maintenance.garbage_collection import _Walk
from osqueue.objects import backups, finished_tables
from osqueue.objects.layout import read_state
from osqueue.objects.segments import footer
from osqueue.stores.base import Found, Get

from .control import Control, Mutation, in_scene, patched


# ── What a head leads to ─────────────────────────────────────────────────────
def in_memory_ignored(part: str) -> AbstractContextManager[None]:
    """Contents of the jobs in one part of the head itself are nobody's."""
    real = garbage_collection._in_memory

    def in_memory(state: State) -> set[str]:
        return real(replace(state, **{part: ()}))

    return patched((garbage_collection, "_in_memory", in_memory))


def pointers_ignored(without: Callable[[State], State]) -> AbstractContextManager[None]:
    """What lies below one part of the head is nobody's."""
    real = garbage_collection._pointers
    return patched((garbage_collection, "_pointers", lambda state: real(without(state))))


def _no_lanes(state: State) -> State:
    return replace(state, lanes=())


def _no_delayed(state: State) -> State:
    return replace(state, delayed=replace(state.delayed, spans=()))


def _no_dead(state: State) -> State:
    return replace(state, dead=Backlog())


def _no_tables(state: State) -> State:
    return replace(state, tables=())


def indexes_unread(of: type[Span | TableRef]) -> AbstractContextManager[None]:
    """Nobody looks into indexes of this kind."""
    real = _Walk._below

    def below(self: _Walk, pointer: Span | TableRef) -> Flow[Sequence[Span | TableRef] | OsqueueError]:
        if pointer.level and isinstance(pointer, of):
            return ()
        return (yield from real(self, pointer))

    return patched((_Walk, "_below", below))


def payloads_in_segments() -> AbstractContextManager[None]:
    """Nobody looks for the payloads of jobs in segments."""

    def without_bodies(root: str, span: Span) -> Flow[Footer]:
        return replace((yield from footer(root, span)), bodies=())

    return patched((garbage_collection, "footer", without_bodies))


def results_in_tables() -> AbstractContextManager[None]:
    """Nobody looks for the results in tables."""

    def bodies_of(root: str, table: TableRef) -> Flow[tuple[str, ...]]:
        yield from ()
        return ()

    return patched((finished_tables, "bodies_of", bodies_of))


def backups_ignored() -> AbstractContextManager[None]:
    """What only a backup of the head leads to is nobody's."""

    def recent(queue: str, shard: int) -> QueueFlow[list[State]]:
        yield from ()
        return []

    return patched((garbage_collection, "recent", recent))


def vectors_of_other_heads() -> AbstractContextManager[None]:
    """Of one segment there is one deletion vector."""
    met: set[str] = set()

    def beside_first(pointer: Span | TableRef) -> set[str]:
        found = set[str]() if pointer.name in met else referenced_objects(pointer)
        met.add(pointer.name)
        return found

    return patched((garbage_collection, "referenced_objects", beside_first))


# ── What nobody can tell ─────────────────────────────────────────────────────
def unread_leads_nowhere() -> AbstractContextManager[None]:
    """What cannot be read leads to nothing."""
    real = _Walk.spare

    def spare(self: Any, state: State, older: Sequence[State]) -> Flow[None]:
        yield from real(self, state, older)
        self.unread.clear()

    return patched((_Walk, "spare", spare))


def silent_backups_ignored() -> AbstractContextManager[None]:
    """A backup that the store does not tell of leads to nothing."""

    def recent(queue: str, shard: int) -> QueueFlow[list[State]]:
        replies = yield All(tuple(map(Get, (yield from backups.saved(queue, shard)))))
        return [decode_head(each.body) for each in replies if isinstance(each, Found)]

    return patched((garbage_collection, "recent", recent))


def no_head_leads_nowhere() -> AbstractContextManager[None]:
    """A head that is gone leads to nothing."""

    def read(queue: str, shard: int) -> QueueFlow[State | None]:
        state = yield from read_state(queue, shard)
        return State(commit=bytes(16), epoch=0) if state is None else state

    return patched((garbage_collection, "read_state", read))


def strangers_are_old() -> AbstractContextManager[None]:
    """An object whose name does not tell when it was born is as old as can be."""
    return patched((garbage_collection, "born_of", lambda name: max(0, born_of(name))))


def _needed(name: str, remove: Mutation) -> Control:
    return Control(name, remove, (in_scene("collected as all is needed", "invariant 8"),))


CONTROLS: tuple[Control, ...] = (
    _needed("payloads in the head", partial(in_memory_ignored, "lanes")),
    _needed("results in the head", partial(in_memory_ignored, "finished")),
    _needed("segments of lanes", partial(pointers_ignored, _no_lanes)),
    _needed("segments of delayed jobs", partial(pointers_ignored, _no_delayed)),
    _needed("segments of dead letters", partial(pointers_ignored, _no_dead)),
    _needed("tables of finished jobs", partial(pointers_ignored, _no_tables)),
    _needed("segments in indexes", partial(indexes_unread, Span)),
    _needed("tables in indexes", partial(indexes_unread, TableRef)),
    _needed("payloads of segments", payloads_in_segments),
    _needed("results of tables", results_in_tables),
    Control(
        "what backups lead to", backups_ignored, (in_scene("restored once collected", "lost with a restore"),)
    ),
    Control(
        "vectors that backups lead to",
        vectors_of_other_heads,
        (in_scene("restored beside another vector", "restore"),),
    ),
    Control(
        "backups that cannot be read",
        silent_backups_ignored,
        (in_scene("restored once the store was silent", "lost with a restore"),),
    ),
    Control("what cannot be read", unread_leads_nowhere, (in_scene("collected in the dark", "invariant 8"),)),
    Control(
        "a head that is gone", no_head_leads_nowhere, (in_scene("collected without a head", "invariant 8"),)
    ),
    Control(
        "objects of others",
        strangers_are_old,
        (in_scene("collected beside a stranger", "none of the queue's"),),
    ),
)
