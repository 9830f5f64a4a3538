"""Cancelled jobs that lie in segments: from tombstones in the head to deletion vectors beside the segments.

A segment is immutable, so a job cancelled in it leaves a tombstone in the head, which every reader of segments
respects. The head holds few of them. When there are many, the next cancel settles some of them in the same
commit. It writes a *deletion vector* for each of their segments, writes the indexes above again, and swaps all in by
``ReplaceSpan`` operations. An operation is refused when the span that it replaces has changed meanwhile. Then nothing
is settled and nothing is lost. What one cancel reads and writes is bounded, however many jobs wait: blocks, vectors and
paths of indexes of ``SETTLED_AT_ONCE`` jobs, or of all tombstones when the head is nearly full.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

from msgspec.structs import replace

from .. import limits
from ..commit.effects import Flow
from ..core.deletion_vectors import encode_vector, without_jobs
from ..core.drop_rules import age_of
from ..core.encoding import encode_index
from ..core.ops import Op
from ..core.queue_ops import ReplaceSpan
from ..core.state import FAILING, Span, State, delayed_state
from ..errors import Damaged, NewerFormat, NotFound, OsqueueError
from .listing import waiting_spans
from .segments import children, deleted_from, find_many, lost_object
from .staging import StagingArea

SETTLED_AT_ONCE = 4  # tombstones that one cancel settles, while there is room for those of some others

Leaf = Callable[[Span, Collection[bytes]], Flow[tuple[Span | None, Collection[bytes]]]]


def many_tombstones(state: State) -> bool:
    """Is it time to settle some? There is room for some more, should others cancel meanwhile."""
    return len(state.tombstones) >= limits.TOMBSTONES_MAX * 3 // 4


def tombstones_full(state: State) -> bool:
    """Do they fill the head?"""
    return len(state.tombstones) >= limits.TOMBSTONES_MAX


def _at_once(state: State) -> int:
    """How many to settle: of many who cancel at the same time only one comes to it, and each brings another one."""
    crowded = len(state.tombstones) >= limits.TOMBSTONES_MAX * 7 // 8
    return len(state.tombstones) if crowded else SETTLED_AT_ONCE


def settle_tombstones(root: str, state: State, stage: StagingArea) -> Flow[tuple[Op, ...]]:
    """Write what settles some tombstones; answers the operations that swap it in.

    The youngest go first: the front reaches the oldest ones by itself. Those in a segment that cannot be read stay;
    that is raised where nothing else is to be settled, and there is no room for another one.
    """
    stage.born = max(stage.born, state.seq)  # what is written must not seem older than what it describes
    youngest = iter(sorted(state.tombstones, reverse=True))
    trouble: OsqueueError | None = None
    while group := tuple(islice(youngest, _at_once(state))):
        ops: list[Op] = []
        left = set(group)
        for span in waiting_spans(state):
            try:
                fresh, dropped = yield from span_without(root, span, left, stage, marked(root, stage))
            except NotFound as error:
                trouble = trouble or lost_object(error, root.split("/")[1])
                continue
            except (Damaged, NewerFormat) as error:
                trouble = trouble or error
                continue
            if dropped:
                left.difference_update(dropped)
                ops.append(ReplaceSpan(span, fresh, tuple(sorted(dropped))))
        if ops:
            return tuple(ops)
    if trouble is not None and tombstones_full(state):
        raise trouble
    return ()


def span_without(
    root: str, span: Span, keys: Collection[bytes], stage: StagingArea, leaf: Leaf
) -> Flow[tuple[Span | None, Collection[bytes]]]:
    """The span without some jobs (None: nothing is left), and those of them that were in it.

    ``leaf`` does it to a segment; the indexes above are written again.
    """
    within = [key for key in keys if span.first <= key <= span.last]
    if not within:
        return span, ()
    if span.level == 0:
        return (yield from leaf(span, within))
    after: list[Span] = []
    dropped: set[bytes] = set()
    for child in (yield from children(root, span)):
        kept, gone = yield from span_without(
            root, child, [k for k in within if k not in dropped], stage, leaf
        )
        dropped.update(gone)
        if kept is not None:
            after.append(kept)
    if not dropped:
        return span, ()
    if not after:
        return None, dropped
    name = stage.name("segments")
    data, fresh = encode_index(after, name)
    yield from stage.write([(name, data)])
    return replace(fresh, joined=age_of(span)), dropped  # what is left is as old as it was


def marked(root: str, stage: StagingArea) -> Leaf:
    """Takes jobs out of a segment by its deletion vector."""

    def leaf(span: Span, keys: Collection[bytes]) -> Flow[tuple[Span | None, Collection[bytes]]]:
        found = yield from find_many(root, span, keys)
        if not found:
            return span, ()
        deleted = (yield from deleted_from(root, span)).more(
            (place.offset, place.index) for place in found.values()
        )
        name = stage.name("segments")
        data, vector = encode_vector(deleted, name)
        failing = sum(delayed_state(place.job) == FAILING for place in found.values()) if span.due_ms else 0
        fresh = without_jobs(span, found.keys(), failing, vector)
        if fresh is not None:
            yield from stage.write([(name, data)])
        return fresh, found.keys()

    return leaf
