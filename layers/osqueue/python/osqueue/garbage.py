"""Collecting what nobody refers to: segments, bodies and tables of commits that were lost or have moved on.

Safe against any writer, however long it stalls: first ``gc_floor`` is committed, which makes the reducer refuse
every reference to an object born before it, and only then are objects below it deleted that neither the head nor
a recent backup of it names. Where something cannot be read that might name objects of a folder, nothing of that
folder is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import finished, limits, segments
from .backup import recent
from .commit.effects import Flow, together
from .core.ops import RaiseGcFloor
from .core.state import Body, Span, State, Table, beside, jobs_in_memory
from .core.tables import FOLDER as TABLES
from .core.wire import born_of
from .errors import Damaged, NewerFormat, NotFound, OsqueueError
from .segments import footer
from .shards import QueueFlow, Submit, read_state, root_of, unavailable
from .stores.base import Delete, Deleted, List, Listed

DELETES_PER_REQUEST = 1_000
LOOKS_MAX = 5  # at a head that moves on while what it names is looked up
SEGMENTS, BODIES, FINISHED = "segments/", "bodies/", f"{TABLES}/"
FOLDERS = (SEGMENTS, BODIES, FINISHED)


def collect(queue: str, shard: int, before: State) -> QueueFlow[int]:
    """Delete what has been idle for long; answers how many objects. Once an hour there is something to do.

    Raises, in the end, what kept it from looking into an object.
    """
    floor = _old_seq(before)
    if floor <= before.gc_floor:
        return 0
    yield Submit(shard, (RaiseGcFloor(floor),))
    root = root_of(queue, shard)
    named = Named(root)
    backups = yield from recent(queue, shard)
    state = yield from read_state(queue, shard)
    trouble: OsqueueError | None = None
    for _ in range(LOOKS_MAX):
        if state is None:
            return 0
        trouble = yield from named.add(state, *backups)
        if not isinstance(trouble, NotFound):
            break
        before, state = state, (yield from read_state(queue, shard))
        if state is not None and state.commit == before.commit:
            trouble = segments.lost(trouble, queue)
            break
    if state is None:
        return 0
    count = 0
    for folder in FOLDERS:
        if folder not in named.unknown:
            count += yield from _collect(root, folder, state.gc_floor, named.names)
    if trouble is not None:
        raise trouble
    return count


def _old_seq(state: State) -> int:
    """The newest commit known to be older than the horizon."""
    old = [seq for ms, seq in state.marks if ms <= state.now_ms - limits.GC_HORIZON_MS]
    return max(old, default=0)


def _collect(root: str, folder: str, floor: int, named: set[str]) -> QueueFlow[int]:
    count = 0
    after = ""
    while True:
        listed = yield List(root + folder, after=after)
        if not isinstance(listed, Listed):
            raise unavailable(listed, "the list of staged objects")
        found = [key[len(root) :] for key in listed.keys]
        # Names sort by birth: from the first that is too young on, all are.
        old = [name for name in found if 0 <= born_of(name) < floor]
        count += yield from delete([root + name for name in old if name not in named])
        if not listed.more or any(born_of(name) >= floor for name in found):
            return count
        after = listed.keys[-1]


def delete(keys: Sequence[str]) -> QueueFlow[int]:
    """Delete objects; answers how many are gone for certain."""
    count = 0
    for at in range(0, len(keys), DELETES_PER_REQUEST):
        group = tuple(keys[at : at + DELETES_PER_REQUEST])
        if isinstance((yield Delete(group)), Deleted):
            count += len(group)
    return count


class Named:
    """The names of all objects that some states refer to, directly or not. Each object is looked into once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.names: set[str] = set()
        self.unknown: set[str] = set()  # folders of which not all names could be found out
        self._seen: set[str] = set()  # pointers that were followed

    def add(self, state: State, *older: State) -> Flow[OsqueueError | None]:
        """Add what a state names, and states before it, whose objects may be gone. Answers the first trouble."""
        self.unknown.clear()
        current = _pointers(state)
        for each in (state, *older):
            self.names |= _in_memory(each)
        known = {pointer.name for pointer in current}
        past = {pointer.name: pointer for each in older for pointer in _pointers(each)}
        for each in older:
            self.names.update(*map(beside, _pointers(each)))
        wanted = [*current, *(pointer for name, pointer in past.items() if name not in known)]
        errors = yield from together([self._follow(pointer) for pointer in wanted])
        trouble: OsqueueError | None = None
        for pointer, error in zip(wanted, errors, strict=True):
            if error is not None and (pointer.name in known or not isinstance(error, NotFound)):
                self.unknown |= _folders(pointer)
                trouble = trouble or error
        return trouble

    def _follow(self, pointer: Span | Table) -> Flow[OsqueueError | None]:
        """Add what is at or below a pointer; what keeps it from that."""
        self.names |= beside(pointer)  # under one name there may be several, each with another vector
        if pointer.name in self._seen:
            return None
        self.names.add(pointer.name)
        try:
            below: Sequence[Span | Table] = ()
            if isinstance(pointer, Table):
                if pointer.level:
                    below = yield from finished.children(self.root, pointer)
                elif pointer.bodies:
                    self.names.update((yield from finished.bodies_of(self.root, pointer)))
            elif pointer.level:
                below = yield from segments.children(self.root, pointer)
            elif pointer.bodies:
                self.names.update((yield from footer(self.root, pointer)).bodies)
        except (Damaged, NewerFormat, NotFound) as error:
            return error
        errors = [each for each in (yield from together([self._follow(child) for child in below])) if each]
        if not errors:
            self._seen.add(pointer.name)
            return None
        return next((each for each in errors if not isinstance(each, NotFound)), errors[0])


def _pointers(state: State) -> list[Span | Table]:
    lanes = [span for lane in state.lanes for span in lane.backlog.spans]
    return [*lanes, *state.delayed.spans, *state.dead.spans, *state.tables]


def _in_memory(state: State) -> set[str]:
    found = {job.payload.name for _, job in jobs_in_memory(state) if isinstance(job.payload, Body)}
    return found | {row.result.name for row in state.finished if isinstance(row.result, Body)}


def _folders(pointer: Span | Table) -> set[str]:
    """Where that may lie what is below a pointer."""
    found = {BODIES} if pointer.bodies else set[str]()
    if pointer.level:
        found.add(FINISHED if isinstance(pointer, Table) else SEGMENTS)
    return found
