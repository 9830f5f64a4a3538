"""Drop rules: which jobs of a backlog of any depth are cancelled although nobody has read them yet.

A rule names kinds, a group, a batch or a time of enqueue, and covers what waited when it came. In the commit that adds
it, all that it covers in the head's own windows ends. What it covers from then on lies in segments that the head
referred to before, and nowhere else. So a job is judged by the span that it is met in, and no clock has to be exact: a
rule covers what matches it in a span that is *older* than the rule. A span is as old as

    its segment        the head that its name tells was the newest when it was written
    or as ``joined``   a bulk, staged before and attached after a rule; jobs of several ages written again, or below an
                       index: only spans that the same rules cover come together; and what was looked through

So each span that stands in the head is older than a rule with all that is below it, or with nothing of it. Claims and
promotions end what they meet, and the reaper looks through the rest. Then the rule goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from msgspec.structs import replace

from .batches import Batches, batch_of
from .encoding import born_of
from .head_content import jobs_in_memory
from .labels import group_digest, kind_digest, may_hold
from .queue_ops import CancelJobs
from .state import (
    FAILED,
    MIXED,
    NO_DROPS,
    PROCESSING,
    QUEUED,
    DropRule,
    DropRules,
    JobRecord,
    Labels,
    Span,
    State,
)

DROPPED_PER_COMMIT_MAX = 1_000  # jobs whose start deadline has passed, and as many that rules cover

P = TypeVar("P")
Where = tuple[str, Span]  # the kind of a lane, or MIXED: of jobs of any kind; and one of its spans


def age_of(span: Span) -> int:
    """The seq of the newest head that did not have these jobs, as far as rules go."""
    return span.joined or born_of(span.name)


def matches(rule: DropRule, job: JobRecord) -> bool:
    """Is it a job as the rule names them? Whether it was there in time is told by its place."""
    return (
        (rule.kinds is None or job.kind in rule.kinds)
        and (rule.group is None or job.group == rule.group)
        and (not rule.before_ms or job.enqueued_ms < rule.before_ms)
        and (not rule.batch or batch_of(job) == rule.batch)
    )


def covering(rules: Iterable[DropRule], job: JobRecord, span: Span) -> DropRule | None:
    """The first rule that covers a job that lies in a span of the head, if there is one."""
    age = age_of(span)
    return next((rule for rule in rules if age < rule.seq and matches(rule, job)), None)


def may_cover(rule: DropRule, where: Where) -> bool:
    """May the rule cover a job in a span, as far as the head tells?"""
    kind, span = where
    if age_of(span) >= rule.seq:
        return False
    if kind != MIXED:  # which is of jobs without a group
        return rule.group is None and (rule.kinds is None or kind in rule.kinds)
    if span.labels is None:
        return True
    labels = span.labels if rule.group is None else Labels(pairs=span.labels.pairs)
    return may_hold(labels, _Wish(rule))


def left_deep(batches: Batches, rule: DropRule, head: Iterable[JobRecord], most: int) -> int:
    """How many of so many jobs in segments are of the rule's batch at most; ``head`` holds those that are elsewhere.

    A batch counts what is left of it. One that is forgotten tells nothing.
    """
    row = batches.get(rule.batch)
    return most if row is None else min(most, row.left - sum(batch_of(job) == rule.batch for job in head))


def why_of(rule: DropRule) -> str:
    """What is told of a job that the rule cancelled."""
    return f"by drop rule {rule.seq} of {datetime.fromtimestamp(rule.at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def spans_in(state: State) -> Iterator[Where]:
    """All spans of jobs that wait."""
    for lane in state.lanes:
        yield from ((lane.kind, span) for span in lane.backlog.spans)
    yield from ((MIXED, span) for span in state.delayed.spans)


def as_old(state: State, copies: Mapping[str, tuple[Span, ...]]) -> Mapping[str, tuple[Span, ...]]:
    """Spans written anew in the places of those that wait in a head, by their names: as old as they were."""
    if not state.drops.rules:
        return copies
    ages = {span.name: age_of(span) for _, span in spans_in(state)}
    return {
        name: tuple([replace(span, joined=ages.get(name, 0)) for span in spans])
        for name, spans in copies.items()
    }


def rule_of(op: CancelJobs, seq: int, now_ms: int) -> DropRule:
    """What an operation asks for, as a rule of a commit."""
    return DropRule(seq, now_ms, op.kinds, op.group, op.before_ms, op.batch)


def preview(state: State, op: CancelJobs) -> tuple[int, int, int]:
    """What the operation would answer: jobs that it cancels, those that it asks for, and about how many wait deeper."""
    rule = rule_of(op, state.seq + 1, state.now_ms)
    places = [where for where, job in jobs_in_memory(state) if where != FAILED and matches(rule, job)]
    running = places.count(PROCESSING)
    waiting = sum(span.count for kind, span in spans_in(state) if may_cover(rule, (kind, span)))
    if waiting and rule.batch:
        head = [job for where, job in jobs_in_memory(state) if where != FAILED]
        waiting = left_deep(state.batches, rule, head, waiting)
    return len(places) - running, running, waiting


class _Wish:
    """What a rule looks for, by digests."""

    ungrouped = True

    def __init__(self, rule: DropRule) -> None:
        self.asked = None if rule.kinds is None else frozenset(map(kind_digest, rule.kinds))
        self._group = None if rule.group is None else group_digest(rule.group)

    def has(self, kind: bytes) -> bool:
        """Is it this kind?"""
        return self.asked is None or kind in self.asked

    def opens(self, group: bytes) -> bool:
        """Is it this group?"""
        return self._group is None or group == self._group


class Drops:
    """The rules of a head being changed.

    ``end`` cancels a job that is in no place any more. It is told the job, its state until now, why, and the cause.
    """

    __slots__ = ("_end", "_since", "count", "place", "rules")

    def __init__(self, row: DropRules, end: Callable[[JobRecord, str, str, str], None]) -> None:
        self.rules = row.rules
        self.place = row.place  # in the segment that the reaper is looking through
        self.count = 0  # jobs that were cancelled in this reduction
        self._end = end
        self._since = 0  # of what is written after a rule came in this very reduction

    def freeze(self, before: DropRules) -> DropRules:
        """The rules as data again. Nothing ends from now on: else they and their draft would wait for the collector."""
        self._end = _never
        row = DropRules(self.rules, self.place) if self.rules else NO_DROPS
        return before if row == before else row

    @property
    def is_spent(self) -> bool:
        """Has this commit cancelled as many as one may? Then others go on."""
        return self.left <= 0

    @property
    def left(self) -> int:
        """How many more may it?"""
        return DROPPED_PER_COMMIT_MAX - self.count

    def add(self, rule: DropRule, rules: tuple[DropRule, ...]) -> None:
        """A rule has come, beside these: what is put into the head from now on it does not cover."""
        self.rules = (*rules, rule)
        self.place = NO_DROPS.place  # what was looked through was not for this one
        self._since = rule.seq

    # ── Jobs ─────────────────────────────────────────────────────────────────
    def drops(self, job: JobRecord, span: Span, origin: str = QUEUED) -> bool:
        """Cancel a job that has just left a span, if a rule covers it."""
        rule = covering(self.rules, job, span)
        if rule is None:
            return False
        self.drop(rule, job, origin)
        return True

    def drop(self, rule: DropRule, job: JobRecord, origin: str) -> None:
        """Cancel a job that a rule covers; it is in no place any more."""
        self.count += 1
        self._end(job, origin, why_of(rule), "cancel")

    # ── Spans ────────────────────────────────────────────────────────────────
    def side(self, span: Span) -> int:
        """How many of the rules a span is older than. Only those of one side come together."""
        if not self.rules:
            return 0
        age = age_of(span)
        return sum([age < rule.seq for rule in self.rules])

    def aged(self, fresh: Span, spans: Iterable[Span]) -> Span:
        """A new span of what these held, which are of one side: as old as the youngest of them."""
        return replace(fresh, joined=max(map(age_of, spans))) if self.rules else fresh

    def dated(self, pointer: P) -> P:
        """A new pointer. A segment of jobs that a rule of this very reduction does not cover is as young as that."""
        if self._since and isinstance(pointer, Span) and not pointer.level:
            return replace(pointer, joined=self._since)
        return pointer

    def attached(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """The spans of a bulk that joins now, which may have been staged before a rule came."""
        newest = self.rules[-1].seq if self.rules else 0
        return tuple([replace(span, joined=max(age_of(span), newest)) if newest else span for span in spans])

    def looked_through(self, span: Span) -> Span:
        """A span in which no rule covers anything any more."""
        return replace(span, joined=self.rules[-1].seq)


def _never(job: JobRecord, origin: str, why: str, cause: str) -> None:
    """There is no rule."""


NO_RULES = Drops(NO_DROPS, _never)
