"""The state machine: ``reduce(state, requests, context)`` answers the next state and what became of each request.

Pure, total and deterministic: the same arguments give the same answer, no input raises, nothing is read or
written. What a reduction needs from segments it finds in ``context.blocks`` or lists in ``missing``; what it
moves out of the head it returns in ``objects``, to be written before the commit that refers to them. The life of
a job is drawn in ``state.py``; each arrow is one line here that records an event.

Requests are applied in the order (born, env, n), each at most once: a session row remembers the last request of
every writer, and ``floor`` refuses whatever is older than a forgotten row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from . import settle, sweep
from .backlog import Need, Rope, needs_for
from .draft import Context, Draft, Object
from .ops import (
    Abort,
    Attach,
    Cancel,
    Claim,
    Code,
    Complete,
    Completion,
    Configure,
    Enqueue,
    Fail,
    Failure,
    Heartbeat,
    Held,
    Identity,
    New,
    Op,
    Outcome,
    RaiseGcFloor,
    Redrive,
    Release,
    Request,
    Rewrite,
    Sweep,
    encode_outcomes,
    outcome,
    token_of,
)
from .state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FAILING,
    KEYSUM_MASK,
    PROCESSING,
    QUEUED,
    RELEASED,
    SCHEDULED,
    Body,
    Event,
    Job,
    Lease,
    Span,
    State,
    delayed_state,
)
from .wire import born_of

LEASE_BYTES_LEAST = 140  # no lease weighs less


class Reduction(Struct, frozen=True):
    """What a batch of requests does to a state."""

    state: State  # the next state
    changed: bool  # False: nothing a reader could see is different, so nothing needs to be written
    outcomes: dict[Identity, tuple[Outcome, ...]]  # of the requests that were applied
    objects: tuple[Object, ...]  # to be written before the commit
    missing: tuple[Need, ...]  # what a claim or a promotion would have liked to read
    events: tuple[Event, ...]  # the transitions, in order, if anybody observes them
    crowded: bool  # some request was left out because there is no room for another session


def reduce(state: State, requests: Sequence[Request], context: Context, *, listed: bool = False) -> Reduction:
    """Apply requests to a state. ``listed`` tells that the announced requests were looked for."""
    draft = Draft(state, context)
    sweep.advance(draft)
    outcomes: dict[Identity, tuple[Outcome, ...]] = {}
    crowded = False
    for request in sorted(requests, key=lambda each: (each.born, each.env, each.n)):
        if not applicable(draft, request):
            continue
        if not settle.room_for_session(draft, request):
            crowded = True
            continue
        grants = iter(range(limits.CLAIM_LIMIT_MAX * len(request.ops)))
        answers = tuple(_apply(draft, op, request, grants) for op in request.ops)
        draft.record(request.env, request.n, request.nonce, encode_outcomes(answers))
        outcomes[request.identity] = answers
    settle.settle(draft)
    return Reduction(
        state=draft.freeze(len(outcomes), listed),
        changed=draft.changed,
        outcomes=outcomes,
        objects=tuple(draft.spills),
        missing=tuple(draft.needs.values()),
        events=tuple(draft.events),
        crowded=crowded,
    )


def applicable(draft: Draft | State, request: Request) -> bool:
    """May this request still be applied? Not twice, not to another head, not after its writer was forgotten."""
    epoch = draft.epoch if isinstance(draft, State) else draft.state.epoch
    row = draft.sessions.get(request.env)
    return request.epoch == epoch and request.born >= draft.floor and (row is None or request.n > row.n)


def _apply(draft: Draft, op: Op, request: Request, grants: Iterator[int]) -> Outcome:
    match op:
        case Enqueue():
            return outcome([_enqueue(draft, new) for new in op.jobs])
        case Attach():
            return _attach(draft, op)
        case Claim():
            return _claim(draft, op, request.nonce, grants)
        case Heartbeat():
            return outcome([_heartbeat(draft, held, op.lease_ms) for held in op.held])
        case Complete():
            return outcome([_complete(draft, item) for item in op.items])
        case Fail():
            return outcome([_fail(draft, item) for item in op.items])
        case Release():
            # Going back to the front one by one would turn their order round.
            codes = [_release(draft, held, op.delay_ms) for held in reversed(op.held)]
            return outcome(reversed(codes))
        case Abort():
            return outcome([_abort(draft, held, op.why) for held in op.held])
        case Cancel():
            return outcome([_cancel(draft, op)])
        case Configure():
            return _configure(draft, op)
        case Redrive():
            return _redrive(draft, op)
        case Sweep():
            return _sweep(draft, op)
        case RaiseGcFloor():
            return _raise_gc_floor(draft, op)
        case Rewrite():
            return _rewrite(draft, op)


# ── Into the queue ───────────────────────────────────────────────────────────
def _enqueue(draft: Draft, new: New) -> Code:
    payload = new.payload
    if type(payload) is not bytes and born_of(payload.name) < draft.gc_floor:  # type: ignore[union-attr]
        return Code.STALE
    if new.key in draft.leases:
        return Code.DUPLICATE
    now = draft.now
    due = max(new.at_ms, now + new.delay_ms)
    if due <= now:
        due = 0
    job = Job(
        new.key,
        payload,
        now,
        new.priority,
        new.kind,
        new.max_attempts,
        new.result_ttl_ms,
        new.codec,
        0,
        0,
        due,
    )
    if due:
        if len(draft.delayed_spans) >= settle.DELAYED_SPANS_MAX:
            return Code.DELAYED_LIMIT
        draft.delay(job)
        draft.accept(job)
        draft.event(job, "", SCHEDULED, "enqueue")
        return Code.SCHEDULED
    if not draft.queue(job):
        return Code.LANES
    draft.accept(job)
    draft.event(job, "", QUEUED, "enqueue")
    return Code.QUEUED


def _attach(draft: Draft, op: Attach) -> Outcome:
    """A bulk joins as a whole or not at all. Its jobs' events are the segments themselves."""
    if any(born_of(span.name) < draft.gc_floor for span in op.spans):
        return outcome([Code.STALE])
    if op.delayed:
        if len(draft.delayed_spans) + len(op.spans) > settle.DELAYED_SPANS_MAX:
            return outcome([Code.DELAYED_LIMIT])
        draft.delayed_spans.extend(op.spans)
    else:
        rope = draft.lane(op.priority, op.kind, must=False)
        if rope is None:
            return outcome([Code.LANES])
        if rope.tail:
            draft.keep(rope.spill_tail(draft.spill))  # it waited first
        rope.attach(op.spans)
    draft.count("enqueued", sum(span.count for span in op.spans))
    keys = sum(span.keysum for span in op.spans)
    draft.counts["keysum_in"] = (draft.counts["keysum_in"] + keys) & KEYSUM_MASK
    draft.changed = True
    return outcome([Code.SCHEDULED if op.delayed else Code.QUEUED])


# ── To the workers ───────────────────────────────────────────────────────────
def _claim(draft: Draft, op: Claim, nonce: int, grants: Iterator[int]) -> Outcome:
    if draft.settings.paused:
        return Outcome(((Code.PAUSED, 0),))
    granted: list[Lease] = []
    reason = Code.EMPTY
    while len(granted) < op.limit:
        if draft.leases_bytes >= limits.LEASES_BYTES_MAX:
            reason = Code.IN_FLIGHT_LIMIT
            break
        draft.blocked = False
        job = _next_job(draft, op.kinds)
        if job is None:
            if draft.blocked:
                reason = Code.UNREADABLE
            break
        granted.append(draft.grant(job, token_of(nonce, next(grants)), op.worker, op.lease_ms))
    if not granted:
        return Outcome(((reason, 0),))
    return Outcome(((Code.GRANTED, len(granted)),), tuple(granted))


def _next_job(draft: Draft, kinds: tuple[str, ...] | None) -> Job | None:
    """The first job of the most urgent lane; among kinds of one priority, the one that came first.

    When that lane's next jobs lie in a segment that has not been read, there is no next job yet: taking a less
    urgent one instead would break the order.
    """
    while (rope := _most_urgent(draft, kinds)) is not None:
        if rope.ready:
            return rope.pop()
        need = rope.refill(draft.blocks, draft.tombstones)
        if need is not None:
            draft.need(need)
            return None
        # Now its first key is known, not only a lower bound of it (or it was empty): look again.
    return None


def _most_urgent(draft: Draft, kinds: tuple[str, ...] | None) -> Rope | None:
    lanes = [
        (priority, rope)
        for (priority, kind), rope in draft.lanes.items()
        if (rope.ready or rope) and (kinds is None or kind in kinds)
    ]
    if len(lanes) < 2:
        return lanes[0][1] if lanes else None
    return min(lanes, key=lambda lane: (lane[0], lane[1].head_key()))[1]


def foresee(state: State, requests: Sequence[Request]) -> list[Need]:
    """What these requests' claims will want to read, so that it can be read before the first reduction."""
    wanted = sum(op.limit for request in requests for op in request.ops if isinstance(op, Claim))
    room = (limits.LEASES_BYTES_MAX - state.leases_bytes) // LEASE_BYTES_LEAST
    wanted = 0 if state.settings.paused else min(wanted, room)
    needs: list[Need] = []
    for lane in state.lanes:  # sorted by priority
        wanted -= len(lane.backlog.ready)
        if wanted <= 0:
            break
        needs.extend(needs_for(lane.backlog.spans, wanted))
        wanted -= sum(span.count for span in lane.backlog.spans)
    return needs


def _held(draft: Draft, key: bytes, token: str) -> Lease | None:
    lease = draft.leases.get(key)
    return lease if lease is not None and lease.token == token else None


def _heartbeat(draft: Draft, held: Held, lease_ms: int) -> Code:
    lease = _held(draft, held.key, held.token)
    if lease is None:
        return Code.LEASE_LOST
    length = lease_ms or lease.lease_ms
    draft.revise(replace(lease, beat_ms=draft.now, lease_ms=length, expires_ms=draft.now + length))
    return Code.CANCEL_REQUESTED if lease.cancel else Code.OK


def _complete(draft: Draft, item: Completion) -> Code:
    lease = _held(draft, item.key, item.token)
    if lease is None:
        return _completed_before(draft, item)
    if isinstance(item.result, Body) and born_of(item.result.name) < draft.gc_floor:
        return Code.STALE
    job = draft.end(lease, COMPLETED)
    draft.finish(job, COMPLETED, token=item.token, result=item.result, origin=PROCESSING, cause="complete")
    return Code.OK


def _completed_before(draft: Draft, item: Completion) -> Code:
    """A repeat of the complete that won is a success, as long as its record lives."""
    for row in draft.finished:
        if row.job.key == item.key and row.token == item.token and row.state == COMPLETED:
            return Code.OK
    return Code.LEASE_LOST


def _fail(draft: Draft, item: Failure) -> Code:
    lease = _held(draft, item.key, item.token)
    if lease is None:
        return Code.LEASE_LOST
    if lease.cancel:
        return _cancel_leased(draft, lease, item.error)
    job = draft.end(lease, FAILED, item.error)
    if item.final or job.attempt >= job.max_attempts:
        draft.bury(job)
        draft.event(job, PROCESSING, FAILED, "fail", lease.worker)
        return Code.FAILED
    wait = item.retry_ms
    if wait < 0:
        wait = int(
            backoff_ms(draft.settings.backoff_base_ms, draft.settings.backoff_cap_ms, job.attempt)
            * item.jitter
        )
    draft.delay(replace(job, due_ms=draft.now + wait))
    draft.count("retried")
    draft.event(job, PROCESSING, FAILING, "fail", lease.worker)
    return Code.FAILING


def backoff_ms(base_ms: int, cap_ms: int, attempt: int) -> int:
    """The longest wait after the ``attempt``-th failure: base · 2^(attempt-1), capped.

    The actual wait is a random share of it ("full jitter", M. Brooker, AWS Architecture Blog, 2015).
    """
    return min(cap_ms, base_ms << min(attempt - 1, 40))


def _release(draft: Draft, held: Held, delay_ms: int) -> Code:
    lease = _held(draft, held.key, held.token)
    if lease is None:
        return Code.LEASE_LOST
    if lease.cancel:
        return _cancel_leased(draft, lease, "")
    job = draft.end(lease, RELEASED)
    job = replace(job, attempt=job.attempt - 1)
    draft.count("released")
    if delay_ms > 0:
        draft.delay(replace(job, due_ms=draft.now + delay_ms))
        draft.event(job, PROCESSING, SCHEDULED, "release", lease.worker)
    else:
        draft.queue_front(job)
        draft.event(job, PROCESSING, QUEUED, "release", lease.worker)
    return Code.OK


def _abort(draft: Draft, held: Held, why: str) -> Code:
    lease = _held(draft, held.key, held.token)
    return Code.LEASE_LOST if lease is None else _cancel_leased(draft, lease, why)


def _cancel_leased(draft: Draft, lease: Lease, why: str) -> Code:
    job = draft.end(lease, CANCELLED)
    draft.finish(job, CANCELLED, why=why, origin=PROCESSING, cause="cancel")
    return Code.CANCELLED


# ── Out of the queue ─────────────────────────────────────────────────────────
def _cancel(draft: Draft, op: Cancel) -> Code:
    lease = draft.leases.get(op.key)
    if lease is not None:
        if not lease.cancel:
            draft.revise(replace(lease, cancel=True))
        return Code.PROCESSING
    job = draft.undelay(op.key)
    if job is not None:
        draft.finish(job, CANCELLED, origin=delayed_state(job), cause="cancel")
        return Code.CANCELLED
    for rope in draft.lanes.values():
        job = rope.remove(op.key)
        if job is not None:
            draft.finish(job, CANCELLED, origin=QUEUED, cause="cancel")
            return Code.CANCELLED
    for row in draft.finished:
        if row.job.key == op.key:
            return _OVER[row.state]
    if op.job is None:
        return Code.NOT_FOUND
    return _cancel_in_segment(draft, op, op.job)


_OVER = {CANCELLED: Code.CANCELLED, COMPLETED: Code.COMPLETED, FAILED: Code.NOT_FOUND}


def _cancel_in_segment(draft: Draft, op: Cancel, job: Job) -> Code:
    if op.key in draft.tombstones:
        return Code.NOT_FOUND
    queued = any(_still_holds(span, op) for rope in draft.lanes.values() for span in rope.spans)
    delayed = any(_still_holds(span, op) for span in draft.delayed_spans)
    if not (queued or delayed) or len(draft.tombstones) >= limits.TOMBSTONES_MAX:
        return Code.RETRY
    draft.tombstones.add(op.key)
    if delayed:
        draft.delayed_tombstones[op.key] = delayed_state(job)
    draft.finish(job, CANCELLED, origin=delayed_state(job) if delayed else QUEUED, cause="cancel")
    return Code.CANCELLED


def _still_holds(span: Span, op: Cancel) -> bool:
    """Is the job still to come in this span? Blocks and jobs leave it in order."""
    return span.name == op.span and (span.level > 0 or (op.offset, op.index) >= (span.offset, span.skip))


def _rewrite(draft: Draft, op: Rewrite) -> Outcome:
    if op.replacement is not None and born_of(op.replacement.name) < draft.gc_floor:
        return outcome([Code.STALE])
    if not draft.tombstones.issuperset(op.dropped):
        return outcome([Code.RETRY])
    exchanged = any(
        rope.exchange(rope.spans.index(op.span), op.replacement)
        for rope in draft.lanes.values()
        if op.span in rope.spans
    )
    if op.span in draft.delayed_spans:
        at = draft.delayed_spans.index(op.span)
        draft.delayed_spans[at : at + 1] = [] if op.replacement is None else [op.replacement]
        exchanged = True
    if not exchanged:
        return outcome([Code.RETRY])
    draft.tombstones.difference_update(op.dropped)
    draft.changed = True
    return outcome([Code.OK])


# ── Settings and upkeep ──────────────────────────────────────────────────────
def _configure(draft: Draft, op: Configure) -> Outcome:
    wished: dict[str, Any] = {
        name: value for name in op.__struct_fields__ if (value := getattr(op, name)) is not None
    }
    if "shards" in wished:  # their number only grows, whatever a caller believed it was
        wished["shards"] = max(wished["shards"], draft.settings.shards)
    settings = replace(draft.settings, **wished)
    if settings != draft.settings:
        draft.settings = settings
        draft.changed = True
    return outcome([Code.OK])


def _redrive(draft: Draft, op: Redrive) -> Outcome:
    """Answers two runs: (OK, jobs queued again) and (EMPTY, jobs looked at); UNREADABLE when it got no further."""
    draft.blocked = False
    moved = looked = 0
    kept: list[Job] = []
    while moved < op.limit and looked < op.scan:
        need = draft.dead.refill(draft.blocks, set())
        if need is not None:
            draft.need(need)
            break
        if not draft.dead.ready:
            break
        job = draft.dead.pop()
        looked += 1
        again = replace(job, attempt=0)
        if not _matches(job, op) or not draft.queue(again):
            kept.append(job)
            continue
        moved += 1
        draft.count("redriven")
        draft.event(again, FAILED, QUEUED, "redrive")
    keep: Callable[[Job], None] = draft.dead.push_front
    if looked < op.scan:
        for job in reversed(kept):
            keep(job)
    else:  # the caller will look at the rest next, so what was looked at goes to the back
        for job in kept:
            draft.dead.push(job, 0)
    draft.changed |= moved > 0 or (bool(kept) and looked >= op.scan)
    return Outcome(((Code.OK, moved), (Code.UNREADABLE if draft.blocked else Code.EMPTY, looked)))


def _matches(job: Job, op: Redrive) -> bool:
    error = job.history[-1].error if job.history else ""
    return (op.kinds is None or job.kind in op.kinds) and op.error in error


def _sweep(draft: Draft, op: Sweep) -> Outcome:
    sweep.forget_dead(draft)
    if op.flush:
        settle.archive(draft)
    return outcome([Code.OK])


def _raise_gc_floor(draft: Draft, op: RaiseGcFloor) -> Outcome:
    if op.floor > draft.gc_floor:
        draft.gc_floor = min(op.floor, draft.state.seq)
        draft.changed = True
    return outcome([Code.OK])
