"""Collecting unreferenced objects: segments, bodies and tables of commits that were lost, or that later ones replaced.

Nothing ever refers to event objects, so all of them go once they are old: that is how long transitions are kept. Nor to
what was uploaded to the API.

    list      names of objects older than the horizon, ``NAMES_MAX`` of them at most
    raise     ``gc_floor`` is committed: from now on the reducer refuses every new reference to an object so old
    spare     whatever the head as it is now, or a recent backup of it, refers to, directly or not
    delete    the rest

Safe against any writer, however long it stalls. Once the floor is committed, no commit can add a reference to a listed
name. So an object is garbage for good when a head that was read after that does not refer to it. Where an object cannot
be read that might refer to objects of a folder, nothing of that folder is deleted.

An hour's work begins when the floor can rise. One pass may leave names to the next: the commit that raises the floor
says behind which name the next pass begins (``gc_after``). That name decides the order and nothing else. So one pass
holds at most ``NAMES_MAX`` names and a few footers in memory, however many objects there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import limits
from ..commit.effects import Flow, QueueFlow, Submit, together
from ..core.encoding import born_of
from ..core.event_log import FOLDER as EVENTS
from ..core.head_content import contents_in_memory
from ..core.queue_ops import RaiseGcFloor
from ..core.rows import BodyRef
from ..core.state import Span, State, TableRef, referenced_objects
from ..core.tables import FOLDER as TABLES
from ..errors import Damaged, NewerFormat, NotFound, OsqueueError
from ..objects import finished_tables, segments
from ..objects.backups import recent
from ..objects.layout import read_state, root_of, unavailable
from ..objects.segments import footer
from ..objects.staging import UPLOADS
from ..stores.base import LIST_KEYS_MAX, Delete, Deleted, List, Listed

NAMES_MAX = 50_000  # that one pass looks at, some 10 MB
DELETES_PER_REQUEST = 1_000
READS_AT_ONCE = 8  # pointers followed together: a footer may name 100,000 bodies
LOOKS_MAX = 5  # at a head that moves on while what it names is looked up
SEGMENTS, BODIES, FINISHED, RECORDED = "segments/", "bodies/", f"{TABLES}/", f"{EVENTS}/"
FOLDERS = (BODIES, RECORDED, FINISHED, SEGMENTS, f"{UPLOADS}/")  # in the order in which they are listed


def collect(queue: str, shard: int, before: State) -> QueueFlow[int]:
    """Delete what has been idle for long; answers how many objects. Once an hour there is something to do.

    Raises, in the end, what kept it from looking into an object.
    """
    floor = max(_old_seq(before), before.gc_floor)
    if floor == before.gc_floor and not before.gc_after:
        return 0
    root = root_of(queue, shard)
    names, after = yield from _listed(root, before.gc_after, floor)
    yield Submit(shard, (RaiseGcFloor(floor, after),))
    trouble = (yield from _spare(queue, shard, names)) if names else None
    count = yield from delete([root + name for name in sorted(names)])
    if trouble is not None:
        raise trouble
    return count


def _old_seq(state: State) -> int:
    """The newest commit known to be older than the horizon."""
    old = [seq for ms, seq in state.marks if ms <= state.now_ms - limits.GC_HORIZON_MS]
    return max(old, default=0)


def _listed(root: str, after: str, floor: int) -> Flow[tuple[set[str], str]]:
    """Names of objects born before ``floor``, and the name behind which to go on; "" when that was all."""
    names: set[str] = set()
    at = after or FOLDERS[0]
    left = NAMES_MAX
    while left > 0:
        folder = at[: at.index("/") + 1]
        # Without a limit a store that reads folders whole does so once.
        limit = left if left < LIST_KEYS_MAX else None
        listed = yield List(root + folder, after=root + at, limit=limit)
        if not isinstance(listed, Listed):
            raise unavailable(listed, "the list of staged objects")
        found = [key[len(root) :] for key in listed.keys[:left]]
        left -= len(found)
        more = listed.more or len(found) < len(listed.keys)
        names.update(name for name in found if 0 <= born_of(name) < floor)
        # Names sort by birth: from the first that is too young on, all are.
        if more and not any(born_of(name) >= floor for name in found):
            at = found[-1]
        elif folder == FOLDERS[-1]:
            return names, ""
        else:
            at = FOLDERS[FOLDERS.index(folder) + 1]
    return names, at


def delete(keys: Sequence[str]) -> QueueFlow[int]:
    """Delete objects; answers how many are gone for certain."""
    count = 0
    for at in range(0, len(keys), DELETES_PER_REQUEST):
        group = tuple(keys[at : at + DELETES_PER_REQUEST])
        if isinstance((yield Delete(group)), Deleted):
            count += len(group)
    return count


# ── What is referred to ──────────────────────────────────────────────────────
def _spare(queue: str, shard: int, names: set[str]) -> QueueFlow[OsqueueError | None]:
    """Take out of ``names`` what the shard refers to, and what it may refer to; the first trouble."""
    state = yield from read_state(queue, shard)
    backups = yield from recent(queue, shard)
    walk = _Walk(root_of(queue, shard), names)
    troubles: list[OsqueueError] = []
    for _ in range(LOOKS_MAX):
        if state is None:  # nobody knows what the shard refers to
            names.clear()
            return None
        walk.unread.clear()
        yield from walk.spare(state, backups)
        troubles = [*walk.unread.values()]
        gone = [error for error in troubles if isinstance(error, NotFound)]
        if not gone:
            break
        before, state = state, (yield from read_state(queue, shard))
        if state is not None and state.commit == before.commit:
            troubles = [segments.lost_object(error, queue) if error in gone else error for error in troubles]
            break
    names -= {name for name in names if name.startswith(tuple(walk.unread))}
    return next((error for error in troubles if not isinstance(error, NotFound)), None)


class _Walk:
    """Follows pointers, some at a time, for as long as names are left that may be spared."""

    def __init__(self, root: str, names: set[str]) -> None:
        self.root = root
        self.names = names
        self.folders = {name[: name.index("/") + 1] for name in names}
        self.unread: dict[
            str, OsqueueError
        ] = {}  # folders of which not all is known that is referred to, and why

    def spare(self, state: State, older: Sequence[State]) -> Flow[None]:
        """Spare what a state refers to, and states before it, whose objects may be gone."""
        for each in (state, *older):
            self.names -= _in_memory(each)
        met: set[str] = set()
        yield from self._follow(_pointers(state), met, missed=True)
        yield from self._follow([pointer for each in older for pointer in _pointers(each)], met, missed=False)

    def _follow(self, pending: list[Span | TableRef], met: set[str], *, missed: bool) -> Flow[None]:
        """Spare what is at or below pointers that were not ``met`` yet. ``missed``: all of it must be there."""
        while pending and self.names:
            chunk = pending[-READS_AT_ONCE:]
            del pending[-READS_AT_ONCE:]
            self.names.difference_update(
                *map(referenced_objects, chunk)
            )  # several of one name may each have another vector
            group = {each.name: each for each in chunk if each.name not in met}
            met.update(group)
            self.names.difference_update(group)
            found = yield from together([self._below(each) for each in group.values()])
            for pointer, below in zip(group.values(), found, strict=True):
                if not isinstance(below, OsqueueError):
                    pending.extend(below)
                elif missed or not isinstance(below, NotFound):
                    for folder in _folders(pointer):
                        self.unread.setdefault(folder, below)

    def _below(self, pointer: Span | TableRef) -> Flow[Sequence[Span | TableRef] | OsqueueError]:
        """The pointers below one; bodies that it names are spared."""
        if self.folders.isdisjoint(_folders(pointer)):
            return ()
        try:
            if isinstance(pointer, TableRef):
                if pointer.level:
                    return (yield from finished_tables.children(self.root, pointer))
                if pointer.bodies:
                    self.names.difference_update((yield from finished_tables.bodies_of(self.root, pointer)))
            elif pointer.level:
                return (yield from segments.children(self.root, pointer))
            elif pointer.bodies:
                self.names.difference_update((yield from footer(self.root, pointer)).bodies)
        except (Damaged, NewerFormat, NotFound) as error:
            return error
        return ()


def _pointers(state: State) -> list[Span | TableRef]:
    lanes = [span for lane in state.lanes for span in lane.backlog.spans]
    return [*lanes, *state.delayed.spans, *state.dead.spans, *state.tables]


def _in_memory(state: State) -> set[str]:
    return {each.name for each in contents_in_memory(state) if isinstance(each, BodyRef)}


def _folders(pointer: Span | TableRef) -> set[str]:
    """Where what is below a pointer may lie."""
    found = {BODIES} if pointer.bodies else set[str]()
    if pointer.level:
        found.add(FINISHED if isinstance(pointer, TableRef) else SEGMENTS)
    return found
