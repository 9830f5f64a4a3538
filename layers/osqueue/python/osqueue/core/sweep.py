"""What time does to a queue: leases end, delayed jobs become due, old dead letters are forgotten.

Every write pass begins with ``advance``, so that nothing waits for a scheduled reaper while anybody writes.
"""

from __future__ import annotations

from msgspec.structs import replace

from .backlog import need_of
from .draft import Draft
from .state import (
    CANCELLED,
    FAILED,
    FAILING,
    KEYSUM_MASK,
    PROCESSING,
    QUEUED,
    STALLED,
    Job,
    Lease,
    Span,
    State,
    delayed_state,
    keysums,
    weight,
)
from .wire import Block

PROMOTED_PER_COMMIT_MAX = 1_000  # due jobs that one commit moves from segments into lanes


def wants_time(state: State, now: int) -> bool:
    """Would ``advance`` at this time change anything?"""
    return (
        any(lease.expires_ms <= now for lease in state.leases.values())
        or bool(state.delayed.jobs and state.delayed.jobs[0].due_ms <= now)
        or any(span.due_ms <= now for span in state.delayed.spans)
    )


def advance(draft: Draft) -> None:
    """Expire stale leases, then promote due jobs."""
    now = draft.now
    stale = [lease for lease in draft.leases.values() if lease.expires_ms <= now]
    # Each goes to the front of its lane: the youngest first, so that the oldest ends up first.
    for lease in sorted(stale, key=lambda each: each.job.key, reverse=True):
        _stall(draft, lease)
    if draft.delayed_spans:
        _promote_from_segments(draft)
    if draft.delayed and draft.delayed[0].due_ms <= now:
        _promote(draft)


def _stall(draft: Draft, lease: Lease) -> None:
    if lease.cancel:
        job = draft.end(lease, CANCELLED)
        draft.finish(job, CANCELLED, why="its lease ended with a cancel requested", origin=PROCESSING, cause="stalled")
        return
    job = draft.end(lease, STALLED)
    draft.count("stalled")
    if job.attempt >= job.max_attempts:
        draft.bury(job)
        draft.event(job, PROCESSING, FAILED, "stalled", lease.worker)
    else:
        draft.queue_front(job)
        draft.event(job, PROCESSING, QUEUED, "stalled", lease.worker)


def _promote(draft: Draft) -> None:
    """Move the window's due jobs to their lanes; one whose lane would be too many waits on."""
    kept = []
    at = 0
    while at < len(draft.delayed) and draft.delayed[at].due_ms <= draft.now:
        job = draft.delayed[at]
        at += 1
        if _queue_due(draft, job):
            draft.delayed_bytes -= weight(job)
        else:
            kept.append(job)
    draft.delayed[:at] = kept


def _queue_due(draft: Draft, job: Job) -> bool:
    if not draft.queue(replace(job, due_ms=0)):
        return False
    draft.event(job, delayed_state(job), QUEUED, "due")
    return True


def _promote_from_segments(draft: Draft) -> None:
    """Take due jobs from the next block of each delayed segment; the rest of a block stays where it is."""
    spans: list[Span] = []
    promoted = 0
    for span in draft.delayed_spans:
        rest: Span | None = span
        while rest is not None and rest.due_ms <= draft.now and promoted < PROMOTED_PER_COMMIT_MAX:
            block = draft.context.blocks.get((rest.name, rest.offset))
            if not isinstance(block, Block):
                draft.need(need_of(rest))
                break
            due = [job for job in block.jobs[rest.skip :] if job.due_ms <= draft.now]
            for job in due:
                if job.key in draft.tombstones:
                    draft.tombstones.discard(job.key)
                elif not _queue_due(draft, job):
                    draft.delay(job)
            promoted += len(due)
            draft.changed = True
            rest = _after(rest, block, len(due))
        if rest is not None:
            spans.append(rest)
    draft.delayed_spans = spans


def _after(span: Span, block: Block, taken: int) -> Span | None:
    """A delayed span once ``taken`` more jobs of its next block are gone."""
    gone = block.jobs[span.skip : span.skip + taken]
    left = replace(
        span,
        count=span.count - taken,
        keysum=(span.keysum - keysums(gone)) & KEYSUM_MASK,
        failing=span.failing - sum(delayed_state(job) == FAILING for job in gone),
        skip=span.skip + taken,
    )
    if left.skip < len(block.jobs):
        return replace(left, due_ms=block.jobs[left.skip].due_ms)
    if not block.next_length:
        return None
    # The next block's first due time is not known yet; it is not before the last one of this block.
    following = span.offset + span.length
    return replace(left, offset=following, length=block.next_length, skip=0, due_ms=block.jobs[-1].due_ms)


def forget_dead(draft: Draft) -> None:
    """Let go of dead letters older than their TTL; the archive keeps their record."""
    limit = draft.now - draft.settings.dead_ttl_ms
    while True:
        need = draft.dead.refill(draft.context.blocks, set())
        if need is not None:
            draft.need(need)
            return
        if not draft.dead.ready or draft.dead.ready[0].history[-1].ended_ms > limit:
            return
        job = draft.dead.pop()
        draft.finish(job, FAILED, why="kept for its TTL as a dead letter", origin=FAILED, cause="expired")
