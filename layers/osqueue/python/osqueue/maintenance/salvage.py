"""The jobs that a restore finds in segments, whatever is lost of what leads to them or stands beside them."""

from __future__ import annotations

from collections.abc import Sequence

from ..commit.effects import Flow
from ..core.audit import spans_of
from ..core.deletion_vectors import EMPTY_VECTOR
from ..core.restore import BackupFilter
from ..core.state import JobRecord, Span, State
from ..errors import Damaged, NotFound
from ..objects import segments

LOST = (Damaged, NotFound)


def leaves(root: str, span: Span, sieve: BackupFilter | None = None) -> Flow[list[Span]]:
    """The segments below a pointer, in order; ``sieve`` counts what an index that is gone led to."""
    if span.level == 0:
        return [span]
    try:
        below = yield from segments.children(root, span)
    except LOST:
        if sieve is not None:
            sieve.miss(span)
        return []
    found: list[Span] = []
    for child in below:
        found.extend((yield from leaves(root, child, sieve)))
    return found


def jobs(
    root: str, leaf: Span, sieve: BackupFilter, backup: State, replaced: State | None
) -> Flow[Sequence[JobRecord]]:
    """The jobs to come in a segment; ``sieve`` counts those that are gone.

    They are all there although its deletion vector is lost: only which of them were cancelled is not known for sure.
    """
    try:
        return (yield from segments.segment_jobs(root, leaf))
    except LOST:
        pass
    if leaf.vector is not None:
        try:
            found = yield from segments.jobs_from(root, leaf, EMPTY_VECTOR)
            if len(found) >= leaf.count:
                return sieve.unmarked(leaf, found, (yield from _marked(root, leaf, found, replaced)), backup)
        except LOST:
            pass
    sieve.miss(leaf)
    return ()


def _marked(
    root: str, leaf: Span, found: Sequence[JobRecord], replaced: State | None
) -> Flow[set[bytes] | None]:
    """Which jobs of a segment were cancelled, by the replaced head: marks are only ever added. None: unknown."""
    for span in () if replaced is None else spans_of(replaced):
        if not (span.first <= leaf.last and leaf.first <= span.last):
            continue
        for each in (yield from leaves(root, span)):
            if each.name != leaf.name or each.vector in (None, leaf.vector):
                continue
            try:
                deleted = yield from segments.deleted_from(root, each)
                left = yield from segments.jobs_from(root, leaf, deleted)
            except LOST:
                continue
            return {job.key for job in found} - {job.key for job in left}
    return None
