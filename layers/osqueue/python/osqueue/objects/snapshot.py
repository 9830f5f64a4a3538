"""One committed state of a queue's live jobs, cut into pieces that many processes may read.

The head of each shard is read once. All that it names is immutable, and what later commits replace stays for a day
(``garbage_collection``), unless a purge erases it. Until then any process can read the pieces, and all belong to
that one commit.

Live are the jobs that wait, run or are dead letters. Those that are over are in the archive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from .. import limits
from ..commit.effects import Flow, together
from ..core import state as stored
from ..core.encoding import cut_by_weight
from ..core.head_content import jobs_in_memory
from ..core.state import FAILED, FAILING, PROCESSING, QUEUED, SCHEDULED, JobRecord, LeaseRecord, Span, State
from ..errors import NotFound, Rejected, Unavailable, shown
from .layout import read_state, root_of
from .lookup import LOOKS_MAX
from .segments import segment_jobs, segments_of

LIVE = (QUEUED, PROCESSING, SCHEDULED, FAILING, FAILED)
PIECE_BYTES = limits.SEGMENT_BYTES_MAX  # of segments that are read as one piece


class LiveJob(Struct, frozen=True, gc=False):
    """One job, and where it was."""

    state: str
    job: JobRecord
    lease: LeaseRecord | None = None  # processing


class Piece(Struct, frozen=True):
    """Some of a snapshot's jobs: those that were in the head, or some segments in a row."""

    shard: int
    seq: int  # the commit that is shown
    live: tuple[LiveJob, ...] = ()
    spans: tuple[Span, ...] = ()
    state: str = ""  # of all jobs in the spans; "": each says itself whether it is scheduled or failing
    dropped: frozenset[bytes] = frozenset()  # keys of jobs that are in the spans and were cancelled
    wanted: tuple[str, ...] = LIVE


def pieces(queue: str, wanted: Collection[str] = LIVE) -> Flow[list[Piece]]:
    """A snapshot of the jobs in these states: one commit of each shard. Raises Rejected for a state it has not."""
    for each in wanted:
        if each not in LIVE:
            raise Rejected(f"state: {shown(each)} is none of {', '.join(LIVE)}.", field="state")
    states = tuple(each for each in LIVE if each in wanted)
    found, shards = yield from _shard(queue, 0, states)
    others = yield from together([_shard(queue, shard, states) for shard in range(1, shards)])
    return [*found, *(piece for below, _ in others for piece in below)]


def read(queue: str, piece: Piece) -> Flow[list[LiveJob]]:
    """The jobs of a piece, in order. Raises NotFound when the snapshot is too old to be read."""
    if not piece.spans:
        return list(piece.live)
    root = root_of(queue, piece.shard)
    try:
        runs = yield from together([segment_jobs(root, span) for span in piece.spans])
    except NotFound as error:
        raise NotFound(
            f"the snapshot of shard {piece.shard} at commit {piece.seq} cannot be read any more: it is older than a"
            f" day, or its jobs were purged. Take a new one. ({error.message})"
        ) from error
    return [
        live
        for jobs in runs
        for live in _live(jobs, piece.state)
        if live.job.key not in piece.dropped and live.state in piece.wanted
    ]


def _shard(queue: str, shard: int, wanted: tuple[str, ...]) -> Flow[tuple[list[Piece], int]]:
    """The pieces of one shard, and how many shards its head knows of."""
    missing = ""
    commit = b""
    for _ in range(LOOKS_MAX):
        state = yield from read_state(queue, shard)
        if state is None:
            return [], 1
        if state.commit == commit:
            raise Unavailable(
                f"the queue refers to an object that is not there. See docs/operations.md. ({missing})"
            )
        try:
            return (yield from _pieces(queue, shard, state, wanted)), state.settings.shards
        except NotFound as error:  # an index that the next commit has unfolded
            missing, commit = error.message, state.commit
    raise Unavailable("the queue moves too fast for a snapshot just now. Repeat it.")


def _pieces(queue: str, shard: int, state: State, wanted: tuple[str, ...]) -> Flow[list[Piece]]:
    leased = [LiveJob(PROCESSING, lease.job, lease) for lease in state.leases.values()]
    others = [LiveJob(where, job) for where, job in jobs_in_memory(state) if where != PROCESSING]
    in_head = tuple(live for live in (*leased, *others) if live.state in wanted)
    found = [Piece(shard, state.seq, live=in_head)] if in_head else []
    sections: list[tuple[Sequence[Span], str]] = []
    if QUEUED in wanted:
        sections.extend((lane.backlog.spans, QUEUED) for lane in state.lanes)
    if SCHEDULED in wanted or FAILING in wanted:
        sections.append((state.delayed.spans, ""))
    if FAILED in wanted:
        sections.append((state.dead.spans, FAILED))
    dropped = frozenset(state.tombstones)
    for spans, where in sections:
        segments = yield from segments_of(root_of(queue, shard), spans)
        found.extend(
            Piece(shard, state.seq, (), group, where, dropped, wanted) for group in _groups(segments)
        )
    return found


def _groups(segments: Sequence[Span]) -> Iterator[tuple[Span, ...]]:
    """Neighbours that together are about as large as one segment may be."""
    return map(tuple, cut_by_weight(segments, lambda span: span.size - span.offset, PIECE_BYTES))


def _live(jobs: Sequence[JobRecord], state: str) -> Iterator[LiveJob]:
    for job in jobs:
        yield LiveJob(state or stored.delayed_state(job), job)
