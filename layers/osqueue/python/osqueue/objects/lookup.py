"""Where a job is and what became of it: the one lookup behind status, result, cancel, ids and waiting.

A job is in exactly one place of its shard. The head itself is looked at first, then the segments whose key ranges
cover the job, then the tables of finished jobs, the newest first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..commit.effects import Flow, together
from ..commit.retry import OBJECT, retried
from ..core import state as stored
from ..core.draft import LATE
from ..core.drop_rules import covering, why_of
from ..core.head_content import jobs_in_memory
from ..core.job_ops import CancelJob
from ..core.rows import BodyRef
from ..core.state import (
    ARCHIVE_ONLY,
    CANCELLED,
    FAILED,
    FAILING,
    PROCESSING,
    QUEUED,
    SCHEDULED,
    FinishedJob,
    LeaseRecord,
    Span,
    State,
    content_bytes,
)
from ..errors import NotFound, Unavailable
from ..model.job import Job, finished_view, job_view, lease_view
from . import finished_tables
from .layout import read_state, root_of
from .segments import BacklogPosition, find_many

R = TypeVar("R")
WAITING = (SCHEDULED, QUEUED, FAILING)
LOOKS_MAX = 20  # at a head whose objects are merged away faster than they can be read


class JobLocation(Struct, frozen=True):
    """A job, and where it was seen."""

    state: str
    job: stored.JobRecord
    lease: LeaseRecord | None = None  # processing
    row: FinishedJob | None = None  # completed, cancelled, or a dead letter that was let go
    table: str = ""  # the outermost table that led to the row; "": it is in the head
    place: BacklogPosition | None = None  # in a segment

    def view(self) -> Job:
        """The job as callers see it."""
        if self.lease is not None:
            return lease_view(self.lease)
        return finished_view(self.row) if self.row is not None else job_view(self.state, self.job)

    @property
    def evidence(self) -> CancelJob:
        """What cancels it. The reducer cannot see it inside a segment: then it tells where it was seen to wait."""
        place = self.place
        if place is None:
            return CancelJob(self.job.key)
        return CancelJob(self.job.key, place.job, place.top.name, place.offset, place.index, place.vector)

    def at(self, state: State) -> JobLocation:
        """The job as it stands by its head: it is over when it waits and its start deadline has passed, or a drop rule
        covers it.

        Nobody may have met it yet where it lies; whoever does will find the same, since a head's time never goes back,
        and a rule stays until all that it covers has been met.
        """
        if self.state not in WAITING:
            return self
        rules = state.drops.rules
        rule = covering(rules, self.job, self.place.top) if rules and self.place is not None else None
        if rule is None and not stored.is_late(self.job, state.now_ms):
            return self
        job, now_ms = self.job, state.now_ms
        ended, why = (job.start_by_ms, LATE) if rule is None else (rule.at_ms, why_of(rule))
        row = FinishedJob(
            replace(job, payload=b""),
            CANCELLED,
            ended,
            payload_bytes=content_bytes(job.payload),
            why=why,
            expires_ms=now_ms + job.result_ttl_ms,  # that counts from when it is met
            spent=job.payload if isinstance(job.payload, BodyRef) else None,
        )
        return JobLocation(CANCELLED, row.job, row=row)

    def expired(self, now_ms: int) -> bool:
        """Is its result not given out any more?"""
        return self.row is not None and self.row.expires_ms <= now_ms


def find_in_state(root: str, state: State, key: bytes) -> Flow[JobLocation | None]:
    """Find a job in one state of its shard. Raises NotFound when what the state names is gone: it is old."""
    return (yield from find_many_in_state(root, state, (key,))).get(key)


def find_many_in_state(root: str, state: State, keys: Collection[bytes]) -> Flow[dict[bytes, JobLocation]]:
    """Find jobs in one state of their shard, reading everything once for all. Raises as ``find_in_state`` does."""
    found = _in_head(state, keys)
    gone = set(state.tombstones)
    for spans, place_of in _sections(state):
        left = [key for key in keys if key not in found and key not in gone]
        for places in (yield from together([find_many(root, span, left) for span in spans])):
            for key, place in places.items():
                found[key] = JobLocation(place_of(place.job), place.job, place=place)
    over = yield from finished_tables.find_many(root, state.tables, [key for key in keys if key not in found])
    for key, kept in over.items():
        found[key] = JobLocation(kept.row.state, kept.row.job, row=kept.row, table=kept.top.name)
    return found


def find_heir(root: str, state: State, key: bytes) -> Flow[JobLocation | None]:
    """Find a job in one state of its shard, or the last who took its place. Raises as ``find_in_state`` does."""
    while True:
        found = yield from find_in_state(root, state, key)
        if found is None or found.row is None or found.row.successor is None:
            return found
        key = found.row.successor


def find_in_head(state: State, key: bytes) -> JobLocation | None:
    """Find a job in the head itself."""
    return _in_head(state, (key,)).get(key)


def _in_head(state: State, keys: Collection[bytes]) -> dict[bytes, JobLocation]:
    leases = ((key, state.leases.get(key)) for key in keys)
    found = {
        key: JobLocation(PROCESSING, lease.job, lease=lease) for key, lease in leases if lease is not None
    }
    left = {key for key in keys if key not in found}
    for where, job in jobs_in_memory(state):
        if not left:
            return found
        if job.key in left:
            left.remove(job.key)
            found[job.key] = JobLocation(where, job)
    for row in state.finished:
        if row.key in left and row.mark != ARCHIVE_ONLY:
            left.remove(row.key)
            found[row.key] = JobLocation(row.state, row.job, row=row)
    return found


def _sections(state: State) -> list[tuple[Sequence[Span], Callable[[stored.JobRecord], str]]]:
    """The spans of each part of a state, and what state a job found there is in."""
    lanes = [span for lane in state.lanes for span in lane.backlog.spans]
    return [
        (lanes, lambda job: QUEUED),
        (state.delayed.spans, stored.delayed_state),
        (state.dead.spans, lambda job: FAILED),
    ]


def rows_of(root: str, state: State, keys: Collection[bytes]) -> Flow[dict[bytes, FinishedJob]]:
    """The rows of those of many jobs that are over, by one state of their shard. Raises as ``find_in_state`` does."""
    found = {row.key: row for row in state.finished if row.mark != ARCHIVE_ONLY and row.key in keys}
    alive = {job.key for _, job in jobs_in_memory(state)}
    left = [key for key in keys if key not in found and key not in state.leases and key not in alive]
    return {**(yield from finished_tables.find_all(root, state.tables, left)), **found}


def seek(queue: str, shard: int, key: bytes) -> Flow[tuple[State | None, JobLocation | None]]:
    """Find a job in the committed state as it is now, and that state (None: the shard has none yet)."""
    return (yield from _seek(queue, shard, lambda state: find_in_state(root_of(queue, shard), state, key)))


def seek_many(
    queue: str, shard: int, keys: Collection[bytes]
) -> Flow[tuple[State | None, dict[bytes, JobLocation]]]:
    """Find jobs of a shard in its committed state as it is now, and that state (None: the shard has none yet).

    Looks a few times where the store fails.
    """
    root = root_of(queue, shard)

    def looking(state: State) -> Flow[dict[bytes, JobLocation]]:
        return (yield from retried(lambda: find_many_in_state(root, state, keys), OBJECT))

    state, found = yield from _seek(queue, shard, looking)
    return state, found or {}


def seek_rows(queue: str, shard: int, keys: Collection[bytes]) -> Flow[dict[bytes, FinishedJob]]:
    """The rows of those of many jobs of a shard that are over, by its committed state as it is now."""
    _, found = yield from _seek(queue, shard, lambda state: rows_of(root_of(queue, shard), state, keys))
    return found or {}


def _seek(queue: str, shard: int, looking: Callable[[State], Flow[R]]) -> Flow[tuple[State | None, R | None]]:
    missing: NotFound | None = None
    version = b""
    for _ in range(LOOKS_MAX):
        state = yield from read_state(queue, shard)
        if state is None:
            return None, None
        if missing is not None and state.commit == version:
            raise Unavailable(
                f"the queue refers to an object that is not there. See docs/operations.md. ({missing.message})"
            )
        try:
            return state, (yield from looking(state))
        except NotFound as error:
            missing, version = error, state.commit
    raise Unavailable("the queue moves too fast to find this job just now. Repeat it.")
