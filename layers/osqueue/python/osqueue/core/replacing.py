"""A job under a client's id takes the place of the one that waits under it: both in one commit, or neither.

The old job is cancelled and names its successor; whoever finds the old one under the id follows it there. So does an
operation that comes a moment later than another: of a crowd who replace one job, each replaces the one before it, in
few commits.

The new one was enqueued when the first of them was, and stands where the old one stood, so that no number of
replacements costs an id its turn: at its place in the head, or, if it lay in a segment, behind all that are ready. It
begins at the back where another priority, kind or time is asked for. It also begins there if the old one lay in a
segment and its group runs one job at a time: earlier jobs of the group may lie in segments, and have to start first.

A job that restarts one that runs is an ordinary one, behind the other in their group: ``make_room`` is all that its
commit does beside.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from . import batches, spill
from .admin import cancel, still_holds
from .backlog import BacklogDraft
from .dedup import seen_before
from .draft import Draft
from .drop_rules import covering
from .encoding import born_of
from .groups import is_ordered
from .job_ops import CancelJob, JobSpec, ReplaceJobs, Replacement, record_of
from .ops import Code, Outcome, outcome
from .state import CANCELLED, QUEUED, JobRecord, Span, delayed_state, is_late, key_text


class _Waiting(Struct):
    """A job that waits, and where."""

    job: JobRecord
    state: str
    lane: BacklogDraft | None = None  # queued
    span: Span | None = None  # in a segment

    def take(self, draft: Draft) -> None:
        """Take it out of its place."""
        key = self.job.key
        if self.span is not None:
            draft.tombstones.add(key)
            if self.lane is None:
                draft.delayed_tombstones[key] = self.state
        elif self.lane is None:
            draft.remove_delayed(key)
        else:
            self.lane.remove(key)


def replace_jobs(draft: Draft, op: ReplaceJobs) -> Outcome:
    """QUEUED or SCHEDULED where one was replaced; RETRY where it waits no more, or lies somewhere else by now."""
    heirs = _heirs(draft)
    return outcome([_replace(draft, item, heirs) for item in op.items])


def _replace(draft: Draft, item: Replacement, heirs: dict[bytes, bytes]) -> Code:
    new = item.new
    payload = new.payload
    if type(payload) is not bytes and born_of(payload.name) < draft.gc_floor:  # type: ignore[union-attr]
        return Code.STALE
    known = Code.DUPLICATE if new.key in draft.leases else seen_before(draft, new)
    if known is not None:
        return known
    if new.batch and not batches.is_open(draft.batches.get(new.batch)):
        return Code.BATCH_OVER
    key = item.old.key
    while key in heirs:
        key = heirs[key]
    old = _find(draft, item.old if key == item.old.key else CancelJob(key))
    if old is None:
        return Code.RETRY
    if is_late(old.job, draft.now):  # it is over, and must not come back as another
        old.take(draft)
        draft.drop(old.job, old.state)
        return Code.RETRY
    rule = old.span and covering(draft.drops.rules, old.job, old.span)
    if rule:
        old.take(draft)
        draft.drops.drop(rule, old.job, old.state)
        return Code.RETRY
    fresh = _successor(draft, old.job, new)
    if fresh.due_ms and len(draft.delayed_spans) >= spill.DELAYED_SPANS_MAX:
        return Code.DELAYED_LIMIT
    _exchange(draft, old, fresh)
    draft.accept((fresh,), "replace")
    draft.learn(fresh.key)
    heirs[old.job.key] = fresh.key
    draft.finish(
        old.job,
        CANCELLED,
        why=f"replaced by job {key_text(fresh.key)}",
        origin=old.state,
        cause="replaced",
        successor=fresh.key,
    )
    return Code.SCHEDULED if fresh.due_ms else Code.QUEUED


def make_room(draft: Draft, op: CancelJob) -> bool:
    """Ask a job that runs to end, or cancel it if it has gone back to wait, and then whoever took its place there.

    Answers False where the job is nowhere to be seen: it is over, or it waits in a segment without evidence of that.
    """
    heirs = _heirs(draft)
    key = op.key
    while key in heirs:
        key = heirs[key]
    code = cancel(draft, op if key == op.key else CancelJob(key))
    return code in (Code.PROCESSING, Code.CANCELLED, Code.COMPLETED)


def _heirs(draft: Draft) -> dict[bytes, bytes]:
    """Of jobs whose places were taken: who took each."""
    return {row.key: row.successor for row in draft.finished if row.successor is not None}


def _find(draft: Draft, op: CancelJob) -> _Waiting | None:
    """The job where it waits: in the head, or in a segment by the evidence."""
    for job in draft.delayed:
        if job.key == op.key:
            return _Waiting(job, delayed_state(job))
    for lane in draft.lanes.values():
        for jobs in (lane.ready, lane.tail):
            for job in jobs:
                if job.key == op.key:
                    return _Waiting(job, QUEUED, lane)
    if op.job is None or op.key in draft.tombstones or len(draft.tombstones) >= limits.TOMBSTONES_MAX:
        return None
    for lane in draft.lanes.values():
        for span in lane.spans:
            if still_holds(span, op):
                return _Waiting(op.job, QUEUED, lane, span)
    for span in draft.delayed_spans:
        if still_holds(span, op):
            return _Waiting(op.job, delayed_state(op.job), span=span)
    return None


def _successor(draft: Draft, old: JobRecord, new: JobSpec) -> JobRecord:
    """The row of the job that takes an old one's place, in its group."""
    rule = new.unique
    due = max(new.at_ms, draft.after(new.delay_ms))
    latest = 0
    if rule is not None and rule.on_duplicate == "debounce":
        ends = (old.due_by_ms, old.enqueued_ms + rule.max_wait_ms if rule.max_wait_ms else 0)
        latest = min(filter(None, ends), default=0)
        due = min(due, latest) if latest else due
    fresh = record_of(new, draft.settings, draft.now, draft.latest, due if due > draft.now else 0)
    return replace(
        fresh,
        enqueued_ms=old.enqueued_ms,
        window_ms=old.window_ms or fresh.window_ms,
        due_by_ms=latest,
        replaced=old.replaced + 1,
        group=old.group,
    )


def _exchange(draft: Draft, old: _Waiting, fresh: JobRecord) -> None:
    same = (fresh.priority, fresh.kind) == (old.job.priority, old.job.kind) and not fresh.due_ms
    if same and old.lane is not None and old.lane.swap(old.job, fresh):
        return
    old.take(draft)
    if fresh.due_ms:
        draft.delay(fresh)
    elif same and old.lane is not None and not (fresh.group and is_ordered(draft.settings, fresh.group)):
        old.lane.push_ready(fresh)
    else:
        draft.queue(fresh)
