"""Steering a queue: what operators and upkeep ask of the state machine.

Cancelling, changing how long a result lives, settings, dead letters, and the exchange of what lies outside the head:
rewritten segments, merged tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from . import groups, pauses, rates, scheduling, spill, timers
from .deletion_vectors import without_jobs
from .draft import Draft
from .drop_rules import covering
from .encoding import born_of
from .erase import is_blank
from .job_ops import CancelJob, RunJobNow, SetResultTtl, SpanSwap
from .ops import Code, Outcome, outcome
from .queue_ops import (
    AS_THE_QUEUE,
    ChangeSettings,
    GroupChange,
    MergeSpans,
    MergeTables,
    RaiseGcFloor,
    RedriveJobs,
    ReplaceSpan,
    RunTimers,
)
from .rows import NO_ROUND
from .settings import KindSettings
from .state import (
    ARCHIVE_ONLY,
    CANCELLED,
    COMPLETED,
    FAILED,
    FAILING,
    QUEUED,
    UPDATED,
    FinishedJob,
    JobRecord,
    Span,
    delayed_state,
)


# ── Out of the queue ─────────────────────────────────────────────────────────
def cancel(draft: Draft, op: CancelJob) -> Code:
    """Cancel a job that waits; ask the worker of one that runs."""
    lease = draft.leases.get(op.key)
    if lease is not None:
        if not lease.cancel:
            draft.revise(replace(lease, cancel=True))
        return Code.PROCESSING
    job = draft.remove_delayed(op.key)
    if job is not None:
        draft.finish(job, CANCELLED, origin=delayed_state(job), cause="cancel")
        return Code.CANCELLED
    for lane in draft.lanes.values():
        job = lane.remove(op.key)
        if job is not None:
            draft.finish(job, CANCELLED, origin=QUEUED, cause="cancel")
            return Code.CANCELLED
    for row in draft.finished:
        if row.job.key == op.key and row.mark != ARCHIVE_ONLY:
            return Code.RETRY if row.successor else _OVER[row.state]
    if op.job is None:
        return Code.NOT_FOUND
    return _cancel_in_segment(draft, op, op.job)


_OVER = {CANCELLED: Code.CANCELLED, COMPLETED: Code.COMPLETED, FAILED: Code.NOT_FOUND}


def _cancel_in_segment(draft: Draft, op: CancelJob, job: JobRecord) -> Code:
    if op.key in draft.tombstones:
        return Code.NOT_FOUND
    queued = any(still_holds(span, op) for lane in draft.lanes.values() for span in lane.spans)
    delayed = any(still_holds(span, op) for span in draft.delayed_spans)
    if not (queued or delayed) or len(draft.tombstones) >= limits.TOMBSTONES_MAX:
        return Code.RETRY
    draft.tombstones.add(op.key)
    if delayed:
        draft.delayed_tombstones[op.key] = delayed_state(job)
    draft.finish(job, CANCELLED, origin=delayed_state(job) if delayed else QUEUED, cause="cancel")
    return Code.CANCELLED


# ── Due at once ──────────────────────────────────────────────────────────────
def run_now(draft: Draft, op: RunJobNow) -> Code:
    """Let a delayed job be claimable at once; answers what it is, where it is none."""
    if op.key in draft.leases:
        return Code.PROCESSING
    waiting = next((job for job in draft.delayed if job.key == op.key), None)
    if waiting is not None:
        _queue_now(draft, waiting)
        draft.remove_delayed(op.key)
        return Code.OK
    lanes = draft.lanes.values()
    if any(job.key == op.key for lane in lanes for jobs in (lane.ready, lane.tail) for job in jobs):
        return Code.OK
    for row in draft.finished:
        if row.key == op.key and row.mark != ARCHIVE_ONLY:
            return Code.RETRY if row.successor else _OVER[row.state]
    if op.job is None or op.swap is None:
        return Code.NOT_FOUND
    return _run_now_in_segment(draft, op.job, op.swap)


def _run_now_in_segment(draft: Draft, job: JobRecord, swap: SpanSwap) -> Code:
    """The span has to be, to the last field, what the caller saw: then the job is in it, and not in the other."""
    fresh = swap.replacement
    staged = fresh and (fresh.vector if fresh.level == 0 else fresh)
    if staged is not None and born_of(staged.name) < draft.gc_floor:
        return Code.STALE
    if job.key in draft.tombstones or swap.span not in draft.delayed_spans:
        return Code.RETRY
    if covering(draft.drops.rules, job, swap.span):
        return Code.RETRY  # cancelled since the caller saw it waiting
    _queue_now(draft, job)
    draft.exchange_delayed(draft.delayed_spans.index(swap.span), fresh)
    draft.changed = True
    return Code.OK


def _queue_now(draft: Draft, job: JobRecord) -> None:
    draft.requeue(replace(job, due_ms=0))
    draft.event(job, delayed_state(job), QUEUED, "due")


def still_holds(span: Span, op: CancelJob | SetResultTtl) -> bool:
    """Is the job still to come in this span? Blocks and jobs leave it in order, others by its vector."""
    if span.name != op.span or (span.vector.name if span.vector else "") != op.vector:
        return False
    return span.level > 0 or (op.offset, op.index) >= (span.offset, span.skip)


def replace_span(draft: Draft, op: ReplaceSpan) -> Outcome:
    """Exchange a span for one without cancelled jobs.

    A tombstone stands for as long as its job is still to come, so the tombstones tell that none of these was passed.
    An index never changes under its name. A segment does so in two ways: the front moves on, which leaves its vector
    as right as it was, and others settle some of its jobs, which another vector tells.
    """
    fresh = op.replacement
    staged = fresh and (fresh.vector if fresh.level == 0 else fresh)
    if staged is not None and born_of(staged.name) < draft.gc_floor:
        return outcome([Code.STALE])
    if not draft.tombstones.issuperset(op.dropped):
        return outcome([Code.RETRY])
    found = _find(draft, op.span.name)
    if found is None:
        return outcome([Code.RETRY])
    span, exchange = found
    if span.vector != op.span.vector:  # others have settled some of its jobs since
        return outcome([Code.RETRY])
    failing = sum(draft.delayed_tombstones.get(key) == FAILING for key in op.dropped)
    vector = None if fresh is None else fresh.vector
    exchange(fresh if span.level else without_jobs(span, op.dropped, failing, vector))
    draft.tombstones.difference_update(op.dropped)
    draft.changed = True
    return outcome([Code.OK])


def merge_spans(draft: Draft, op: MergeSpans) -> Outcome:
    """Exchange segments of delayed jobs for one segment of the same jobs.

    Each of them must equal what the caller read: no job of it was taken or cancelled by a vector since. Tombstones name
    jobs, wherever these are, and stay. A rule of a mass cancel must cover all of the segments, or none.
    """
    if born_of(op.merged.name) < draft.gc_floor:
        return outcome([Code.STALE])
    changed = any(span not in draft.delayed_spans for span in op.taken)
    if changed or len(set(map(draft.drops.side, op.taken))) > 1:
        return outcome([Code.RETRY])
    rest = [span for span in draft.delayed_spans if span not in op.taken]
    draft.delayed_spans = [*rest, draft.drops.aged(op.merged, op.taken)]
    draft.changed = True
    return outcome([Code.OK])


def _find(draft: Draft, name: str) -> tuple[Span, Callable[[Span | None], None]] | None:
    """A span of waiting jobs, and what puts another in its place; not one out of which this commit takes jobs."""
    for lane in draft.lanes.values():
        for at, span in enumerate(lane.spans):
            if span.name == name:
                return None if lane.is_taken_from(name) else (span, partial(lane.exchange, at))
    for at, span in enumerate(draft.delayed_spans):
        if span.name == name:
            return span, partial(draft.exchange_delayed, at)
    return None


# ── Finished jobs ────────────────────────────────────────────────────────────
def set_result_ttl(draft: Draft, op: SetResultTtl) -> Code:
    """Change how long a result lives."""
    expires = draft.now + op.ttl_ms
    for at, row in enumerate(draft.finished):
        if row.key == op.key and row.mark != ARCHIVE_ONLY:
            if row.expires_ms <= draft.now:
                return Code.EXPIRED
            if row.successor:
                return Code.RETRY  # replaced since the caller saw it waiting
            draft.amend_finished(at, replace(row, expires_ms=expires))
            return Code.OK
    if op.row is not None:
        return _amend_table(draft, op, op.row, expires)
    if op.key in draft.tombstones:
        return Code.RETRY  # cancelled since the caller saw it waiting
    if op.key not in draft.result_ttls and len(draft.result_ttls) >= limits.RESULT_TTLS_MAX:
        return Code.CROWDED
    waiting = [*(span for lane in draft.lanes.values() for span in lane.spans), *draft.delayed_spans]
    if not (_is_live(draft, op.key) or any(still_holds(span, op) for span in waiting)):
        return Code.RETRY if op.span else Code.NOT_FOUND
    draft.result_ttls[op.key] = op.ttl_ms
    draft.changed = True
    return Code.OK


def _amend_table(draft: Draft, op: SetResultTtl, row: FinishedJob, expires: int) -> Code:
    """The row comes back to the head; being younger, it will be right wherever its table is merged.

    It must be the youngest there is: another may have come back, and left again, since the caller looked.
    """
    if not any(table.name == op.table for table in draft.tables):
        return Code.RETRY
    for table in draft.tables:
        if table.updated_rows and table.first <= op.key <= table.last and born_of(table.name) >= op.seen:
            return Code.RETRY
    if row.expires_ms <= draft.now:
        return Code.EXPIRED
    kept = max(row.kept_ms, row.expires_ms)
    row = replace(row, expires_ms=expires, kept_ms=kept, mark=UPDATED, payload=None)
    draft.add_finished(row)
    draft.changed = True
    return Code.OK


def _is_live(draft: Draft, key: bytes) -> bool:
    """Is the job in the head, and not finished or dead?"""
    lanes = draft.lanes.values()
    return (
        key in draft.leases
        or any(job.key == key for job in draft.delayed)
        or any(job.key == key for lane in lanes for jobs in (lane.ready, lane.tail) for job in jobs)
    )


def merge_tables(draft: Draft, op: MergeTables) -> Outcome:
    """Exchange tables of finished jobs."""
    if any(born_of(table.name) < draft.gc_floor for table in op.put):
        return outcome([Code.STALE])
    names = [table.name for table in draft.tables]
    first = names.index(op.taken[0].name) if op.taken and op.taken[0].name in names else -1
    if first < 0 or draft.tables[first : first + len(op.taken)] != op.taken:
        return outcome([Code.RETRY])
    draft.tables = (*draft.tables[:first], *op.put, *draft.tables[first + len(op.taken) :])
    draft.count("archived", op.archived)
    if op.forgets:
        draft.forgotten = draft.state.seq + 1
    draft.changed = True
    return outcome([Code.OK])


# ── Settings and upkeep ──────────────────────────────────────────────────────
def configure(draft: Draft, op: ChangeSettings) -> Outcome:
    """Change settings. CROWDED, and nothing is changed, where too many kinds have their own, or groups are held.

    RETRY where shards come new that record nothing, although somebody listens: he would miss what happens there.
    """
    if (op.shards or 0) > draft.settings.shards and not op.recorded and draft.log.is_recorded_at(draft.now):
        return outcome([Code.RETRY])
    wished = pauses.with_pause(_said(op), draft.latest, 0)
    dropped = wished.pop("kinds_dropped")
    detached = wished.pop("consumers_dropped")
    attached = {row.name: row for row in draft.settings.consumers if row.name not in detached}
    attached |= {row.name: row for row in op.consumers}
    del wished["recorded"]
    changes = wished.pop("groups")
    kinds = {row.kind: row for row in draft.settings.kinds if row.kind not in dropped}
    for row in op.kinds:
        said = pauses.with_pause(_said(row), draft.latest, None)
        said = {name: None if value in (AS_THE_QUEUE, (0, 0)) else value for name, value in said.items()}
        kinds[row.kind] = replace(kinds.get(row.kind, KindSettings(row.kind)), **said)
        if kinds[row.kind] == KindSettings(row.kind):
            del kinds[row.kind]
    wished["consumers"] = tuple([attached[name] for name in sorted(attached)])
    if len(kinds) > limits.KINDS_MAX or len(attached) > limits.CONSUMERS_MAX:
        return outcome([Code.CROWDED])
    wished["kinds"] = tuple([kinds[kind] for kind in sorted(kinds)])
    if "shards" in wished:  # their number only grows, whatever a caller believed it was
        wished["shards"] = max(wished["shards"], draft.settings.shards)
    if draft.settings.group_shards:  # it is fixed by the first
        wished.pop("group_shards", None)
    settings = replace(draft.settings, **wished)
    changes = [
        each for each in changes if groups.home_of(each.group, settings.group_shards) == settings.shard
    ]
    if changes:
        settings = replace(settings, overrides=groups.overridden(settings.overrides, changes))
    many = len(settings.overrides) > max(limits.GROUP_SETTINGS_MAX, len(draft.settings.overrides))
    if many or not _hold_groups(draft, changes):
        return outcome([Code.CROWDED])
    if settings != draft.settings or not draft.state.seq:  # whoever configures a new queue makes it
        draft.starts = rates.reconfigured(draft.starts, draft.settings, settings, draft.now)
        draft.settings = settings
        draft.holds = groups.of_new_settings(draft.holds, settings)
        draft.tickets = {name: rows for name, rows in draft.tickets.items() if name in attached}
        draft.round = draft.round if settings.fair else NO_ROUND
        draft.changed = True
    return outcome([Code.OK])


def _hold_groups(draft: Draft, changes: Iterable[GroupChange]) -> bool:
    """Pause groups, or let them go on; False where too many start nothing already."""
    holds = dict(draft.holds)
    for each in changes:
        after = holds.pop(each.group, None)
        if each.paused is not None:
            after = groups.paused(after, each.paused)
        if after is not None:
            holds[each.group] = after
    if len(holds) > max(limits.GROUP_HOLDS_MAX, len(draft.holds)):
        return False
    if holds != draft.holds:
        draft.changed = True
        draft.holds = holds
    return True


def _said(row: Struct) -> dict[str, Any]:
    """The fields of a row that are not None."""
    return {name: value for name in row.__struct_fields__ if (value := getattr(row, name)) is not None}


def redrive(draft: Draft, op: RedriveJobs) -> Outcome:
    """Answers two runs: (OK, jobs queued again) and (EMPTY, jobs looked at).

    In place of OK: RETRY when what the caller chose its keys from has moved. In place of EMPTY: RETRY when the next
    jobs had not been read, so that the caller has to ask again for the rest; UNREADABLE when nobody can read them.
    """
    draft.blocked = False
    end = Code.EMPTY
    moved = looked = 0
    keys = None if op.keys is None else frozenset(op.keys)
    kept: list[JobRecord] = []
    while moved < op.limit and looked < op.scan:
        need = draft.dead.refill(draft.blocks, set())
        if need is not None:
            draft.need(need)
            end = Code.UNREADABLE if draft.blocked else Code.RETRY
            break
        if not draft.dead.ready:
            break
        if op.first and not looked and draft.dead.ready[0].key != op.first:
            return Outcome(((Code.RETRY, 0), (Code.EMPTY, 0)))
        job = draft.dead.pop()
        looked += 1
        # A run of its own, even if it is cancelled before anybody claims it: the archive has a record of the last one.
        # Its start deadline was for the life that has ended.
        # The schedule that made it may be gone, and its row with it: then nothing counts it.
        known = job.schedule if scheduling.find(draft.schedules, job.schedule) else ""
        again = replace(job, attempt=0, run=job.run + 1, start_by_ms=0, schedule=known)
        if not _matches(job, op, keys):
            kept.append(job)
        else:
            draft.requeue(again)
            moved += 1
            draft.tally(again, 1, failed=-1)
            draft.count("redriven")
            draft.event(again, FAILED, QUEUED, "redrive")
    if looked >= op.scan or end == Code.RETRY:
        # The caller will look at the rest next, so what was looked at goes to the back.
        for job in kept:
            draft.dead.push(job, 0)
        draft.changed |= bool(kept)
    else:
        for job in reversed(kept):
            draft.dead.push_front(job)
    return Outcome(((Code.OK, moved), (end, looked)))


def _matches(job: JobRecord, op: RedriveJobs, keys: frozenset[bytes] | None) -> bool:
    if (keys is not None and job.key not in keys) or is_blank(job):  # blank: a purge is about to forget it
        return False
    error = job.history[-1].error if job.history else ""
    return (op.kinds is None or job.kind in op.kinds) and op.error in error


def run_timers(draft: Draft, op: RunTimers) -> Outcome:
    """Answers how many leases had ended, and how many jobs had become due, when this reduction began.

    RETRY in place of the first OK: another sweep would let go of more dead letters, or cancel more jobs.
    """
    if op.flush:
        spill.shelve(draft)  # first: it makes room for the letters
    starts, draft.starts = draft.starts, rates.without_full(draft.starts, draft.now)
    draft.changed |= starts is not draft.starts
    timers.drop_late(draft)
    more = timers.forget_dead(draft)
    if draft.drops.rules:
        from .dropping import go_on  # where there is one

        more |= go_on(draft)
    return Outcome(((Code.RETRY if more else Code.OK, draft.expired), (Code.OK, draft.promoted)))


def raise_gc_floor(draft: Draft, op: RaiseGcFloor) -> Outcome:
    """Declare old staged objects collectable, and note how far the collector comes."""
    floor = max(draft.gc_floor, op.floor)
    draft.changed |= (floor, op.after) != (draft.gc_floor, draft.gc_after)
    draft.gc_floor, draft.gc_after = floor, op.after
    return outcome([Code.OK])
