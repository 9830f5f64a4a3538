"""Collecting what nobody refers to: segments, bodies and tables of commits that were lost or have moved on.

Safe against any writer, however long it stalls: first ``gc_floor`` is committed, which makes the reducer refuse
every reference to an object born before it, and only then are objects below it deleted that neither the head nor
a recent backup of it names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from . import finished, limits
from .backup import recent
from .core.ops import RaiseGcFloor
from .core.state import Body, Span, State, jobs_in_memory
from .core.tables import FOLDER as TABLES
from .core.wire import born_of
from .errors import NotFound
from .segments import children, footer
from .shards import QueueFlow, Submit, read_state, root_of, unavailable
from .stores.base import Delete, Deleted, List, Listed

R = TypeVar("R")
DELETES_PER_REQUEST = 1_000
FOLDERS = ("segments/", "bodies/", f"{TABLES}/")


def collect(queue: str, shard: int, before: State) -> QueueFlow[int]:
    """Delete what has been idle for long; answers how many objects. Once an hour there is something to do."""
    floor = _old_seq(before)
    if floor <= before.gc_floor:
        return 0
    yield Submit(shard, (RaiseGcFloor(floor),))
    state = yield from read_state(queue, shard)
    if state is None:
        return 0
    named = yield from names(root_of(queue, shard), state)
    for backup in (yield from recent(queue, shard)):
        named |= yield from names(root_of(queue, shard), backup, lost=True)
    count = 0
    for folder in FOLDERS:
        count += yield from _collect(root_of(queue, shard), folder, state.gc_floor, named)
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


def names(root: str, state: State, *, lost: bool = False) -> QueueFlow[set[str]]:
    """The names of all objects a state refers to, directly or not; ``lost``: some of them may be gone."""
    jobs = [job for _, job in jobs_in_memory(state)]
    found = {job.payload.name for job in jobs if isinstance(job.payload, Body)}
    found |= {row.result.name for row in state.finished if isinstance(row.result, Body)}
    lanes = [span for lane in state.lanes for span in lane.backlog.spans]
    for span in (*lanes, *state.delayed.spans, *state.dead.spans):
        yield from _guarded(_name_spans(root, [span], found), lost)
    for table in state.tables:
        below = yield from _guarded(finished.objects(root, [table]), lost)
        if below is not None:
            found |= below[0] | below[1]
    return found


def _guarded(flow: QueueFlow[R], lost: bool) -> QueueFlow[R | None]:
    try:
        return (yield from flow)
    except NotFound:
        if not lost:
            raise
        return None


def _name_spans(root: str, spans: Iterable[Span], found: set[str]) -> QueueFlow[None]:
    for span in spans:
        found.add(span.name)
        if span.level > 0:
            yield from _name_spans(root, (yield from children(root, span)), found)
        elif span.bodies:
            found.update((yield from footer(root, span)).bodies)
