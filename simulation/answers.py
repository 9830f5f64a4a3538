"""Was a client told the truth? What each call was told against what was committed while it waited.

A call that was answered took effect at one commit between its beginning and its answer, with those outcomes; or
it changed nothing, and then one head that was current in between explains every one of its outcomes. An error
that promises "not applied" forbids the request for all time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from osqueue import limits
from osqueue.core import batches
from osqueue.core.drop_rules import preview
from osqueue.core.encoding import born_of
from osqueue.core.gate import gate_of
from osqueue.core.groups import Groups
from osqueue.core.job_ops import (
    AbortJobs,
    CancelJob,
    ClaimJobs,
    CompleteJobs,
    EnqueueJobs,
    ExtendLeases,
    FailJobs,
    ReleaseJobs,
    RunJobNow,
)
from osqueue.core.labels import group_digest
from osqueue.core.ops import Code, Identity, Op, Outcome
from osqueue.core.queue_ops import CancelJobs, ChangeSettings, KeepTicket
from osqueue.core.reduce import Told
from osqueue.core.rows import BodyRef, StoredContent
from osqueue.core.settings import QueueSettings
from osqueue.core.state import (
    COMPLETED,
    FAILED,
    FAILING,
    MIXED,
    PROCESSING,
    QUEUED,
    SCHEDULED,
    UPDATED,
    State,
)
from osqueue.errors import Damaged, NewerFormat, OsqueueError, Throttled, Timeout, Unavailable, Unknown

from . import shares
from .consuming import holds_ticket, ticket_is_lost
from .ledger import Applied, ClientCall, Ledger, Violation
from .places import JobPlace, SegmentCache, places

_NOT_SENT = "It was not sent"
CLOCK_ERROR_MS = 25_000  # that a head's time may be late: a slow answer, when a writer asked for the time


def judge(ledger: Ledger, library: SegmentCache, call: ClientCall) -> None:
    """A client was given an answer or an error just now."""
    if not call.identities:
        return
    *given_up, last = call.identities
    for who in given_up:
        _forbid(ledger, who, "its writer had taken another identity for the same operations")
    error = call.error
    if error is None:
        assert call.answer is not None
        _answered(ledger, library, call, last, call.answer.outcomes)
        if not call.shared:  # a crew's are told by its event_queue
            _told(ledger, call, last, call.answer.events)
    elif isinstance(error, Throttled) or (
        isinstance(error, Timeout | Unavailable) and _NOT_SENT in error.message
    ):
        _forbid(ledger, last, "its writer was told that it was not")
    elif isinstance(error, Unknown | Damaged) and ledger.repaired(call.began, call.ended):
        return  # a life of the shard ended meanwhile
    elif isinstance(error, Unknown):
        _silent(ledger, call, last)
    elif isinstance(error, Damaged):
        raise Violation(f"{call.client} was told: {error.message}")
    elif not isinstance(error, Timeout | Unavailable | NewerFormat):
        raise Violation(f"{call.client} was told {type(error).__name__}: {error}")


def _silent(ledger: Ledger, call: ClientCall, who: Identity) -> None:
    """Nobody could tell what became of a request: its writer had been silent for longer than it may be.

    Or it was copied, or stood still with both of its clocks, and could not know.
    """
    allowed_ms = limits.SESSION_IDLE_MS_MIN - limits.BORN_AGE_MAX_MS - CLOCK_ERROR_MS
    silent_ms = (call.ended - call.began) * 1000
    machine = ledger.machines.get(who[0])
    excused = who[0] in ledger.copied or (machine is not None and machine.blind)
    if silent_ms < allowed_ms and not excused:
        raise Violation(
            f"{call.client} was told after {silent_ms:.0f} ms that nobody knows what became of its request"
        )


def _forbid(ledger: Ledger, who: Identity, why: str) -> None:
    if who in ledger.applied:
        raise Violation(f"invariant 2: {who[0][:4]}, n {who[1]} was applied, although {why}")
    ledger.never[who] = why


def _answered(
    ledger: Ledger, library: SegmentCache, call: ClientCall, who: Identity, outcomes: tuple[Outcome, ...]
) -> None:
    applied = ledger.applied.get(who)
    if applied is None:
        _unwritten(ledger, library, call, who, outcomes)
        return
    (shares.check if call.shared else _whole)(call, applied, outcomes)
    at = ledger.commits[applied.index].at
    if not call.began <= at <= call.ended:
        raise Violation(f"{call.client} was answered with a commit from outside its call")
    passed_over = applied.index - ledger.index_before(call.began)
    if 0 < ledger.passed_over_max < passed_over:
        raise Violation(f"invariant 9: {passed_over} commits left out a call of {call.client}")


def _whole(call: ClientCall, applied: Applied, outcomes: Sequence[Outcome]) -> None:
    if applied.request.ops != call.ops:
        raise Violation(f"{call.client} was answered for another's operations")
    if [each.runs for each in outcomes] != [each.runs for each in applied.outcomes]:
        raise Violation(
            f"{call.client} was told {_short(outcomes)}; committed was {_short(applied.outcomes)}"
        )
    for told, true in zip(outcomes, applied.outcomes, strict=True):
        if not {lease.token for lease in told.leases} <= {lease.token for lease in true.leases}:
            raise Violation(f"{call.client} was given a lease that it was not granted")


def _told(ledger: Ledger, call: ClientCall, who: Identity, events: tuple[Told, ...]) -> None:
    """The transitions and the wakes of a commit are told by the one who made it, and of no other commit.

    Who finds another commit on top of the own one cannot tell them any more.
    """
    applied = ledger.applied.get(who)
    commits = ledger.commits
    made: tuple[Told, ...] = ()
    if applied is not None:
        batch = ledger.batches[commits[applied.index].state.commit]
        if batch.requests[-1].identity == who:  # the last one is the writer's own
            made = batch.reduction.told
    covered = applied is None or applied.index + 1 < len(commits)
    if events != made and (events or not covered):
        raise Violation(f"{call.client} told {len(events)} events; its commit made {len(made)}")


def _unwritten(
    ledger: Ledger, library: SegmentCache, call: ClientCall, who: Identity, outcomes: tuple[Outcome, ...]
) -> None:
    ledger.never[who] = "its writer was answered without a commit"
    if len(outcomes) != len(call.ops):
        raise Violation(f"{call.client} was told {len(outcomes)} outcomes of {len(call.ops)} operations")
    for state in ledger.current(call.began, call.ended):
        if all(_explained(state, library, op, told) for op, told in zip(call.ops, outcomes, strict=True)):
            return
    if not ledger.commits and all(_of_nothing(op, told) for op, told in zip(call.ops, outcomes, strict=True)):
        return
    if ledger.commits and ledger.commits[0].at >= call.began:
        return  # the queue did not exist for a part of the call
    raise Violation(f"invariant 5: {call.client} was told {_short(outcomes)} of {call.ops}; no head says so")


def _of_nothing(op: Op, told: Outcome) -> bool:
    if isinstance(op, CancelJobs):
        return not any(count for _, count in told.runs)
    refusals = (Code.EMPTY, Code.LEASE_LOST, Code.NOT_FOUND, Code.OK, Code.STALE, Code.RETRY)
    return all(code in refusals for code, _ in told.runs)


def _explained(state: State, library: SegmentCache, op: Op, told: Outcome) -> bool:
    """Would this head have given that answer without being changed?"""
    match op:
        case KeepTicket():
            return not holds_ticket(state, op.use)
        case ClaimJobs():
            return _claim_explained(state, library, op, told.code) or _is_broken(state, library, told.code)
        case CompleteJobs():
            done = {(row.job.key, row.token) for row in state.finished if row.state == COMPLETED}
            for item, code in zip(op.items, told.codes, strict=True):
                repeated = (item.key, item.token) in done
                if code == Code.OK and not repeated:
                    return False
                if code == Code.LEASE_LOST and (repeated or _holds(state, item.key, item.token)):
                    return False
                if code == Code.STALE and not _collectable(state, item.result):
                    return False
            return True
        case FailJobs():
            return _lost(state, told, ((item.key, item.token) for item in op.items))
        case ExtendLeases() | ReleaseJobs() | AbortJobs():
            return _lost(state, told, ((item.key, item.token) for item in op.held))
        case CancelJob():
            return _cancel_explained(state, places(state, library.past()), op, told.code)
        case RunJobNow():
            return _run_now_explained(places(state, library.past()).get(op.key), op, told.code)
        case CancelJobs():
            if told.code == Code.CROWDED:
                return len(state.drops.rules) >= limits.DROP_RULES_MAX
            (_, cancelled), (_, asked), (_, waiting) = told.runs
            return (cancelled, waiting) == (0, 0) and preview(state, op) == (0, asked, 0)
        case ChangeSettings():
            return _is_set(state.settings, op)
        case _:
            return not isinstance(op, EnqueueJobs) or _refusals_explained(state, op, told)


def _refusals_explained(state: State, op: EnqueueJobs, told: Outcome) -> bool:
    refused = [job.batch for job, code in zip(op.jobs, told.codes, strict=True) if code == Code.BATCH_OVER]
    return not any(batches.is_open(state.batches.get(batch)) for batch in refused)


def _is_set(settings: QueueSettings, op: ChangeSettings) -> bool:
    rows = ("kinds", "consumers", "overrides")
    wished = {name: getattr(op, name) for name in QueueSettings.__struct_fields__ if name not in rows}
    has = {name: getattr(settings, name) for name in wished}
    if (wished["paused_until_ms"] or 0) < 0:  # for so long from a time that nobody wrote down
        wished["paused_until_ms"] = None
    has["shards"] = min(has["shards"], wished["shards"] or 0)  # their number only grows
    attached = {row.name: row for row in settings.consumers}
    return (
        all(value is None or has[name] == value for name, value in wished.items())
        and all(attached.get(row.name) == row for row in op.consumers)
        and attached.keys().isdisjoint(op.consumers_dropped)
    )


def _is_broken(state: State, library: SegmentCache, code: Code) -> bool:
    """Was the answer that nobody can read what waits, and is that so?"""
    spans = [span for lane in state.lanes for span in lane.backlog.spans]
    return code == Code.UNREADABLE and not library.broken.isdisjoint(library.names(spans))


_RATED = {Code.RATE_LIMITED, Code.KINDS_RATE_LIMITED}
_CLOSED = {Code.RUNNING_LIMIT, Code.KINDS_PAUSED, *_RATED}


def _claim_explained(state: State, library: SegmentCache, op: ClaimJobs, code: Code) -> bool:
    if code == Code.TICKET_LOST:
        return ticket_is_lost(state, op)
    gate = gate_of(state.settings, state.leases, state.starts, state.now_ms)
    past, gone = library.past(), set(state.tombstones)
    jobs = [job for lane in state.lanes for job in past.backlog(lane.backlog)]
    wanted = [job for job in jobs if op.kinds is None or job.kind in op.kinds]
    kinds = {job.kind for job in wanted}
    if gate is not None and any(lane.kind == MIXED and lane.backlog.spans for lane in state.lanes):
        # Labels somewhere below may tell of a kind whose jobs have all been taken since.
        kinds |= {kind for kind in gate.closed_kinds() if op.kinds is None or kind in op.kinds}
        kinds |= set(op.kinds or ("",)) if gate.is_shut else set()
    if code == Code.PAUSED:
        return state.settings.paused
    if code in _CLOSED:
        found = (
            [] if gate is None else [gate.why_closed(each) for each in (kinds, *((kind,) for kind in kinds))]
        )
        codes = {each.code for each in found if each is not None}
        return code in codes or bool(
            codes & _RATED
        )  # as time goes by a rate opens what then something else holds
    if code == Code.IN_FLIGHT_LIMIT:
        return bool(state.leases)
    if code not in (Code.EMPTY, Code.GROUPS_CLOSED, Code.GROUP_LIMIT) or state.settings.paused:
        return False
    groups = Groups(state.settings, state.leases, state.holds, state.starts, state.now_ms)
    return all(
        job.key in gone
        or (gate is not None and gate.room_for(job.kind) <= 0)
        or (job.group and not groups.opens(group_digest(job.group)))
        for job in wanted
    )


def _cancel_explained(state: State, found: dict[bytes, JobPlace], op: CancelJob, code: Code) -> bool:
    place = found.get(op.key)
    match code:
        case Code.PROCESSING:
            return place is not None and place.state == PROCESSING
        case Code.NOT_FOUND:
            waits = place is not None and place.state in (QUEUED, SCHEDULED, FAILING)
            return not waits or op.job is None
        case Code.CANCELLED | Code.COMPLETED:
            back = any(row.key == op.key and row.mark == UPDATED for row in state.finished)
            return back or (place is not None and place.state.startswith("finished"))
        case _:
            return code == Code.RETRY or (place is not None and place.state == FAILED)


def _run_now_explained(place: JobPlace | None, op: RunJobNow, code: Code) -> bool:
    """Whoever is told that a job is claimable finds it so, and who is told that there is none had not seen it."""
    match code:
        case Code.PROCESSING:
            return place is not None and place.state == PROCESSING
        case Code.OK:
            return place is not None and place.state == QUEUED
        case Code.NOT_FOUND:
            waits = place is not None and place.state in (SCHEDULED, FAILING)
            return not waits or op.job is None
        case _:
            return True


def _lost(state: State, told: Outcome, held: Iterable[tuple[bytes, str]]) -> bool:
    asked, codes = list(held), told.codes
    return len(asked) == len(codes) and all(  # of another length: it was somebody else's answer
        code == Code.LEASE_LOST and not _holds(state, key, token)
        for (key, token), code in zip(asked, codes, strict=True)
    )


def _holds(state: State, key: bytes, token: str) -> bool:
    lease = state.leases.get(key)
    return lease is not None and lease.token == token


def _collectable(state: State, content: StoredContent) -> bool:
    return isinstance(content, BodyRef) and born_of(content.name) < state.gc_floor


def _short(outcomes: Iterable[Outcome]) -> str:
    return str([[(Code(code).name, count) for code, count in each.runs] for each in outcomes])


def promised(error: OsqueueError | None) -> bool:
    """Did the error promise that nothing happened?"""
    return error is not None and (isinstance(error, Throttled) or _NOT_SENT in error.message)
