"""Keeping the head small: the last step of every reduction moves whatever exceeds its byte budget.

Queued, delayed and dead jobs spill into segments, inline payloads of leased jobs and results into bodies,
finished jobs into tables, writers' session rows behind ``floor``. What is spilled is written before the
commit that refers to it, so a crash in between leaves an object that nobody names, never a reference to nothing.
"""

from __future__ import annotations

import heapq
from collections import Counter
from functools import partial
from itertools import accumulate, takewhile
from operator import attrgetter
from zlib import crc32

from msgspec.structs import replace

from .. import limits
from . import event_log, tables
from .backlog import NeededRange, deleted_from, need_of
from .context import StagedObject
from .draft import Draft
from .encoding import Block, encode_segment, staged_name
from .ops import Request, nonce_digest, outcomes_bytes_max
from .rows import BodyRef, StoredContent
from .state import (
    ARCHIVE_ONLY,
    ENDED,
    EXPIRED_DEAD,
    KEYSUM_MASK,
    JobRecord,
    Span,
    State,
    due_order,
    keysums,
)
from .weights import (
    FINISHED_WEIGHT_MIN,
    LEASE_WEIGHT_MIN,
    finished_weight,
    job_weight,
    session_weight,
    session_weight_of,
)

INLINE_LEASED_BYTES_MAX = 64 * limits.KB  # payloads of leased jobs, and results, kept in the head
INLINE_ROW_BYTES = 64  # a payload smaller than this is not worth a body
DELAYED_SPANS_SOFT = 16  # more delayed segments than this are merged
DELAYED_SPANS_CROWDED = 48  # the same while writers collide: each of them would merge, and one wins
DELAYED_SPANS_MAX = 64  # more are refused


def enforce_budgets(draft: Draft) -> None:
    """Bring every part of the head back into its budget."""
    if draft.refusals:
        forget_refusals(draft)
    _settle_lanes(draft)
    _settle_delayed(draft)
    if draft.dead.tail_bytes + draft.dead.ready_bytes > limits.DEAD_BYTES_MAX:
        while draft.dead.ready_bytes > limits.DEAD_BYTES_MAX // 2 and len(draft.dead.ready) > 1:
            draft.dead.spill_ready(draft.spill)
        if draft.dead.tail_bytes > limits.DEAD_BYTES_MAX // 2:
            draft.dead.spill_tail(draft.spill)
        draft.dead.fold(draft.spill, draft.blocks)
    if draft.finished_bytes > limits.FINISHED_BYTES_MAX:
        shelve(draft)
    # No more than this can be payloads and results; looking at each would cost more.
    rest = LEASE_WEIGHT_MIN * len(draft.leases) + FINISHED_WEIGHT_MIN * len(draft.finished)
    if draft.leases_bytes + draft.finished_bytes - rest > INLINE_LEASED_BYTES_MAX:
        _spill_contents(draft)
    if draft.log.until_ms:
        event_log.settle(draft)


def _settle_lanes(draft: Draft) -> None:
    lanes = list(draft.lanes.values())
    for lane in lanes:
        lane.mark_taken(draft.spill, draft.blocks)
    while sum([lane.ready_bytes for lane in lanes]) > limits.READY_BYTES_MAX:
        fullest = max(lanes, key=lambda lane: lane.ready_bytes)
        if len(fullest.ready) < 2:
            break
        fullest.spill_ready(draft.spill)
    while sum([lane.tail_bytes for lane in lanes]) > limits.TAIL_BYTES_MAX:
        max(lanes, key=lambda lane: lane.tail_bytes).spill_tail(draft.spill)
    for lane in lanes:
        for need in lane.fold(draft.spill, draft.blocks):
            draft.need(need)


# ── Delayed jobs ─────────────────────────────────────────────────────────────
def _settle_delayed(draft: Draft) -> None:
    """Spill all but the soonest of the window; merge segments so that few of them ever have to be read."""
    if draft.delayed_bytes > limits.DELAYED_BYTES_MAX:
        sizes = accumulate(map(job_weight, draft.delayed))
        keep = sum(1 for _ in takewhile(lambda size: size <= limits.DELAYED_BYTES_MAX // 2, sizes))
        later = draft.delayed[keep:]
        del draft.delayed[keep:]
        draft.delayed_bytes -= sum(map(job_weight, later))
        draft.delayed_spans.append(draft.spill("segments", partial(encode_segment, later)))
    if len(draft.delayed_spans) > (DELAYED_SPANS_CROWDED if draft.state.hot else DELAYED_SPANS_SOFT):
        _merge_delayed(draft)


def _merge_delayed(draft: Draft) -> None:
    fresh = {item.name for item in draft.spills}  # cannot have been read yet
    lost = {name for name, _ in draft.context.unreadable}
    known = [
        span
        for span in draft.delayed_spans
        if span.name not in fresh
        and span.name not in lost
        and (span.vector is None or span.vector.name not in lost)
    ]
    sides = Counter(map(draft.drops.side, known))  # where there are drop rules: see there
    most = max(sides, key=lambda side: (sides[side], side), default=0)
    taken = _to_merge([span for span in known if draft.drops.side(span) == most])
    read = {span.name: _remaining(draft, span) for span in taken}
    runs = [jobs for jobs in read.values() if jobs is not None]
    if not runs or len(runs) < len(read):
        return
    merged = [job for job in heapq.merge(*runs, key=due_order) if job.key not in draft.tombstones]
    draft.tombstones.difference_update(job.key for jobs in runs for job in jobs)
    draft.delayed_spans = [span for span in draft.delayed_spans if span.name not in read]
    if merged:
        fresh_span = draft.spill("segments", partial(encode_segment, merged))
        draft.delayed_spans.append(draft.drops.aged(fresh_span, taken))
    draft.changed = True


def _to_merge(spans: list[Span]) -> list[Span]:
    """The smallest that are of like size, or none. What counts is what is left of them.

    Size-tiered, as log-structured merge trees do it: each job is rewritten about log N times in its life, and those
    that are left, each much larger than all before it or too large for two of them to be one, are few.
    """
    group: list[Span] = []
    size = 0
    for span in sorted(spans, key=lambda span: (_left(span), span.name)):
        if size + _left(span) > limits.SEGMENT_BYTES_MAX or len(group) == DELAYED_SPANS_SOFT // 2:
            break
        if _left(span) > tables.LARGER_MAX * size:
            if len(group) > 1:
                break
            group, size = [], 0
        group.append(span)
        size += _left(span)
    return group if len(group) > 1 else []


def _left(span: Span) -> int:
    return span.size - span.offset


def _remaining(draft: Draft, span: Span) -> list[JobRecord] | None:
    """Every job still in a delayed segment, or None (and a need) when it has not been read whole."""
    jobs: list[JobRecord] = []
    offset, skip, length = span.offset, span.skip, span.length
    deleted = deleted_from(span, draft.blocks)
    if deleted is None and span.vector is not None:
        draft.need(need_of(span.vector))
    while length:
        block = draft.blocks.get((span.name, offset))
        if not isinstance(block, Block):
            draft.need(NeededRange(span.name, offset, span.size - offset, 0, length))
            return None
        if deleted is None:
            return None
        jobs.extend(deleted.keep(offset, block, skip))
        offset, length, skip = offset + length, block.next_length, 0
    return jobs


# ── Payloads and results ─────────────────────────────────────────────────────
def _spill_contents(draft: Draft) -> None:
    """Move inline payloads of leased jobs, and contents of finished ones, into one body object, the largest first.

    Not those of dead letters that the archive is to get: their jobs have them as well, and nobody would find a second
    copy any more once the archive has it. A commit makes no more of them than were leased, and the next moves the rows.
    """
    # Each content, the job whose lease it belongs to or where its finished row stands, and whether it is a payload.
    places: list[tuple[bytes, bytes | int, bool]] = [
        *[(_inline(lease.job.payload), key, True) for key, lease in draft.leases.items()],
        *[
            (_inline(lease.job.links.input), key, False)
            for key, lease in draft.leases.items()
            if lease.job.links is not None and lease.job.links.input is not None
        ],
        *[(_inline(row.result), at, False) for at, row in enumerate(draft.finished)],
        *[
            (_inline(row.payload), at, True)
            for at, row in enumerate(draft.finished)
            if row.payload is not None and row.mark != ARCHIVE_ONLY
        ],
    ]
    total = sum([len(content) for content, _, _ in places])
    if total <= INLINE_LEASED_BYTES_MAX:
        return
    name = staged_name("bodies", draft.state.seq, draft.context.chance, len(draft.spills))
    data = bytearray()
    places.sort(key=lambda place: len(place[0]), reverse=True)
    for content, where, is_payload in places:
        if total <= INLINE_LEASED_BYTES_MAX // 2 or len(content) < INLINE_ROW_BYTES:
            break
        total -= len(content)
        body = BodyRef(name, len(data), len(content), crc32(content))
        data += content
        if isinstance(where, bytes):
            lease = draft.leases[where]
            draft.revise(replace(lease, job=_moved(lease.job, body, is_payload)))
            continue
        row = draft.finished[where]
        moved = replace(row, payload=body, spent=body) if is_payload else replace(row, result=body)
        draft.finished[where] = moved
        draft.finished_bytes += finished_weight(moved) - finished_weight(row)
    if data:
        draft.spills.append(StagedObject(name, bytes(data)))


def _moved(job: JobRecord, body: BodyRef, is_payload: bool) -> JobRecord:
    """The job with its payload, or its input, beside the head."""
    if is_payload or job.links is None:
        return replace(job, payload=body)
    return replace(job, links=replace(job.links, input=body))


def _inline(content: StoredContent) -> bytes:
    return content if isinstance(content, bytes) else b""


# ── Finished jobs ────────────────────────────────────────────────────────────
def shelve(draft: Draft) -> None:
    """Move finished jobs out of the head, into a table.

    Only rows as they stood in the head that was read: should this swap be lost, the table stays, and a restore
    believes what it tells. Besides, whoever finished a job finds it in the head for at least one commit, and so does
    whoever waits for it.
    """
    rows, rest = draft.finished[: draft.committed], draft.finished[draft.committed :]
    rest_bytes = draft.fresh_bytes if rest else 0
    if not rows:
        return
    draft.committed = 0
    draft.changed = True
    draft.finished = rest
    draft.finished_bytes = draft.fresh_bytes = rest_bytes
    gone = keysums([row.job for row in rows if row.mark in (ENDED, EXPIRED_DEAD)])
    draft.counts["keysum_out"] = (draft.counts["keysum_out"] + gone) & KEYSUM_MASK
    rows.sort(key=attrgetter("job.key"))
    shelf = [*draft.tables, draft.spill(tables.FOLDER, partial(tables.encode_table, rows, False))]
    tables.fold(shelf, draft.spill)
    draft.tables = tuple(shelf)


# ── Sessions ─────────────────────────────────────────────────────────────────
def room_for_session(draft: Draft, request: Request) -> bool:
    """Return whether the head has room for the row that the request will leave, whatever its outcomes.

    If the rows exceed what is kept, forget the longest idle writers and raise the floor past them.
    """
    kept = min(limits.SESSIONS_BYTES_KEPT, limits.SESSIONS_BYTES_MAX)  # tests lower the maximum alone
    more = session_weight_of(request.env, outcomes_bytes_max(request.ops))
    if draft.sessions_bytes + more <= kept:
        return True
    row = draft.sessions.get(request.env)
    more -= session_weight(request.env, row) if row else 0
    if more <= 0 or draft.sessions_bytes + more <= kept:
        return True
    if not draft.none_idle:
        _forget_idle(draft, request, kept - more)
    return draft.sessions_bytes + more <= limits.SESSIONS_BYTES_MAX


def _forget_idle(draft: Draft, request: Request, bytes_max: int) -> None:
    """Forget a quarter of the idle writers, and more until the remaining rows have at most ``bytes_max`` bytes."""
    idle = [
        (other.seq, env)
        for env, other in draft.sessions.items()
        if env != request.env and draft.now - other.at_ms >= limits.SESSION_IDLE_MS_MIN
    ]
    for position, (seq, env) in enumerate(sorted(idle)):
        if position >= len(idle) // 4 and draft.sessions_bytes <= bytes_max:
            break
        draft.sessions_bytes -= session_weight(env, draft.sessions.pop(env))
        draft.floor = max(draft.floor, seq)
    else:
        draft.none_idle = True  # later requests of this commit need not search the rows again


def refuse_for_good(draft: Draft, request: Request) -> None:
    """Refuse a request for good, if there is room to remember that: its writer need not wait until there is some."""
    if refusal_count(draft) + len(draft.turned_away) < limits.TURNED_AWAY_MAX:
        draft.turned_away.add(nonce_digest(request.nonce))
        draft.changed = True


def refusal_count(draft: Draft | State) -> int:
    """How many requests are known to have been turned away."""
    return sum([len(each.marks) for each in draft.refusals])


def forget_refusals(draft: Draft) -> None:
    """Raise the floor past refusals as old as the rows of idle writers: from then on it refuses the same requests."""
    for each in draft.refusals:
        if draft.now - each.at_ms >= limits.SESSION_IDLE_MS_MIN:
            draft.floor = max(draft.floor, each.seq)
