"""Erasing jobs for good: what the head holds of them, and what immutable objects hold.

A purge takes jobs that are over out of the head and the dead letters (``erase``), and *blanks* them in every object
that may be read again: the content becomes zeros, the texts become x's, and every length stays as it was, so that the
object keeps its name, its layout and whoever refers to it. A job that may run again, were its object to be believed, is
marked besides: zeros are the payload of nobody knows which serialiser, and one beside the head stays a reference.
"""

import gzip
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import Damaged
from .archive_record import unpack_part
from .draft import Draft
from .encoding import (
    Footer,
    born_of,
    cut_rows,
    decode_footer,
    frame,
    pack_length,
    unframe,
    unpack_length,
)
from .groups import without_jobs
from .ops import Code, Outcome, outcome
from .queue_ops import EraseJobs
from .rows import BodyRef, StoredContent, StoredRow
from .state import (
    ENDED,
    EXPIRED_DEAD,
    KEYSUM_MASK,
    Backlog,
    Delayed,
    EventLog,
    FinishedJob,
    JobRecord,
    LeaseRecord,
    Links,
    PastAttempt,
    State,
    Transition,
    keysum,
)
from .weights import finished_weight

R = TypeVar("R", bound=StoredRow)

PURGED = 100  # the priority of a blank job: as long as a real one when encoded, and nobody's


# ── In the head ──────────────────────────────────────────────────────────────
def erase(draft: Draft, op: EraseJobs) -> Outcome:
    """Answers one run: (OK, what was erased in the head); RETRY when a span has moved on.

    PROCESSING when a job was redriven since the caller looked: it waits or runs, and keeps what is told of it.
    """
    keys = frozenset(op.keys)
    if _is_alive(draft, keys):
        return outcome([Code.PROCESSING])
    if any(each.span not in draft.dead.spans for each in op.swaps):
        return outcome([Code.RETRY])
    if not frozenset(op.wiped).issuperset(_bodies(draft, keys)):
        return outcome(
            [Code.RETRY]
        )  # moved out of the head since the caller looked: nobody would find it again
    fresh = [each.replacement for each in op.swaps if each.replacement is not None]
    if any(born_of(each.name) < draft.gc_floor for each in fresh):
        return outcome([Code.STALE])
    gone = erased = 0
    for key in op.keys:
        if draft.dead.remove(key) is not None:
            gone += keysum(key)
            erased += 1
    for swap in op.swaps:
        left = 0 if swap.replacement is None else swap.replacement.keysum
        draft.dead.exchange(draft.dead.spans.index(swap.span), swap.replacement)
        gone += swap.span.keysum - left
        erased += swap.span.count - (0 if swap.replacement is None else swap.replacement.count)
    kept: list[FinishedJob] = []
    committed = draft.committed
    for at, row in enumerate(draft.finished):
        if row.key not in keys:
            kept.append(row)
            continue
        size = finished_weight(row)
        draft.finished_bytes -= size
        if at < committed:
            draft.committed -= 1
        else:
            draft.fresh_bytes -= size
        gone += keysum(row.key) if row.mark in (ENDED, EXPIRED_DEAD) else 0
        erased += 1
    log = blank_log(draft.log, keys)
    draft.changed |= log is not draft.log
    draft.log = log
    if any(row.key in keys for row in draft.holds.values()):
        draft.holds = without_jobs(draft.holds, keys)
    if op.again:
        draft.forgotten = draft.state.seq + 1
        draft.changed = True
    if erased:
        draft.finished = kept
        draft.counts["keysum_out"] = (draft.counts["keysum_out"] + gone) & KEYSUM_MASK
        draft.forgotten = draft.state.seq + 1
        draft.changed = True
    return Outcome(((Code.OK, erased),))


def _is_alive(draft: Draft, keys: Collection[bytes]) -> bool:
    """Does one of these jobs wait or run, as far as the head itself tells?"""
    lanes = (jobs for lane in draft.lanes.values() for jobs in (lane.ready, lane.tail))
    waiting = any(job.key in keys for jobs in (*lanes, draft.delayed) for job in jobs)
    return waiting or not draft.leases.keys().isdisjoint(keys)


def _bodies(draft: Draft, keys: Collection[bytes]) -> Iterator[BodyRef]:
    """The contents beside the head to which its own rows of some jobs refer."""
    for row in draft.finished:
        if row.key in keys:
            yield from (*row.bodies, *([] if row.spent is None else [row.spent]))
    for jobs in (draft.dead.ready, draft.dead.tail):
        contents = (each for job in jobs if job.key in keys for each in job.contents)
        yield from (each for each in contents if isinstance(each, BodyRef))


# ── Blanking ─────────────────────────────────────────────────────────────────
def _content(content: StoredContent) -> StoredContent:
    return content if isinstance(content, BodyRef) else bytes(len(content))


def _text(text: str) -> str:
    return "x" * len(text.encode())


def _links(links: Links | None) -> Links | None:
    """The ties of a job without what its producer and its parent wrote."""
    if links is None:
        return None
    told = None if links.input is None else _content(links.input)
    return replace(links, then=bytes(len(links.then)), input=told)


def _words(value: Any) -> Any:
    """The value with every text in it blank."""
    if isinstance(value, tuple):
        return tuple(map(_words, value))
    return _text(value) if isinstance(value, str) else value


# Whatever else may be said of a job is taken for a client's words, until somebody names it here.
_NO_WORDS = {"key", "payload", "codec", "kind", "history", "schedule", "links"}
_BLANKED = [name for name in JobRecord.__struct_fields__ if name not in _NO_WORDS]
_BLANKED_OF_ATTEMPTS = [name for name in PastAttempt.__struct_fields__ if name not in ("worker", "outcome")]


def blank_job(job: JobRecord) -> JobRecord:
    """The job without what clients and workers wrote, in the same number of bytes, and marked."""
    return replace(_without_words(job), priority=PURGED)


def is_blank(job: JobRecord) -> bool:
    """Was this job purged?

    By its mark. Where there is none, zeros tell: no JSON holds one, and of MessagePack a zero alone is a number.
    """
    if job.priority == PURGED:
        return True
    payload = job.payload
    if not isinstance(payload, bytes) or not payload or any(payload):
        return False
    return job.codec == "json" or (job.codec == "msgpack" and len(payload) > 1)


def _without_words(job: JobRecord) -> JobRecord:
    return replace(
        job,
        payload=_content(job.payload),
        history=tuple(map(_blank_attempt, job.history)),
        links=_links(job.links),
        **{name: _words(getattr(job, name)) for name in _BLANKED},
    )


def _blank_attempt(attempt: PastAttempt) -> PastAttempt:
    return replace(attempt, **{name: _words(getattr(attempt, name)) for name in _BLANKED_OF_ATTEMPTS})


def blank_row(row: FinishedJob) -> FinishedJob:
    """The same for a finished job. It needs no mark: it never runs again, and tables and the archive tell of it."""
    payload = None if row.payload is None else _content(row.payload)
    return replace(
        row, job=_without_words(row.job), result=_content(row.result), why=_text(row.why), payload=payload
    )


def blank_event(event: Transition) -> Transition:
    """A transition without the client's words."""
    return replace(event, client_id=_words(event.client_id), headers=_words(event.headers))


def blank_log(log: EventLog, keys: Collection[bytes]) -> EventLog:
    """A log in which the transitions of some jobs are blank; the same object when they are, or it holds none."""
    rows = tuple(blank_event(row) if row.key in keys else row for row in log.rows)
    return log if rows == log.rows else replace(log, rows=rows)


def blank_state(state: State, keys: Collection[bytes]) -> State:
    """A head in which some jobs are blank; the same object when it holds none of them, or they are blank already."""

    def jobs(found: tuple[JobRecord, ...]) -> tuple[JobRecord, ...]:
        return tuple(blank_job(job) if job.key in keys else job for job in found)

    def backlog(found: Backlog) -> Backlog:
        return replace(found, ready=jobs(found.ready), tail=jobs(found.tail))

    def lease(found: LeaseRecord) -> LeaseRecord:
        return replace(found, job=blank_job(found.job)) if found.job.key in keys else found

    blank = replace(
        state,
        lanes=tuple(replace(lane, backlog=backlog(lane.backlog)) for lane in state.lanes),
        leases={key: lease(found) for key, found in state.leases.items()},
        delayed=Delayed(jobs(state.delayed.jobs), state.delayed.spans, state.delayed.jobs_bytes),
        dead=backlog(state.dead),
        finished=tuple(blank_row(row) if row.key in keys else row for row in state.finished),
        log=blank_log(state.log, keys),
    )
    return state if blank == state else blank


def rows_in(state: State, keys: Collection[bytes]) -> Iterator[JobRecord | FinishedJob]:
    """What a head itself holds of some jobs, in whatever state."""
    lanes = [lane.backlog for lane in state.lanes]
    for backlog in (*lanes, state.dead):
        yield from (job for jobs in (backlog.ready, backlog.tail) for job in jobs if job.key in keys)
    yield from (lease.job for lease in state.leases.values() if lease.job.key in keys)
    yield from (job for job in state.delayed.jobs if job.key in keys)
    yield from (row for row in state.finished if row.key in keys)


def alive_in(state: State, keys: Collection[bytes]) -> set[bytes]:
    """Those of some jobs that wait or run, as far as the head itself tells."""
    dead = {job.key for jobs in (state.dead.ready, state.dead.tail) for job in jobs}
    return {row.key for row in rows_in(state, keys) if isinstance(row, JobRecord)} - dead


def blank_object(
    magic: bytes, data: bytes, name: str, decode: Callable[[bytes], tuple[R, ...]], change: Callable[[R], R]
) -> bytes | None:
    """A segment or a table with its rows changed, none of them in length; None: one cannot keep its length."""
    footer = decode_footer(data, name)
    if not isinstance(footer, Footer):
        raise Damaged(f"{name} is cut short. See docs/operations.md.")
    out = bytearray(data)
    for info in footer.blocks:
        rest = unframe(magic, data[info.offset : info.offset + info.length], name)
        following = unpack_length(rest)
        rows = decode(rest[4:])
        changed = [change(row) for row in rows]
        if list(rows) == changed:
            continue
        packed = b"".join(body for _, body in cut_rows(changed))
        block = frame(magic, pack_length(following) + packed)
        if len(block) != info.length:
            return None
        out[info.offset : info.offset + info.length] = block
    return bytes(out)


# ── The archive ──────────────────────────────────────────────────────────────
class _RecordHeader(Struct, frozen=True):
    job_id: str
    state: str = ""


_decode_line = msgspec.json.Decoder(_RecordHeader).decode


def strip_part(data: bytes, name: str, job_ids: Collection[str]) -> tuple[bytes, list[tuple[str, str]]]:
    """An archive part without the records of some jobs, and (job id, state) of each that was in it.

    The other lines stay byte for byte as they were. Nothing left: no bytes. Raises Damaged.
    """
    text = unpack_part(data, name)
    if not any(each.encode() in text for each in job_ids):
        return data, []
    kept: list[bytes] = []
    found: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        try:
            record = _decode_line(line)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{name} is not an archive part: {error}") from error
        if record.job_id in job_ids:
            found.append((record.job_id, record.state))
        else:
            kept.append(line)
    if not found:
        return data, []
    return (gzip.compress(b"".join(kept), 1, mtime=0) if kept else b""), found
