"""Cancelling many jobs at once: what becomes of them in the commit that asks for it, and in those after it.

See ``drop_rules`` for which jobs a rule covers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

from msgspec.structs import replace

from .. import limits
from .backlog import READ_AHEAD_BYTES_MAX, BacklogDraft, NeededRange, deleted_from, inherited, needs_of
from .deletion_vectors import DeletionVector, encode_vector, without_jobs
from .draft import Draft
from .drop_rules import covering, left_deep, matches, may_cover, rule_of
from .encoding import Block, encode_segment
from .ops import Code, Outcome, outcome
from .queue_ops import CancelJobs
from .state import (
    FAILING,
    MIXED,
    NO_DROPS,
    QUEUED,
    DropRule,
    JobRecord,
    Span,
    delayed_state,
)

NOWHERE = NO_DROPS.place

Spot = tuple[
    BacklogDraft | None, int, str, Span
]  # a lane (None: the delayed jobs), where in it, its kind, a span


# ── The commit that asks for it ──────────────────────────────────────────────
def cancel_jobs(draft: Draft, op: CancelJobs) -> Outcome:
    """Answers three runs: (CANCELLED, jobs), (PROCESSING, jobs that run and were asked) and (OK, about how many wait).

    CROWDED, and nothing is changed, where too many rules are at work already.
    """
    drops = draft.drops
    rule = rule_of(op, draft.state.seq + 1, draft.now)
    rest = tuple([row for row in drops.rules if not _says_no_more(row, rule)])
    deep = _waiting(draft, rule) > 0
    deep = deep or _count(draft, rule) > drops.left
    if deep and len(rest) >= limits.DROP_RULES_MAX:
        return outcome([Code.CROWDED])
    running = [lease for lease in draft.leases.values() if matches(rule, lease.job)]
    for lease in running:
        if not lease.cancel:
            draft.revise(replace(lease, cancel=True))
    before = drops.count
    for lane in draft.lanes.values():
        _drop_of_lane(draft, lane, rule)
    _drop_delayed(draft, rule)
    waiting = _waiting(draft, rule)
    if waiting:
        drops.add(rule, rest)
        draft.changed = True
    return Outcome(
        ((Code.CANCELLED, drops.count - before), (Code.PROCESSING, len(running)), (Code.OK, waiting))
    )


def _says_no_more(old: DropRule, new: DropRule) -> bool:
    """Does a rule that comes now cover all that an older one does? That one has done its duty."""
    same = (old.kinds, old.group, old.batch) == (new.kinds, new.group, new.batch)
    return same and (not new.before_ms or 0 < old.before_ms <= new.before_ms)


def _count(draft: Draft, rule: DropRule) -> int:
    """How many jobs in the head wait and match."""
    return sum(matches(rule, job) for job in _in_head(draft))


def _in_head(draft: Draft) -> Iterator[JobRecord]:
    for lane in draft.lanes.values():
        yield from lane.ready
        yield from lane.tail
    yield from draft.delayed


def _waiting(draft: Draft, rule: DropRule) -> int:
    """About how many jobs that it covers wait in segments."""
    found = sum(span.count for _, _, kind, span in _spots(draft) if may_cover(rule, (kind, span)))
    if not found or not rule.batch:
        return found
    running = [lease.job for lease in draft.leases.values()]
    return left_deep(draft.batches, rule, (*_in_head(draft), *running), found)


def _drop_of_lane(draft: Draft, lane: BacklogDraft, rule: DropRule) -> None:
    """Cancel what is in the head. Where that is too much for a commit, as where many operations share one, the rest
    becomes a segment, which is older than the rule.
    """
    for job in [job for job in lane.ready if matches(rule, job)]:
        lane.remove(job.key)
        draft.drops.drop(rule, job, QUEUED)
    found = [job for job in lane.tail if matches(rule, job)]
    if len(found) > max(0, draft.drops.left):
        span = lane.spill_tail(draft.spill)
        draft.keep(span)
        lane.exchange(len(lane.spans) - 1, replace(span, joined=0))
        return
    for job in found:
        lane.remove(job.key)
        draft.drops.drop(rule, job, QUEUED)


def _drop_delayed(draft: Draft, rule: DropRule) -> None:
    found = [job for job in draft.delayed if matches(rule, job)]
    if len(found) > max(0, draft.drops.left):
        span = draft.spill("segments", partial(encode_segment, draft.delayed))
        draft.keep(span)
        draft.delayed_spans.append(replace(span, joined=0))
        draft.delayed, draft.delayed_bytes = [], 0
        return
    for job in found:
        draft.remove_delayed(job.key)
        draft.drops.drop(rule, job, delayed_state(job))


# ── And those after it ───────────────────────────────────────────────────────
def go_on(draft: Draft) -> bool:
    """Look through segments for jobs that rules cover, as far as one commit may. Is there more to look through?

    What cannot be read is passed over, and its rules stay.
    """
    drops = draft.drops
    passed: set[str] = set()
    reading = limits.SEGMENT_BYTES_MAX  # and the commit notes how far it has come
    while drops.rules:
        spot = next(_to_look_through(draft, passed), None)
        if spot is None:
            break
        if drops.is_spent or reading <= 0:
            return True
        lane, at, _, span = spot
        begin = drops.place[1] if drops.place[0] == span.name else span.offset
        needs = [need for need in needs_of(span) if need.level and need.place not in draft.blocks]
        if not needs and span.level:
            _open(draft, lane, at, span)
            continue
        wanted = _ask(draft, needs) if needs else _look(draft, spot)
        if wanted is None:
            end = drops.place[1] if drops.place[0] == span.name else span.size
            reading -= end - begin
        elif any(need.place in draft.needs for need in wanted):
            return True
        else:
            passed.add(span.name)
    rules = [
        rule for rule in drops.rules if any(may_cover(rule, (kind, s)) for _, _, kind, s in _spots(draft))
    ]
    if len(rules) < len(drops.rules):
        drops.rules = tuple(rules)
        draft.changed = True
    return False


def _spots(draft: Draft) -> Iterator[Spot]:
    for (_, kind), lane in draft.lanes.items():
        yield from ((lane, at, kind, span) for at, span in enumerate(lane.spans))
    yield from ((None, at, MIXED, span) for at, span in enumerate(draft.delayed_spans))


def _to_look_through(draft: Draft, passed: set[str]) -> Iterator[Spot]:
    """Where a rule may cover something."""
    for spot in _spots(draft):
        if spot[3].name not in passed and any(may_cover(rule, spot[2:]) for rule in draft.drops.rules):
            yield spot


def _ask(draft: Draft, needs: list[NeededRange]) -> list[NeededRange]:
    for need in needs:
        draft.need(need)
    return needs


def _open(draft: Draft, lane: BacklogDraft | None, at: int, index: Span) -> None:
    inside = draft.blocks[index.name, 0]
    draft.changed = True
    if lane is None:
        draft.delayed_spans[at : at + 1] = inherited(cast("tuple[Span, ...]", inside), index)
    else:
        lane.open(at, cast("tuple[Span, ...]", inside))


def _look(draft: Draft, spot: Spot) -> list[NeededRange] | None:
    """Cancel what rules cover in a segment, from where the last commit ended; answers what has to be read to go on.

    None: it is through, or has cancelled as many as one commit may.
    """
    lane, at, _, span = spot
    drops = draft.drops
    deleted = deleted_from(span, draft.blocks) if lane is None else lane.deleted_from(span, draft.blocks)
    assert deleted is not None
    name, offset, length = drops.place
    if name != span.name or offset < span.offset:
        offset, length = span.offset, span.length
    found: dict[tuple[int, int], JobRecord] = {}
    wanted: list[NeededRange] | None = None
    while length and drops.left > 0:
        block = draft.blocks.get((span.name, offset))
        if not isinstance(block, Block):
            ahead = max(length, min(span.size - offset, READ_AHEAD_BYTES_MAX))
            wanted = _ask(draft, [NeededRange(span.name, offset, ahead, 0, length)])
            break
        for index, job in enumerate(block.jobs):
            place = (offset, index)
            if place < (span.offset, span.skip) or deleted.has(*place) or job.key in draft.tombstones:
                continue
            rule = covering(drops.rules, job, span)
            if rule is not None and drops.left <= 0:
                break
            if rule is not None:
                drops.drop(rule, job, QUEUED if lane is not None else delayed_state(job))
                found[place] = job
        else:
            offset, length = offset + length, block.next_length
    left = _without(draft, span, deleted, found) if found else span
    lost = wanted is not None and not any(need.place in draft.needs for need in wanted)
    goes_on = bool(length) and left is not None and not lost
    place_before, drops.place = drops.place, (span.name, offset, length) if goes_on else NOWHERE
    if left is not None and not length:
        left = drops.looked_through(left)
    if lane is not None:
        lane.exchange(at, left)
    else:
        draft.exchange_delayed(at, left)
    draft.changed |= bool(found) or not length or drops.place != place_before
    return wanted


def _without(
    draft: Draft, span: Span, deleted: DeletionVector, found: dict[tuple[int, int], JobRecord]
) -> Span | None:
    """The span without these jobs, which a new vector tells; this very reduction can read it."""
    ahead = {offset: mask for offset, mask in deleted.more(found).masks.items() if offset >= span.offset}
    jobs = found.values()
    failing = sum(delayed_state(job) == FAILING for job in jobs) if span.due_ms else 0
    vector = DeletionVector(ahead)
    pointer = draft.spill("segments", partial(encode_vector, vector)) if len(found) < span.count else None
    if pointer is not None:
        draft.blocks = {**draft.blocks, (pointer.name, 0): vector}
    return without_jobs(span, [job.key for job in jobs], failing, pointer)
