"""A FIFO of any length in a head of bounded size.

    front │ ready │ span span … span │ tail │ back
           in head   in segments       in head

Jobs join the tail and leave from ready. A tail over its budget becomes a segment (one immutable object) and
one ``Span`` that points to it; an empty ready window takes the next *block* of the first span, which is one
range GET. Where spans gather, ``FANOUT`` of them fold into an index object and one span of a higher level, and
unfold again when the front reaches it. So a FIFO of N jobs keeps about ``FANOUT · log N`` spans in the head,
and a commit costs the same at any depth.

A ``BacklogDraft`` is the working copy of one ``Backlog`` inside one reduction. It never does I/O: what it needs from
segments it finds in ``blocks``, or reports as a ``NeededRange``; what it spills it hands to ``spill``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from ..limits import FANOUT
from .deletion_vectors import EMPTY_VECTOR, DeletionVector, remaining_jobs
from .drop_rules import NO_RULES, Drops
from .encoding import Block, encode_index, encode_segment
from .labels import LabelledBlock, labels_of_kind
from .state import KEYSUM_MASK, MIXED, Backlog, JobRecord, Span, TableRef, VectorRef, is_late, keysums
from .weights import job_weight


class NeededRange(Struct, frozen=True):
    """Bytes of a segment or an index that a reduction wants to see."""

    name: str
    start: int
    length: int
    level: int  # 0: blocks; above: an index; VECTOR; LABELS
    block: int  # bytes of the first block in it
    whole: bool = False  # not its content is wanted, but which keys are in it: see ``passed``

    @property
    def place(self) -> tuple[str, int]:
        """Where the reduction will look for it."""
        return (self.name, -1 if self.whole else self.start)


VECTOR = -1  # the level of a deletion vector
LABELS = -2  # and of the labels of a segment's blocks
Loaded = (
    Block
    | DeletionVector
    | tuple[Span, ...]
    | tuple[TableRef, ...]
    | tuple[LabelledBlock, ...]
    | frozenset[bytes]
)
Blocks = Mapping[tuple[str, int], Loaded]
P = TypeVar("P", Span, VectorRef)


class Spill(Protocol):
    """Names an object, keeps it to be written before the commit, and answers what points to it."""

    def __call__(self, folder: str, encode: Callable[[str], tuple[bytes, P]]) -> P: ...


def needs_of(span: Span) -> list[NeededRange]:
    """What has to be read to take the next jobs from a span."""
    front = NeededRange(span.name, span.offset, span.length, span.level, span.length)
    return [front] if span.vector is None else [front, need_of(span.vector)]


def need_of(vector: VectorRef) -> NeededRange:
    """A deletion vector."""
    return NeededRange(vector.name, 0, vector.size, VECTOR, 0)


def deleted_from(span: Span, blocks: Blocks) -> DeletionVector | None:
    """Which jobs of a segment are not to come; None when that has not been read."""
    if span.vector is None:
        return EMPTY_VECTOR
    found = blocks.get((span.vector.name, 0))
    return found if isinstance(found, DeletionVector) else None


READ_AHEAD_BYTES_MAX = 1024 * 1024  # of one segment, for one reduction


def needs_for(spans: Sequence[Span], wanted: int) -> Iterator[NeededRange]:
    """What has to be read to take about ``wanted`` jobs from the front, as far as that can be told in advance."""
    for span in spans:
        if wanted <= 0:
            return
        if span.level > 0:
            yield from needs_of(span)
            return
        left = span.size - span.offset
        each = max(1, left // max(1, span.count))
        length = min(left, max(span.length, min(each * wanted, READ_AHEAD_BYTES_MAX)))
        yield NeededRange(span.name, span.offset, length, 0, span.length)
        if span.vector is not None:
            yield need_of(span.vector)
        wanted -= length // each


def advance_span(span: Span, block: Block, taken: Sequence[JobRecord]) -> Span | None:
    """The span once these jobs, all that were to come in its next block, were taken; None when those were the last."""
    if not block.next_length or len(taken) == span.count:
        return None
    return replace(
        span,
        count=span.count - len(taken),
        keysum=(span.keysum - keysums(taken)) & KEYSUM_MASK,
        offset=span.offset + span.length,
        length=block.next_length,
    )


class BacklogDraft:
    """One backlog being changed."""

    __slots__ = ("_before", "_changed", "drops", "ready", "ready_bytes", "spans", "tail", "tail_bytes")
    mixed = False  # are jobs of many kinds in it?

    def __init__(self, backlog: Backlog, drops: Drops = NO_RULES) -> None:
        self.drops = drops
        self._before = backlog
        self._changed = False
        self.ready = deque(backlog.ready)
        self.spans = list(backlog.spans)
        self.tail = list(backlog.tail)
        self.ready_bytes = backlog.ready_bytes
        self.tail_bytes = backlog.tail_bytes

    def freeze(self) -> Backlog:
        """The backlog as data again."""
        if not self._changed:
            return self._before
        return Backlog(
            tuple(self.ready), tuple(self.spans), tuple(self.tail), self.ready_bytes, self.tail_bytes
        )

    def __bool__(self) -> bool:
        return bool(self.ready or self.spans or self.tail)

    def head_key(self) -> bytes:
        """The key of the first job (a lower bound when it lies in a segment)."""
        if self.ready:
            return self.ready[0].key
        return self.spans[0].first if self.spans else self.tail[0].key

    # ── In and out ───────────────────────────────────────────────────────────
    def push(self, job: JobRecord, room: int) -> None:
        """Join at the back; straight into ready while nothing else waits and it has ``room`` bytes."""
        self._changed = True
        size = job_weight(job)
        if not self.spans and not self.tail and self.ready_bytes + size <= room:
            self.ready.append(job)
            self.ready_bytes += size
        else:
            self.tail.append(job)
            self.tail_bytes += size

    def push_front(self, job: JobRecord) -> None:
        """Come back to the front, as a released or stalled job does."""
        self._changed = True
        self.ready.appendleft(job)
        self.ready_bytes += job_weight(job)

    def attach(self, spans: Iterable[Span], kind: str) -> None:
        """Join a staged bulk, of one kind or mixed, behind everything that waits."""
        self._changed = True
        if self.mixed and kind != MIXED:
            labels = labels_of_kind(kind)
            spans = [replace(span, labels=labels) for span in spans]
        self.spans.extend(spans)

    def exchange(self, at: int, replacement: Span | None) -> None:
        """Put another span, or none, in a span's place."""
        self._changed = True
        self.spans[at : at + 1] = [] if replacement is None else [replacement]

    def pop(self) -> JobRecord:
        """Take the first job; ready must not be empty."""
        self._changed = True
        job = self.ready.popleft()
        self.ready_bytes -= job_weight(job)
        return job

    def take(self, count: int, room: int, more: int, now_ms: int) -> tuple[list[JobRecord], int]:
        """Take up to ``count`` of the first jobs in ready, until they fill ``room``; answers also the bytes filled.

        Each fills its weight and ``more``. One whose start deadline has passed stays, and those behind it.
        """
        self._changed = True
        ready = self.ready
        jobs: list[JobRecord] = []
        filled = 0
        for _ in range(min(count, len(ready))):
            if filled >= room or is_late(ready[0], now_ms):
                break
            job = ready.popleft()
            jobs.append(job)
            filled += job_weight(job) + more
        self.ready_bytes -= filled - more * len(jobs)
        return jobs, filled

    def swap(self, old: JobRecord, new: JobRecord) -> bool:
        """Put a job where another one stands; False where that one lies in a segment."""
        for jobs in (self.ready, self.tail):
            if old in jobs:
                self._changed = True
                jobs[jobs.index(old)] = new
                more = job_weight(new) - job_weight(old)
                if jobs is self.ready:
                    self.ready_bytes += more
                else:
                    self.tail_bytes += more
                return True
        return False

    def push_ready(self, job: JobRecord) -> None:
        """Join behind the jobs that are ready, in front of all that lie in segments."""
        self._changed = True
        self.ready.append(job)
        self.ready_bytes += job_weight(job)

    def remove(self, key: bytes) -> JobRecord | None:
        """Take a job out of ready or tail, wherever it stands."""
        for job in self.ready:
            if job.key == key:
                self._changed = True
                self.ready.remove(job)
                self.ready_bytes -= job_weight(job)
                return job
        for job in self.tail:
            if job.key == key:
                self._changed = True
                self.tail.remove(job)
                self.tail_bytes -= job_weight(job)
                return job
        return None

    # ── Between head and segments ────────────────────────────────────────────
    def mark_taken(self, spill: Spill, blocks: Blocks) -> None:
        """Only from a mixed lane is anything taken but at the front."""

    def refill(self, blocks: Blocks, dead: set[bytes]) -> NeededRange | None:
        """Fill an empty ready window. Answers what must be read first, or None when no more can be done.

        ``dead`` holds the keys of cancelled jobs; those met on the way are dropped and struck from it. Those that a
        rule covers are cancelled, as many as one commit may.
        """
        while not self.ready and not self.drops.is_spent:
            if not self.spans:
                if self.tail:
                    self._changed = True
                    self.ready.extend(self.tail)
                    self.ready_bytes += self.tail_bytes
                    self.tail, self.tail_bytes = [], 0
                return None
            for need in needs_of(self.spans[0]):
                if need.place not in blocks:
                    return need
            self.advance(blocks, dead)
        return None

    def advance(self, blocks: Blocks, dead: set[bytes]) -> None:
        """Take the next block of the first span into ready, or the spans out of an index; it has been read."""
        self._changed = True
        span = self.spans[0]
        loaded = blocks[span.name, span.offset]
        if not isinstance(loaded, Block):
            self.open(0, cast("tuple[Span, ...]", loaded))
            return
        jobs = remaining_jobs(span, loaded, self.deleted_from(span, blocks) or EMPTY_VECTOR)
        rest = advance_span(span, loaded, jobs)
        self.spans[:1] = [rest] if rest else []
        drops = self.drops
        for job in jobs:
            if job.key in dead:
                dead.discard(job.key)
            elif not (drops.rules and drops.drops(job, span)):
                self.ready.append(job)
                self.ready_bytes += job_weight(job)

    def open(self, at: int, inside: Sequence[Span]) -> None:
        """Let an index make way for the spans below it."""
        self._changed = True
        self.spans[at : at + 1] = inherited(inside, self.spans[at])

    def is_taken_from(self, name: str) -> bool:
        """Have jobs been taken out of the middle of this segment that its deletion vector does not tell of yet?"""
        return False

    def deleted_from(self, span: Span, blocks: Blocks) -> DeletionVector | None:
        """Which jobs of a segment are not to come."""
        return deleted_from(span, blocks)

    def spill_tail(self, spill: Spill) -> Span:
        """Turn the tail into a segment."""
        self._changed = True
        span = self._segment(self.tail, spill)
        self.spans.append(span)
        self.tail, self.tail_bytes = [], 0
        return span

    def spill_ready(self, spill: Spill) -> None:
        """Turn the back half of ready into a segment in front of the others."""
        self._changed = True
        keep = len(self.ready) // 2
        moved = list(islice(self.ready, keep, None))
        for _ in moved:
            self.ready.pop()
        self.ready_bytes -= sum(map(job_weight, moved))
        if self.spans or self.tail:
            self.spans.insert(0, self._segment(moved, spill))
        else:
            self.tail, self.tail_bytes = moved, sum(map(job_weight, moved))

    def _segment(self, jobs: Sequence[JobRecord], spill: Spill) -> Span:
        return spill("segments", partial(encode_segment, jobs, mixed=self.mixed))

    def fold(self, spill: Spill, blocks: Blocks) -> Sequence[NeededRange]:
        """Keep the number of spans logarithmic: fold FANOUT neighbours of one level, never the front ones.

        The first FANOUT spans stay unfolded because the front is about to use them.
        """
        while run := foldable(self.spans, self.drops):
            self._changed = True
            group = self.spans[run]
            self.spans[run] = [self.drops.aged(spill("segments", partial(encode_index, group)), group)]
        return ()


def foldable(spans: Sequence[Span], drops: Drops) -> slice | None:
    """The first run of FANOUT spans of one level, past the front."""
    run = 0
    for at in range(FANOUT, len(spans)):
        span, before = spans[at], spans[at - 1]
        run = run + 1 if run and span.level == before.level and drops.side(span) == drops.side(before) else 1
        if run == FANOUT:
            return slice(at - FANOUT + 1, at + 1)
    return None


def inherited(inside: Sequence[Span], index: Span) -> Sequence[Span]:
    """Spans out of an index. One that does not tell what is in it has no more than the index had, and is as old."""
    if index.labels is not None:
        inside = [replace(span, labels=index.labels) if span.labels is None else span for span in inside]
    if index.joined:
        inside = [replace(span, joined=max(span.joined, index.joined)) for span in inside]
    return inside
