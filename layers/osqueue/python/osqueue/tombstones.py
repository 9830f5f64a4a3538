"""Cancelled jobs that lie in segments: rewriting the segments without them.

A segment is immutable, so a job cancelled in it leaves only a tombstone in the head. When the head holds as many
as it may, whoever cancels next rewrites the segments concerned, and the indexes above them, and swaps the new
spans in by ``Rewrite`` operations. Each is refused when its span has moved on meanwhile, which settles nothing
and loses nothing.
"""

from __future__ import annotations

from .core.ops import Op, Rewrite
from .core.state import Span, State
from .core.wire import encode_index, encode_segment
from .errors import Damaged, NewerFormat, NotFound, OsqueueError
from .listing import waiting_spans
from .segments import children, lost, whole
from .shards import QueueFlow
from .staging import Stage


def rewrite(root: str, state: State, stage: Stage) -> QueueFlow[tuple[Op, ...]]:
    """Write the replacements of every span that holds a tombstone; answers the operations that swap them in.

    One that cannot be read keeps its tombstones; that is raised where there is nothing else to be rewritten.
    """
    stage.born = max(stage.born, state.seq)  # they must not seem older than what they tell of
    dead = set(state.tombstones)
    ops: list[Op] = []
    trouble: OsqueueError | None = None
    for span in waiting_spans(state):
        dropped: set[bytes] = set()
        try:
            replacement = yield from without(root, span, dead, dropped, stage)
        except NotFound as error:
            trouble = trouble or lost(error, root.split("/")[1])
            continue
        except (Damaged, NewerFormat) as error:
            trouble = trouble or error
            continue
        if dropped:
            ops.append(Rewrite(span, replacement, tuple(sorted(dropped))))
    if trouble is not None and not ops:
        raise trouble
    return tuple(ops)


def without(
    root: str, span: Span, dead: set[bytes], dropped: set[bytes], stage: Stage
) -> QueueFlow[Span | None]:
    """The span without the dead jobs: the same one when it holds none, None when nothing is left."""
    if not any(span.first <= key <= span.last for key in dead):
        return span
    if span.level > 0:
        before = yield from children(root, span)
        after = []
        for child in before:
            kept = yield from without(root, child, dead, dropped, stage)
            if kept is not None:
                after.append(kept)
        if tuple(after) == before:
            return span
        if not after:
            return None
        name = stage.name("segments")
        data, fresh = encode_index(after, name)
    else:
        jobs = yield from whole(root, span)
        found = {job.key for job in jobs if job.key in dead}
        if not found:
            return span
        dropped |= found
        rest = [job for job in jobs if job.key not in found]
        if not rest:
            return None
        name = stage.name("segments")
        data, fresh = encode_segment(rest, name)
    yield from stage.write([(name, data)])
    return fresh
