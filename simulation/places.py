"""Where every job of a head is, found by really reading every segment it points to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from osqueue.core.deletion_vectors import EMPTY_VECTOR, decode_vector
from osqueue.core.encoding import decode_index
from osqueue.core.rows import BodyRef
from osqueue.core.state import (
    ENDED,
    EXPIRED_DEAD,
    FAILED,
    FAILING,
    KEYSUM_MASK,
    PROCESSING,
    QUEUED,
    Backlog,
    FinishedJob,
    JobRecord,
    ScheduleRow,
    Span,
    State,
    delayed_state,
    keysums,
    referenced_objects,
)
from osqueue.objects.segments import remaining

from .ledger import Violation

Read = Callable[[str], bytes | None]
FINISHED = "finished:"


class JobPlace(Struct, frozen=True):
    """One job's place: its state, and its record."""

    state: str  # one of the seven, or "finished:" and the state it finished in
    job: JobRecord


class SpanContent(NamedTuple):
    """What a span was found to hold."""

    names: tuple[str, ...]  # of the objects that it needs
    jobs: tuple[JobRecord, ...]


class SegmentCache:
    """Reads segments and indexes once: they never change."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._segments: dict[tuple[str, int, int, str], tuple[JobRecord, ...]] = {}
        self._indexes: dict[str, tuple[Span, ...]] = {}
        self._checked: dict[Span, SpanContent] = {}
        self.broken: set[str] = set()  # what nobody else can read

    def past(self) -> SegmentCache:
        """For a head of the past, all of whose segments were read when it was new: some may be collected."""
        old = SegmentCache(lambda name: b"")
        old._segments, old._indexes, old._checked = self._segments, self._indexes, self._checked
        return old

    def jobs(self, span: Span) -> tuple[JobRecord, ...]:
        """Every job still to come in a span."""
        if span in self._checked:
            names, found = self._checked[span]
            self._must_exist(names)
            return found
        self._must_exist((span.name, *referenced_objects(span)))
        found = self._whole(span) if span.level == 0 else self._children(span)
        if len(found) != span.count or keysums(found) != span.keysum:
            raise Violation(f"{span.name} says {span.count} jobs and holds {len(found)}, or others")
        if span.due_ms and span.failing != (failing := sum(delayed_state(job) == FAILING for job in found)):
            raise Violation(f"{span.name} says that {span.failing} jobs wait for a retry; {failing} do")
        self._checked[span] = SpanContent(tuple(self.names([span])), found)
        return found

    def _must_exist(self, names: Iterable[str]) -> None:
        for name in names:
            if self._read(name) is None:
                raise Violation(f"invariant 8: {name} is referenced and does not exist")

    def _whole(self, span: Span) -> tuple[JobRecord, ...]:
        vector = "" if span.vector is None else span.vector.name
        place = (span.name, span.offset, span.skip, vector)
        if place not in self._segments:
            deleted = decode_vector(self._bytes(vector), vector) if vector else EMPTY_VECTOR
            self._segments[place] = tuple(remaining(span, self._bytes(span.name)[span.offset :], deleted))
        return self._segments[place]

    def taken_out(self, span: Span) -> set[bytes]:
        """The keys of the jobs that a segment's vector tells of, from the span's place on."""
        left = {job.key for job in self.jobs(span)}
        return {job.key for job in self._whole(replace(span, vector=None))} - left

    def _children(self, span: Span) -> tuple[JobRecord, ...]:
        if span.name not in self._indexes:
            self._indexes[span.name] = decode_index(self._bytes(span.name), span.name)
        return tuple(job for child in self._indexes[span.name] for job in self.jobs(child))

    def names(self, spans: Iterable[Span]) -> Iterator[str]:
        """Everything below these pointers that was read when they were new, indexes and vectors included."""
        for span in spans:
            yield span.name
            yield from referenced_objects(span)
            yield from self.names(self._indexes.get(span.name, ()))

    def _bytes(self, name: str) -> bytes:
        data = self._read(name)
        assert data is not None
        return data

    def backlog(self, backlog: Backlog) -> Iterator[JobRecord]:
        """Every job of a FIFO, in order."""
        yield from backlog.ready
        for span in backlog.spans:
            yield from self.jobs(span)
        yield from backlog.tail


def places(state: State, library: SegmentCache) -> dict[bytes, JobPlace]:
    """Every job of a head that has not left it for a table. A job in two places is a violation."""
    found: dict[bytes, JobPlace] = {}
    tombstones = set(state.tombstones)
    met: set[bytes] = set()

    def put(jobs: Iterable[JobRecord], name: str | Callable[[JobRecord], str], *, segments: bool) -> None:
        for job in jobs:
            if segments and job.key in tombstones:
                met.add(job.key)
                continue
            here = name if isinstance(name, str) else name(job)
            if job.key in found:
                raise Violation(
                    f"invariant 6: {job.key.hex()} is in two places: {found[job.key].state} and {here}"
                )
            found[job.key] = JobPlace(here, job)

    for lane in state.lanes:
        put(lane.backlog.ready, QUEUED, segments=False)
        for span in lane.backlog.spans:
            put(library.jobs(span), QUEUED, segments=True)
        put(lane.backlog.tail, QUEUED, segments=False)
    put((lease.job for lease in state.leases.values()), PROCESSING, segments=False)
    put(state.delayed.jobs, delayed_state, segments=False)
    for span in state.delayed.spans:
        put(library.jobs(span), delayed_state, segments=True)
    put(library.backlog(state.dead), FAILED, segments=False)
    for row in state.finished:
        if row.mark in (
            ENDED,
            EXPIRED_DEAD,
        ):  # the others are a copy for the archive, and a row that came back
            put((row.job,), FINISHED + row.state, segments=False)
    if met != tombstones:
        raise Violation(f"{len(tombstones - met)} tombstones name jobs that lie in no segment")
    return found


def keysum_of(found: Mapping[bytes, JobPlace]) -> int:
    """The sum over every job of a head."""
    return keysums(place.job for place in found.values()) & KEYSUM_MASK


def bodies_of(
    rows: Iterable[FinishedJob],
    found: Mapping[bytes, JobPlace],
    purged: Collection[bytes],
    schedules: Iterable[ScheduleRow],
) -> set[str]:
    """The body objects that a head needs: a purge removes contents before their rows."""
    names = {row.payload.name for row in schedules if isinstance(row.payload, BodyRef)}
    for place in found.values():
        payload = place.job.payload
        if isinstance(payload, BodyRef) and place.job.key not in purged:
            names.add(payload.name)
    return names | {body.name for row in rows if row.key not in purged for body in row.bodies}
