"""What time does to a queue: leases end, delayed jobs become due, old dead letters are forgotten.

Every write pass begins with ``advance_time``, so that nothing waits for a scheduled reaper while anybody writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import islice, takewhile

from msgspec.structs import replace

from .. import limits
from . import consumers, scheduling
from .backlog import deleted_from, needs_of
from .draft import Draft
from .drop_rules import DROPPED_PER_COMMIT_MAX
from .encoding import Block
from .failures import TIMED_OUT, chance_of, settle_failure, timed_out_error
from .pauses import ENDLESS_MS, next_end_ms, without_ended
from .rates import is_owed
from .settings import QueueSettings
from .state import (
    CANCELLED,
    FAILED,
    FAILING,
    KEYSUM_MASK,
    PROCESSING,
    QUEUED,
    STALLED,
    JobRecord,
    LeaseRecord,
    Span,
    State,
    delayed_state,
    due_order,
    is_late,
    keysums,
)
from .weights import job_weight

PROMOTED_PER_COMMIT_MAX = 1_000  # due jobs that one commit moves from segments into lanes


def has_due_timers(state: State, now: int) -> bool:
    """Would ``advance_time`` at this time change anything, or a claim find more by the time alone?"""
    return (
        any(lease.expires_ms <= now for lease in state.leases.values())
        or _is_due(state.delayed.jobs, state.delayed.spans, now)
        or _pause_end_ms(state.settings) <= now
        or scheduling.is_due(state.schedules, now)
        or (bool(state.tickets) and consumers.next_end_ms(state.tickets) <= now)
        or is_owed(state.starts, state.now_ms)
    )


def next_due_ms(state: State) -> int | None:
    """When ``advance_time`` has something to do next on this head, if ever."""
    times = [lease.expires_ms for lease in state.leases.values()]
    times += [job.due_ms for job in state.delayed.jobs[:1]]
    times += [span.due_ms for span in state.delayed.spans]
    times += [_pause_end_ms(state.settings), scheduling.next_tick_ms(state.schedules)]
    due = min(times)
    return None if due == ENDLESS_MS else due


def _pause_end_ms(settings: QueueSettings) -> int:
    """When the next pause ends by itself; most queues have none to look at."""
    return next_end_ms(settings) if settings.paused or settings.kinds else ENDLESS_MS


def _is_due(jobs: Sequence[JobRecord], spans: Sequence[Span], now: int) -> bool:
    return bool(jobs and jobs[0].due_ms <= now) or bool(spans and any(span.due_ms <= now for span in spans))


def advance_time(draft: Draft) -> None:
    """End pauses, expire stale leases, promote due jobs, then make those of schedules."""
    now = draft.now
    if _pause_end_ms(draft.settings) <= now:
        draft.settings = without_ended(draft.settings, now)
        draft.changed = True
    stale = [lease for lease in draft.leases.values() if lease.expires_ms <= now]
    if stale:
        # Each goes to the front of its lane: the youngest first, so that the oldest ends up first.
        for lease in sorted(stale, key=lambda each: each.job.key, reverse=True):
            _stall(draft, lease)
    if _is_due(draft.delayed, draft.delayed_spans, now):
        _promote(draft)
    if draft.schedules:
        scheduling.tick(draft)
    if draft.tickets:
        consumers.end_tickets(draft)


def _stall(draft: Draft, lease: LeaseRecord) -> None:
    draft.expired += 1
    if lease.cancel:
        job = draft.end(lease, CANCELLED)
        draft.finish(
            job, CANCELLED, why="its lease ended with a cancel requested", origin=PROCESSING, cause="stalled"
        )
        return
    if 0 < lease.until_ms <= lease.expires_ms:
        _time_out(draft, lease)
        return
    job = draft.end(lease, STALLED)
    draft.count("stalled")
    if job.attempt >= job.max_attempts:
        draft.bury(job)
        draft.event(job, PROCESSING, FAILED, "stalled", lease.worker)
    else:
        draft.queue_front(job)
        draft.event(job, PROCESSING, QUEUED, "stalled", lease.worker)


def _time_out(draft: Draft, lease: LeaseRecord) -> None:
    """The attempt has run for longer than its job allows: it has failed."""
    job = draft.end(lease, FAILED, timed_out_error(lease.job.run_within_ms / 1000), TIMED_OUT, "")
    settle_failure(draft, job, "timed_out", lease.worker, share=chance_of(draft, job))


def _promote(draft: Draft) -> None:
    """Move due jobs to their lanes, the longest due first, as many as the head has room for.

    Most commits are lost where many try. So what is spilled for due jobs is what was in the head before, the same in
    every attempt, and a commit does not spill what it has promoted itself: see ``Draft.spill``.
    """
    due, until = _take_from_segments(draft, _make_room(draft))
    at = bisect_right(draft.delayed, until, key=lambda job: job.due_ms)
    window = draft.delayed[:at]
    del draft.delayed[:at]
    draft.delayed_bytes -= sum(map(job_weight, window))
    for job in sorted([*due, *window], key=due_order):
        if is_late(job, draft.now):
            draft.drop(job, delayed_state(job))
            continue
        draft.requeue(replace(job, due_ms=0))
        draft.promoted += 1
        draft.event(job, delayed_state(job), QUEUED, "due")


def _make_room(draft: Draft) -> int:
    """Spill tails where due jobs would overfill them. Answers the bytes that are left for those in segments."""
    window = sum(job_weight(job) for job in takewhile(lambda job: job.due_ms <= draft.now, draft.delayed))
    more = any(span.due_ms <= draft.now and not _is_unreadable(draft, span) for span in draft.delayed_spans)
    most = limits.TAIL_BYTES_MAX * 3 // 4  # the rest is for what the requests bring
    wanted = max(window, most // 3 if more else 0)
    lanes = list(draft.lanes.values())
    tails = sum(lane.tail_bytes for lane in lanes)
    while tails and tails + wanted > most:
        fullest = max(lanes, key=lambda lane: lane.tail_bytes)
        tails -= fullest.tail_bytes
        draft.keep(fullest.spill_tail(draft.spill))
    return most - tails - window


def _take_from_segments(draft: Draft, room: int) -> tuple[list[JobRecord], int]:
    """Due jobs out of delayed segments, one at least, and the due time up to which that is all of them.

    It is now, unless a block that has not been read, the room there is, or the limit of one commit stands in the way.
    """
    spans: list[Span | None] = list(draft.delayed_spans)
    fronts = [
        (span.due_ms, at)
        for at, span in enumerate(draft.delayed_spans)
        if span.due_ms <= draft.now and not _is_unreadable(draft, span)
    ]
    heapify(fronts)
    due: list[JobRecord] = []
    until = draft.now
    while fronts:
        first, at = fronts[0]
        span = spans[at]
        assert span is not None
        block, deleted = draft.blocks.get((span.name, span.offset)), deleted_from(span, draft.blocks)
        if _is_unreadable(draft, span):
            heappop(fronts)
            continue
        if not isinstance(block, Block) or deleted is None:
            until = first - 1
            for _, other in fronts:
                _need_front(draft, spans[other])
            break
        if len(due) >= PROMOTED_PER_COMMIT_MAX or draft.drops.is_spent:
            until = first - 1
            break
        heappop(fronts)
        limit = fronts[0][0] if fronts else draft.now
        full = False
        taken: list[JobRecord] = []
        passed = 0
        for index in range(span.skip, len(block.jobs)):
            job = block.jobs[index]
            if job.due_ms > limit:
                break
            if not deleted.has(span.offset, index):
                if job.key in draft.tombstones:
                    draft.tombstones.discard(job.key)
                elif draft.drops.rules and draft.drops.drops(job, span, delayed_state(job)):
                    pass  # cancelled
                elif due and job_weight(job) > room:
                    full, until = True, job.due_ms - 1
                    break
                else:
                    due.append(job)
                    room -= job_weight(job)
                taken.append(job)
            passed += 1
        draft.changed |= bool(passed)
        rest = spans[at] = _after(span, block, passed, taken)
        if full:
            break
        if rest is not None and rest.due_ms <= draft.now:
            heappush(fronts, (rest.due_ms, at))
    draft.delayed_spans = [span for span in spans if span is not None]
    return due, until


def _is_unreadable(draft: Draft, span: Span) -> bool:
    """Such a span waits until it is restored; the others go on."""
    return any(need.place in draft.context.unreadable for need in needs_of(span))


def _need_front(draft: Draft, span: Span | None) -> None:
    for need in () if span is None else needs_of(span):
        if need.place not in draft.blocks:
            draft.need(need)


def _after(span: Span, block: Block, passed: int, taken: Sequence[JobRecord]) -> Span | None:
    """A delayed span once ``passed`` more jobs of its next block lie behind; ``taken`` were still to come."""
    if len(taken) == span.count:
        return None
    left = replace(
        span,
        count=span.count - len(taken),
        keysum=(span.keysum - keysums(taken)) & KEYSUM_MASK,
        failing=span.failing - sum(delayed_state(job) == FAILING for job in taken),
        skip=span.skip + passed,
    )
    if left.skip < len(block.jobs):
        return replace(left, due_ms=block.jobs[left.skip].due_ms)
    if not block.next_length:
        return None
    # The next block's first due time is not known yet; it is not before the last one of this block.
    following = span.offset + span.length
    return replace(left, offset=following, length=block.next_length, skip=0, due_ms=block.jobs[-1].due_ms)


def drop_late(draft: Draft) -> None:
    """End the jobs of the head's own windows whose start deadline has passed; others are met by claims."""
    waiting = [(lane, job) for lane in draft.lanes.values() for job in (*lane.ready, *lane.tail)]
    for lane, job in islice(
        ((lane, job) for lane, job in waiting if is_late(job, draft.now)), DROPPED_PER_COMMIT_MAX
    ):
        lane.remove(job.key)
        draft.drop(job, QUEUED)
    late = (job for job in list(draft.delayed) if is_late(job, draft.now))
    for job in islice(late, DROPPED_PER_COMMIT_MAX):
        draft.remove_delayed(job.key)
        draft.drop(job, delayed_state(job))


def forget_dead(draft: Draft) -> bool:
    """Let go of dead letters older than their TTL; the archive keeps their record. Are there more of them?

    The head holds what is let go of until the next commit, so one commit takes only so many. The traceback, most of
    a letter's bytes, goes at once, as it did from the row that told the archive.
    """
    limit = draft.now - draft.settings.dead_ttl_ms
    while True:
        need = draft.dead.refill(draft.blocks, set())
        if need is not None:
            draft.need(need)
            return need.place in draft.needs  # or else nobody can read it
        if not draft.dead.ready or draft.dead.ready[0].history[-1].ended_ms > limit:
            return False
        if draft.finished_bytes > 2 * limits.FINISHED_BYTES_MAX:
            return True
        job = replace(draft.dead.pop(), trace="")
        draft.finish(job, FAILED, why="kept for its TTL as a dead letter", origin=FAILED, cause="expired")
