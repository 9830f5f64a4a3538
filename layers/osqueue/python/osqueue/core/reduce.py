"""The state machine: ``reduce(state, requests, context)`` answers the next state and what became of each request.

Pure, total and deterministic: the same arguments give the same answer, no input raises, nothing is read or
written. What a reduction needs from segments it finds in ``context.blocks`` or lists in ``missing``; what it
moves out of the head it returns in ``objects``, to be written before the commit that refers to them. The moves of
a job are in ``arrows.py``; each arrow is one line here that records an event.

Requests are applied in the order (born, env, n), each at most once: a session row remembers the last request of
every writer, and ``floor`` refuses whatever is older than a forgotten row. An announced request for which there is no
room is turned away for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, takewhile
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from . import (
    admin,
    batches,
    consumers,
    event_log,
    follow_ups,
    groups,
    pacing,
    pauses,
    replacing,
    scheduling,
    spill,
    timers,
)
from . import erase as erasing
from .backlog import NeededRange
from .claim_search import ClaimSearch
from .context import ReductionContext, StagedObject
from .dedup import seen_before
from .draft import Draft
from .drop_rules import DROPPED_PER_COMMIT_MAX
from .encoding import born_of
from .failures import settle_failure
from .gate import Gate, gate_of
from .job_ops import (
    AbortJobs,
    AttachBulk,
    AttachSpans,
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    Completion,
    EnqueueJobs,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    JobSpec,
    LeaseBeat,
    LeaseRef,
    ReleaseJobs,
    ReplaceJobs,
    RunJobNow,
    SetResultTtl,
    record_of,
)
from .ops import Code, Identity, Outcome, Request, encode_outcomes, nonce_digest, outcome, token_of
from .queue_ops import (
    CancelJobs,
    ChangeBatch,
    ChangePacer,
    ChangeSchedule,
    ChangeSettings,
    EraseJobs,
    KeepTicket,
    LengthenPauses,
    MergeSpans,
    MergeTables,
    RaiseGcFloor,
    RecordEvents,
    RedriveJobs,
    ReplaceSpan,
    ReserveSlots,
    ReturnSlot,
    RunTimers,
)
from .rates import borrowed
from .rows import BodyRef, Lent
from .state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    KEYSUM_MASK,
    PROCESSING,
    QUEUED,
    RELEASED,
    SCHEDULED,
    JobRecord,
    LeaseRecord,
    State,
    Transition,
    is_late,
    lease_end,
)

_ORDER = attrgetter("born", "env", "n")  # in which requests are applied


Told = Transition | consumers.Wake  # what a commit has to tell


class Reduction(Struct, frozen=True):
    """What a batch of requests does to a state."""

    state: State  # the next state
    changed: bool  # False: nothing a reader could see is different, so nothing needs to be written
    outcomes: dict[Identity, tuple[Outcome, ...]]  # of the requests that were applied
    objects: tuple[StagedObject, ...]  # to be written before the commit
    missing: tuple[NeededRange, ...]  # what a claim or a promotion would have liked to read
    events: tuple[Transition, ...]  # the transitions, in order, if anybody observes them
    wakes: tuple[consumers.Wake, ...]  # consumers to be invoked once it is committed
    crowded: bool  # some request was left out because there is no room for another session

    @property
    def told(self) -> tuple[Told, ...]:
        """What there is to tell once it is committed."""
        return (*self.events, *self.wakes) if self.wakes else self.events


def reduce(
    state: State, requests: Sequence[Request], context: ReductionContext, *, listed: bool = False
) -> Reduction:
    """Apply requests to a state. ``listed`` tells that the announced requests were looked for."""
    draft = Draft(state, context)
    timers.advance_time(draft)
    outcomes: dict[Identity, tuple[Outcome, ...]] = {}
    crowded = False
    for request in sorted(requests, key=_ORDER):
        if not applicable(draft, request):
            continue
        if not spill.room_for_session(draft, request):
            crowded = True
            if listed:  # it may have been announced: its writer has to be told
                spill.refuse_for_good(draft, request)
            continue
        draft.tokens = _tokens(request.nonce)
        answers = tuple([_APPLY[type(op)](draft, op) for op in request.ops])
        draft.record(request.env, request.n, request.nonce, encode_outcomes(answers))
        outcomes[request.identity] = answers
    if draft.batches:
        follow_ups.settle(draft)
    if draft.schedules:
        scheduling.settle(draft)
    spill.enforce_budgets(draft)
    after = draft.freeze(len(outcomes), listed)
    wakes: tuple[consumers.Wake, ...] = ()
    if after.settings.consumers:
        after, wakes = consumers.settle(draft, after)
    return Reduction(
        state=after,
        changed=draft.changed or bool(wakes),
        outcomes=outcomes,
        objects=tuple(draft.spills),
        missing=tuple(draft.needs.values()),
        events=tuple(draft.events) if context.observed else (),
        wakes=wakes,
        crowded=crowded,
    )


def applicable(draft: Draft | State, request: Request) -> bool:
    """May this request still be applied? Not twice, not to another head, not after its writer was forgotten."""
    epoch = draft.epoch if isinstance(draft, State) else draft.state.epoch
    row = draft.sessions.get(request.env)
    fits = request.epoch == epoch and request.born >= draft.floor and (row is None or request.n > row.n)
    return fits and not was_refused(draft, request)


def was_refused(draft: Draft | State, request: Request) -> bool:
    """Did a commit say that this request, or the one whose key this is, is never applied?"""
    if not draft.refusals:
        return False
    marks = {request.nonce, nonce_digest(request.nonce)}
    return not all(marks.isdisjoint(each.marks) for each in draft.refusals)


def _tokens(nonce: int) -> Iterator[str]:
    """The lease tokens of one request, in the order in which it is granted jobs: see ``token_of``."""
    stem = token_of(nonce, 0)[:-1]
    for position in count():
        yield f"{stem}{position:x}"


# ── Into the queue ───────────────────────────────────────────────────────────
def _enqueue(draft: Draft, op: EnqueueJobs) -> Outcome:
    accepted: list[JobRecord] = []
    codes = [_accept(draft, new, accepted) for new in op.jobs]
    draft.accept(accepted)
    return outcome(codes)


def _accept(draft: Draft, new: JobSpec, accepted: list[JobRecord]) -> Code:
    payload = new.payload
    if type(payload) is not bytes and born_of(payload.name) < draft.gc_floor:  # type: ignore[union-attr]
        return Code.STALE
    if new.key in draft.leases:
        return Code.DUPLICATE
    shared = new.client_id is not None or new.seen >= 0  # others may enqueue it, or have done so
    if shared and (code := seen_before(draft, new)) is not None:
        return code
    if new.batch and not batches.is_open(draft.batches.get(new.batch)):
        return Code.BATCH_OVER
    due = max(new.at_ms, draft.after(new.delay_ms))
    job = record_of(new, draft.settings, draft.now, draft.latest, due if due > draft.now else 0)
    if job.due_ms and len(draft.delayed_spans) >= spill.DELAYED_SPANS_MAX:
        return Code.DELAYED_LIMIT
    if new.restarts is not None and not replacing.make_room(draft, new.restarts):
        return Code.RETRY
    if job.due_ms:
        draft.delay(job)
    else:
        draft.queue(job)
    accepted.append(job)
    if shared:
        draft.learn(new.key)
    return Code.SCHEDULED if job.due_ms else Code.QUEUED


def _attach(draft: Draft, op: AttachSpans) -> Outcome:
    """A bulk joins as a whole or not at all, and is told as one event."""
    if any(born_of(span.name) < draft.gc_floor for span in op.spans):
        return outcome([Code.STALE])
    if op.batch and not batches.is_open(draft.batches.get(op.batch)):
        return outcome([Code.BATCH_OVER])
    if op.delayed:
        if len(draft.delayed_spans) + len(op.spans) > spill.DELAYED_SPANS_MAX:
            return outcome([Code.DELAYED_LIMIT])
        draft.delayed_spans.extend(draft.drops.attached(op.spans))
    else:
        lane = draft.lane(op.priority, op.kind)
        if lane.tail:
            draft.keep(lane.spill_tail(draft.spill))  # it waited first
        lane.attach(draft.drops.attached(op.spans), op.kind)
    jobs = sum(span.count for span in op.spans)
    draft.count("enqueued", jobs)
    if op.batch:
        draft.batches = batches.counted(draft.batches, op.batch, total=jobs, left=jobs)
    keys = sum(span.keysum for span in op.spans)
    draft.counts["keysum_in"] = (draft.counts["keysum_in"] + keys) & KEYSUM_MASK
    draft.changed = True
    if draft.observed:
        target = SCHEDULED if op.delayed else QUEUED
        draft.events.append(Transition(b"", draft.now, "", target, "enqueue", kind=op.kind, count=jobs))
    return outcome([Code.SCHEDULED if op.delayed else Code.QUEUED])


def _attach_all(draft: Draft, op: AttachBulk) -> Outcome:
    """Several bulks join, or none of them does: what one would be refused for is looked for in all of them first.

    Others may hold the same request and send it later, when there is room. So a refusal is committed as well: it is
    then what all of them hear, and none of this can join any more.
    """
    draft.changed = True
    names = [span.name for part in op.parts for span in part.spans]
    if any(born_of(name) < draft.gc_floor for name in names):
        return outcome([Code.STALE])
    delayed = sum(len(part.spans) for part in op.parts if part.delayed)
    if delayed and len(draft.delayed_spans) + delayed > spill.DELAYED_SPANS_MAX:
        return outcome([Code.DELAYED_LIMIT])
    for part in op.parts:
        _attach(draft, part)
    return outcome([Code.QUEUED])


# ── To the workers ───────────────────────────────────────────────────────────
def _claim_under(draft: Draft, op: ClaimJobs) -> Outcome:
    """A claim, under a ticket where it is a consumer's."""
    if op.use is None:
        return _claim(draft, op)
    if not consumers.take_up(draft, op.use, op.lease_ms):
        return Outcome(((int(Code.TICKET_LOST), 0),))
    return consumers.settle_claim(draft, op, op.use, _claim(draft, op))


def _claim(draft: Draft, op: ClaimJobs) -> Outcome:
    if draft.settings.paused:
        return Outcome(((Code.PAUSED, max(0, draft.settings.paused_until_ms - draft.now)),))
    granted: list[LeaseRecord] = []
    reason, wait_ms = Code.EMPTY, 0
    if op.lent is not None:
        _deposit(draft, op.lent)
    gate = gate_of(draft.settings, draft.leases, draft.starts, draft.now)
    search = ClaimSearch(draft, op.kinds, gate, op.limit)
    while len(granted) < op.limit:
        if draft.leases_bytes >= limits.LEASES_BYTES_MAX:
            reason = Code.IN_FLIGHT_LIMIT
            break
        draft.blocked = False
        lane, alone = search.next_lane()
        if lane is None:
            reason, wait_ms = _why_none(draft, search, gate)
            break
        if is_late(lane.ready[0], draft.now):
            if draft.dropped >= DROPPED_PER_COMMIT_MAX:
                reason = Code.RETRY
                break
            draft.drop(lane.pop(), QUEUED)
            continue
        if gate is not None and gate.lacks_slots:
            reason, wait_ms = Code.NO_SLOTS, search.slots_wanted(op.limit)
            break
        most = op.limit - len(granted) if alone else 1
        if lane.mixed and most > 1:
            most = sum(1 for _ in takewhile(lambda job: not job.group, islice(lane.ready, most))) or 1
        kind = lane.ready[0].kind
        started = draft.grant(
            lane, most if gate is None else gate.first_of(lane.ready, kind, most), op.worker, op.lease_ms
        )
        if gate is not None:
            gate.charge(kind, started)
        for lease in started if lane.mixed else ():
            search.charge(lease.job)
        granted.extend(started)
    if granted:
        search.keep_starts()
    runs = ((int(Code.GRANTED), len(granted)),) if granted else ()
    enough = granted and len(granted) == op.limit
    return Outcome(runs if enough else (*runs, (reason, wait_ms)), tuple(granted))


def _why_none(draft: Draft, search: ClaimSearch, gate: Gate | None) -> tuple[Code, int]:
    """Why a claim finds no more, and for how long."""
    if draft.drops.is_spent:
        return Code.RETRY, 0
    if draft.blocked:
        return Code.UNREADABLE, 0
    closed = None if gate is None else gate.why_closed(search.kinds_waiting())
    return closed or search.why_groups_wait() or (Code.EMPTY, 0)


def _deposit(draft: Draft, lent: Lent) -> None:
    """Put slots of the queue's limiter into the head; of another one they are void."""
    if lent.limiter == draft.settings.limiter:
        draft.starts = borrowed(draft.starts, lent, draft.now)
        draft.changed = True


def _held(draft: Draft, key: bytes, token: str) -> LeaseRecord | None:
    lease = draft.leases.get(key)
    return lease if lease is not None and lease.token == token else None


def _heartbeat(draft: Draft, held: LeaseBeat, lease_ms: int) -> Code:
    lease = _held(draft, held.key, held.token)
    if lease is None:
        return Code.LEASE_LOST
    length = lease_ms or lease.lease_ms
    expires = lease_end(draft.latest, length, lease.until_ms)
    draft.revise(
        replace(lease, beat_ms=draft.now, lease_ms=length, expires_ms=expires, **_told(draft, held, lease))
    )
    return Code.CANCEL_REQUESTED if lease.cancel else Code.OK


def _told(draft: Draft, held: LeaseBeat, lease: LeaseRecord) -> dict[str, Any]:
    """What a worker says of its job's progress. A note for which the head has no room is left out."""
    progress = lease.progress if held.progress < 0 else held.progress
    note = lease.note if held.note is None else held.note
    if (progress, note) == (lease.progress, lease.note):
        return {}
    if len(note) > len(lease.note) and draft.leases_bytes + len(note.encode()) > limits.LEASES_BYTES_MAX:
        note = lease.note
    return {"progress": progress, "note": note, "told_ms": draft.now}


def _complete(draft: Draft, item: Completion) -> Code:
    lease = _held(draft, item.key, item.token)
    if lease is None:
        return _completed_before(draft, item)
    if isinstance(item.result, BodyRef) and born_of(item.result.name) < draft.gc_floor:
        return Code.STALE
    job = lease.job
    followed = follow_ups.follow(draft, job, item.result, item.codec) if job.links else 0
    draft.finish(
        job,
        COMPLETED,
        history=draft.ended(lease, COMPLETED),
        token=item.token,
        result=item.result,
        codec=item.codec if not item.result or item.codec != job.codec else "",
        origin=PROCESSING,
        cause="complete",
        followed=followed,
    )
    return Code.OK


def _completed_before(draft: Draft, item: Completion) -> Code:
    """A repeat of the complete that won is a success, as long as its record lives."""
    for row in draft.finished:
        if row.job.key == item.key and row.token == item.token and row.state == COMPLETED:
            return Code.OK
    return Code.LEASE_LOST


def _fail(draft: Draft, item: FailedAttempt) -> Code:
    lease = _held(draft, item.key, item.token)
    if lease is None:
        return Code.LEASE_LOST
    if lease.cancel:
        return _cancel_leased(draft, lease, item.error)
    job = draft.end(lease, FAILED, item.error, item.error_type, item.trace)
    state = settle_failure(
        draft, job, "fail", lease.worker, share=item.jitter, wait_ms=item.retry_ms, final=item.final
    )
    return Code.FAILED if state == FAILED else Code.FAILING


def _release(draft: Draft, held: LeaseRef, op: ReleaseJobs) -> Code:
    lease = _held(draft, held.key, held.token)
    if lease is None:
        return Code.LEASE_LOST
    if lease.cancel:
        return _cancel_leased(draft, lease, "")
    job = draft.end(lease, RELEASED, op.why)
    job = replace(job, attempt=job.attempt - 1)
    draft.count("released")
    due = max(op.at_ms, draft.after(op.delay_ms))
    if op.pause_ms and not pauses.is_held(
        draft.settings, job.kind
    ):  # there was no room to say so of its kind
        due = max(due, draft.after(op.pause_ms))
    if due > draft.now:
        draft.delay(replace(job, due_ms=due))
        draft.holds = groups.waiting_for(draft.holds, draft.settings, job, SCHEDULED)
        draft.event(job, PROCESSING, SCHEDULED, "release", lease.worker)
    else:
        draft.queue_front(job)
        draft.event(job, PROCESSING, QUEUED, "release", lease.worker)
    return Code.OK


def _abort(draft: Draft, held: LeaseRef, why: str) -> Code:
    lease = _held(draft, held.key, held.token)
    return Code.LEASE_LOST if lease is None else _cancel_leased(draft, lease, why)


def _cancel_leased(draft: Draft, lease: LeaseRecord, why: str) -> Code:
    history = draft.ended(lease, CANCELLED)
    draft.finish(lease.job, CANCELLED, history=history, why=why, origin=PROCESSING, cause="cancel")
    return Code.CANCELLED


# ── Which operation is whose ─────────────────────────────────────────────────
def _release_each(draft: Draft, op: ReleaseJobs) -> Outcome:
    if op.pause_ms:
        held = [draft.leases[each.key].job.kind for each in op.held if _held(draft, each.key, each.token)]
        pauses.hold(draft, [(None if op.whole else kind, draft.after(op.pause_ms)) for kind in held])
    # Going back to the front one by one would turn their order round.
    codes = [_release(draft, held, op) for held in reversed(op.held)]
    return outcome(codes[::-1])


def _cancel_many(draft: Draft, op: CancelJobs) -> Outcome:
    from .dropping import cancel_jobs  # where it is asked for: few cold starts pay for it

    return cancel_jobs(draft, op)


# Lambdas where the answer is one code an item, or one in all.
_APPLY: dict[type, Callable[[Draft, Any], Outcome]] = {
    EnqueueJobs: _enqueue,
    AttachSpans: _attach,
    AttachBulk: _attach_all,
    ClaimJobs: _claim_under,
    KeepTicket: consumers.keep_ticket,
    ExtendLeases: lambda draft, op: outcome([_heartbeat(draft, held, op.lease_ms) for held in op.held]),
    CompleteJobs: lambda draft, op: outcome([_complete(draft, item) for item in op.items]),
    FailJobs: lambda draft, op: outcome([_fail(draft, item) for item in op.items]),
    ReleaseJobs: _release_each,
    AbortJobs: lambda draft, op: outcome([_abort(draft, held, op.why) for held in op.held]),
    CancelJob: lambda draft, op: outcome([admin.cancel(draft, op)]),
    ReplaceJobs: replacing.replace_jobs,
    RunJobNow: lambda draft, op: outcome([admin.run_now(draft, op)]),
    SetResultTtl: lambda draft, op: outcome([admin.set_result_ttl(draft, op)]),
    MergeTables: admin.merge_tables,
    ChangeSettings: admin.configure,
    LengthenPauses: pauses.lengthen,
    RedriveJobs: admin.redrive,
    RunTimers: admin.run_timers,
    CancelJobs: _cancel_many,
    RecordEvents: event_log.record,
    RaiseGcFloor: admin.raise_gc_floor,
    ReplaceSpan: admin.replace_span,
    MergeSpans: admin.merge_spans,
    EraseJobs: erasing.erase,
    ChangePacer: pacing.change,
    ReserveSlots: pacing.reserve,
    ReturnSlot: pacing.give_back,
    ChangeSchedule: scheduling.change,
    ChangeBatch: follow_ups.change,
}
