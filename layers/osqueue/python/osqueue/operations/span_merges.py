"""Merges of delayed segments on a contended head: one writer makes each, and sends it as a request.

Where writers collide, each of them applies all announced requests. If a commit merged segments there, each of the
writers would write the merged segment, and one would win. So a writer merges before it sends a request, and the request
exchanges the pointers. Another writer's commit takes it along like any other.

The place of a segment in the head decides which writer merges what. The segments of like size stand there in the order
in which they came. The writer of every eighth one merges it with the seven before it. A merge takes eight of them away.
So the others keep their places in the eights, and no two writers merge the same segments. The merged segment is of the
next size, as in log-structured merge trees. Its writer then merges segments of that size by the same rule.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from .. import limits
from ..commit.effects import Flow, QueueFlow, Submit, together
from ..core.encoding import encode_segment
from ..core.ops import Code
from ..core.queue_ops import MergeSpans
from ..core.state import Span, State, due_order
from ..objects.segments import segment_jobs
from ..objects.staging import StagingArea
from .context import FlowContext

MERGED_AHEAD_MS = 10 * limits.SECOND_MS  # a segment that is due sooner changes too soon
SPANS_PER_MERGE = 8
SPANS_LEFT_MAX = 3 * SPANS_PER_MERGE  # of one size, before a writer merges the first ones
# Segments of like size differ by less than this power of two, so eight of them have the next size.
_SIZES_BITS = 3


def merge_from(context: FlowContext, shard: int, own: str) -> QueueFlow[None]:
    """Merge the delayed segments that are left to the writer of ``own``, then what is left to it of the merged ones."""
    names = [own]
    while names:
        state = yield from context.state_seen(shard)
        for taken in _parts(run_of(state, names.pop())):
            merge = yield from staged_merge(taken, (yield from context.stage(shard)))
            answer = yield Submit(shard, (merge,))
            if answer.outcomes[0].code is Code.OK:
                names.append(merge.merged.name)


def staged_merge(taken: tuple[Span, ...], stage: StagingArea) -> Flow[MergeSpans]:
    """Write the jobs of delayed segments as one segment, and return the operation that exchanges the pointers."""
    runs = yield from together([segment_jobs(stage.root, span) for span in taken])
    name = stage.name("segments")
    data, merged = encode_segment(list(heapq.merge(*runs, key=due_order)), name)
    yield from stage.write([(name, data)])
    return MergeSpans(taken, merged)


def run_of(state: State, own: str) -> list[Span]:
    """Return the segments that the writer of the segment ``own`` merges."""
    soon_ms = state.now_ms + MERGED_AHEAD_MS
    rest = [span for span in state.delayed.spans if span.due_ms >= soon_ms and not _is_full(span)]
    like = next((_size_class(span) for span in rest if span.name == own), None)
    spans = [span for span in rest if _size_class(span) == like]
    count = next((at for at, span in enumerate(spans, 1) if span.name == own), 0)
    if count == 0 or count % SPANS_PER_MERGE:
        return []
    # A writer that stopped, or whose merge was refused, has left the first ones.
    first = 0 if count > SPANS_LEFT_MAX else count - SPANS_PER_MERGE
    return spans[first : first + SPANS_PER_MERGE]


def _parts(run: Sequence[Span]) -> Iterator[tuple[Span, ...]]:
    """Cut a run of segments into parts that fit into one segment. A part of one segment is left out."""
    part: list[Span] = []
    for span in run:
        if sum(map(_left, part)) + _left(span) > limits.SEGMENT_BYTES_MAX:
            if len(part) > 1:
                yield tuple(part)
            part = []
        part.append(span)
    if len(part) > 1:
        yield tuple(part)


def _is_full(span: Span) -> bool:
    return _left(span) > limits.SEGMENT_BYTES_MAX // 2


def _size_class(span: Span) -> int:
    return _left(span).bit_length() // _SIZES_BITS


def _left(span: Span) -> int:
    return span.size - span.offset
