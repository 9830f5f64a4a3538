"""One reaper pass over a queue: what time demands, what was announced and forgotten, what nobody refers to.

Collection is safe against any writer, however long it stalls: first ``gc_floor`` is committed, which makes the
reducer refuse every reference to an object born before it, and only then are objects below it that the head does
not name deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from . import limits
from .core.ops import RaiseGcFloor, Sweep
from .core.state import Body, Span, State, jobs_in_memory
from .core.wire import INTENTS, born_of
from .errors import OsqueueError, Unavailable
from .segments import children, footer
from .shards import QueueFlow, Submit, read_state, root_of, unavailable
from .stores.base import Delete, Deleted, List, Listed

DELETES_PER_REQUEST = 1_000


class Report(Struct, frozen=True):
    """What a pass did, over all shards."""

    expired: int = 0  # leases that had ended
    promoted: int = 0  # delayed jobs that had become due
    archived: int = 0  # finished jobs moved to the archive
    combined: int = 0  # announced requests whose writers were gone
    collected: int = 0  # objects nobody referred to


def reap(queue: str, shards: int) -> QueueFlow[Report]:
    """One pass over every shard. Safe at any time, from any number of processes, and to stop anywhere."""
    total = Report()
    trouble: OsqueueError | None = None
    for shard in range(shards):
        try:
            state = yield from read_state(queue, shard)
            if state is not None:
                done = yield from _reap_shard(queue, shard, state)
                total = Report(*(a + b for a, b in zip(_numbers(total), _numbers(done), strict=True)))
        except OsqueueError as error:  # one shard's trouble is not the others'
            trouble = error
    if trouble is not None:
        raise trouble
    return total


def _numbers(report: Report) -> tuple[int, ...]:
    return (report.expired, report.promoted, report.archived, report.combined, report.collected)


def _reap_shard(queue: str, shard: int, before: State) -> QueueFlow[Report]:
    root = root_of(queue, shard)
    announced = yield List(root + INTENTS)
    if not isinstance(announced, Listed):
        raise unavailable(announced, "the list of announced requests")
    yield Submit(shard, (Sweep(flush=True),), look=bool(announced.keys))
    collected = 0
    floor = _old_seq(before)
    if floor > before.gc_floor:
        yield Submit(shard, (RaiseGcFloor(floor),))
        collected = yield from _collect(queue, shard, root)
    after = yield from read_state(queue, shard)
    if after is None:
        raise Unavailable("the queue's head is not there any more. See docs/operations.md.")
    return Report(
        expired=after.counters.stalled - before.counters.stalled,
        promoted=max(0, len(before.delayed.jobs) - len(after.delayed.jobs)),
        archived=after.counters.archived - before.counters.archived,
        combined=len(announced.keys),
        collected=collected,
    )


def _old_seq(state: State) -> int:
    """The newest commit known to be older than the horizon."""
    old = [seq for ms, seq in state.marks if ms <= state.now_ms - limits.GC_HORIZON_MS]
    return max(old, default=0)


def _collect(queue: str, shard: int, root: str) -> QueueFlow[int]:
    """Delete every staged object below the committed floor that the head does not name."""
    state = yield from read_state(queue, shard)
    if state is None:
        return 0
    named = yield from _named(root, state)
    count = 0
    for folder in ("segments/", "bodies/"):
        after = ""
        while True:
            listed = yield List(root + folder, after=after)
            if not isinstance(listed, Listed):
                raise unavailable(listed, "the list of staged objects")
            names = [key[len(root) :] for key in listed.keys]
            # Names sort by birth: from the first that is too young on, all are.
            old = [name for name in names if 0 <= born_of(name) < state.gc_floor]
            idle = tuple(root + name for name in old if name not in named)
            if idle and isinstance((yield Delete(idle[:DELETES_PER_REQUEST])), Deleted):
                count += len(idle)
            if not listed.more or any(born_of(name) >= state.gc_floor for name in names):
                break
            after = listed.keys[-1]
    return count


def _named(root: str, state: State) -> QueueFlow[set[str]]:
    """The names of all objects a state refers to, directly or through indexes and segments."""
    jobs = [job for _, job in jobs_in_memory(state)]
    named = {job.payload.name for job in jobs if isinstance(job.payload, Body)}
    named |= {row.result.name for row in state.finished if isinstance(row.result, Body)}
    lanes = [span for lane in state.lanes for span in lane.backlog.spans]
    yield from _name_spans(root, [*lanes, *state.delayed.spans, *state.dead.spans], named)
    return named


def _name_spans(root: str, spans: Iterable[Span], named: set[str]) -> QueueFlow[None]:
    for span in spans:
        named.add(span.name)
        if span.level > 0:
            yield from _name_spans(root, (yield from children(root, span)), named)
        elif span.bodies:
            named.update((yield from footer(root, span)).bodies)
