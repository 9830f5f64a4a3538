"""Mixed lanes: jobs of any number of kinds in the order in which they came.

The first ``LANES_MAX`` kinds have a lane each. Jobs of further ones share the mixed lane of their priority, and so do
all that come while it holds any. So a kind may have its older jobs in its own lane and younger ones in the mixed one,
never the other way round; until its own lane is empty its jobs are not taken from the mixed one.

A claim takes the first job that it may start, and passes over the others: they stay where they are. It looks

    in the window   which takes further blocks while it has room
    in the spans    by their labels; an index in which there may be one makes way for the spans below it
    in the tail

What is taken out of the middle of a segment is marked in its deletion vector, as what is cancelled there. So nothing is
written twice, no job is moved to be passed over, and the order of each kind stays what it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from typing import cast

from msgspec.structs import replace

from .. import limits
from .backlog import (
    LABELS,
    READ_AHEAD_BYTES_MAX,
    BacklogDraft,
    Blocks,
    NeededRange,
    Spill,
    deleted_from,
    foldable,
    need_of,
    needs_of,
)
from .deletion_vectors import DeletionVector, encode_vector, without_jobs
from .drop_rules import DROPPED_PER_COMMIT_MAX, NO_RULES, Drops, covering
from .encoding import Block, encode_index
from .fairness import FairSearch
from .groups import Groups
from .labels import LabelledBlock, group_digest, kind_digest, may_hold, narrowed, union
from .state import MIXED, Backlog, JobRecord, Labels, Span

READS_AHEAD_MAX = 64  # of one search: what comes first has to be known first

Place = tuple[int, int]  # of a job in a segment: its block's offset, and its index there


class Wanted:
    """Which jobs of a lane a claim may start."""

    def __init__(
        self,
        kinds: frozenset[str] | None,
        closed: Collection[str],
        groups: Groups | None = None,
        count: int = 1,
        fair: FairSearch | None = None,
        grouped: bool = True,
    ) -> None:
        self._fair = fair
        self._grouped = grouped  # may it have a group?
        self.ungrouped = fair is None  # may it have none?
        self._kinds = kinds
        self._closed = frozenset(closed)
        self._groups = groups
        self._open = None if kinds is None else kinds - self._closed
        self.asked = None if self._open is None else frozenset(map(kind_digest, self._open))
        self.count = count  # so many at most
        self.passed: dict[str, Place] = {}  # of each segment, what was looked at: there is none before it
        self._not_these: set[str] = set()  # groups of which none may start
        self.is_exact = True  # no digest stands for another kind as well, as far as jobs were looked at
        self._shut = frozenset(map(kind_digest, self._closed))

    @property
    def is_rare(self) -> bool:
        """May it be rare? Then the labels of blocks are asked before blocks are read in order."""
        return self._kinds is not None

    def takes(self, job: JobRecord) -> bool:
        """Is it this one?"""
        if job.kind in self._closed or (self._kinds is not None and job.kind not in self._kinds):
            return False
        group = job.group
        if not group or group in self._not_these:
            return not group and self.ungrouped
        if self.opens(group_digest(group)):
            return True
        self._not_these.add(group)  # a claim that goes on closes more of them, and opens none
        return False

    def has(self, kind: bytes) -> bool:
        """May it be one of the kind of which this is the digest?"""
        return kind not in self._shut if self.asked is None else kind in self.asked

    def opens(self, group: bytes) -> bool:
        """And of the group of which this is the digest?"""
        return (
            self._grouped
            and (self._groups is None or self._groups.opens(group))
            and (self._fair is None or self._fair.opens(group))
        )

    def is_mistaken_for(self, job: JobRecord) -> bool:
        """Does a kind that is asked for have the digest of this job's, which is not asked for?"""
        asked, kinds = self.asked, self._open
        return (
            asked is not None
            and kinds is not None
            and job.kind not in kinds
            and kind_digest(job.kind) in asked
        )


class MixedDraft(BacklogDraft):
    """The mixed lane of a priority being changed."""

    __slots__ = ("_taken",)
    mixed = True

    def __init__(self, backlog: Backlog, drops: Drops = NO_RULES) -> None:
        super().__init__(backlog, drops)
        self._taken: dict[str, set[Place]] = {}  # out of the middle of segments, in this reduction

    def is_taken_from(self, name: str) -> bool:
        return name in self._taken

    def deleted_from(self, span: Span, blocks: Blocks) -> DeletionVector | None:
        deleted = deleted_from(span, blocks)
        taken = self._taken.get(span.name)
        return deleted if deleted is None or taken is None else deleted.more(taken)

    # ── The next job ─────────────────────────────────────────────────────────
    def bring(self, wanted: Wanted, blocks: Blocks, gone: set[bytes], room: int) -> bool | list[NeededRange]:
        """Put the first wanted job in front: True. Or there is none, or this has to be read before it can be told.

        ``gone`` are the keys of cancelled jobs. The window may grow by ``room`` bytes. Nothing has to be read, and it
        is not told either, where rules have cancelled as many as one commit may.
        """
        if self._in_window(wanted, 0):
            return True
        while self.spans and may_hold(self.spans[0].labels, wanted) and not self.drops.is_spent:
            front = self.spans[0]
            needs = [need for need in needs_of(front) if need.place not in blocks]
            if front.level:
                if needs:
                    return needs
                if not self._open(0, blocks, wanted):
                    break
                continue
            rare = wanted.is_rare and front.labels_length and not _begins_with(front, wanted, blocks)
            if rare or (self.ready and front.length > room):
                break
            if needs:
                return needs
            before, held = len(self.ready), self.ready_bytes
            self.advance(blocks, gone)
            room -= self.ready_bytes - held
            if self._in_window(wanted, before):
                return True
        found = [] if self.drops.is_spent else self._in_spans(wanted, blocks, gone)
        if isinstance(found, list):
            return found
        if found is None:
            found = next(filter(wanted.takes, self.tail), None)
            if found is None:
                return False
            self.remove(found.key)
        self.push_front(found)
        return True

    def prefer(self, job: JobRecord) -> None:
        """Put a job of the window in front."""
        self._changed = True
        self.ready.remove(job)
        self.ready.appendleft(job)

    def _in_window(self, wanted: Wanted, begin: int) -> bool:
        ready = self.ready
        for at, job in enumerate(islice(ready, begin, None), begin):
            if wanted.takes(job):
                if at:
                    self._changed = True
                    del ready[at]
                    ready.appendleft(job)
                return True
        return False

    def _in_spans(
        self, wanted: Wanted, blocks: Blocks, gone: set[bytes]
    ) -> JobRecord | list[NeededRange] | None:
        """Take the first wanted job out of the spans. Spans behind one that has not been read are read with it."""
        needs: list[NeededRange] = []
        at = 0
        while at < len(self.spans) and len(needs) < READS_AHEAD_MAX:
            span = self.spans[at]
            if not may_hold(span.labels, wanted):
                at += 1
            elif span.level:
                if (span.name, 0) not in blocks:
                    needs.extend(needs_of(span))
                elif not needs and self._open(at, blocks, wanted):
                    continue
                at += 1
            else:
                search = Search(span, self.deleted_from(span, blocks), wanted, blocks, gone, self.drops)
                found = search.first()
                if self._drop(at, search.covered) and found is None:
                    if self.drops.is_spent:
                        return []
                    continue
                if found is not None and not needs:
                    place, job = found
                    self._take(at, place, job)
                    return job
                if not gone:
                    self._narrow(at, wanted)
                needs.extend(search.needs)
                if found is not None or (search.needs and search.is_told):
                    break  # what is behind it hardly comes first
                at += 1
        return needs or None

    def _open(self, at: int, blocks: Blocks, wanted: Wanted) -> bool:
        """Let an index make way for what is below it, if a wanted job may be there; it has been read."""
        inside = cast("tuple[Span, ...]", blocks[self.spans[at].name, 0])
        if not any(may_hold(span.labels, wanted) for span in inside):
            return False
        self.open(at, inside)
        return True

    def _drop(self, at: int, covered: Sequence[tuple[Place, JobRecord]]) -> bool:
        """Cancel jobs of a segment that rules cover; are there any?"""
        for place, job in covered:
            self.drops.drops(job, self.spans[at])
            self._take(at, place, job)
        return bool(covered)

    def _narrow(self, at: int, wanted: Wanted) -> None:
        """Where nothing wanted is left in a segment its labels need not tell of it again.

        That alone is no change of the lane: it is kept with the next one.
        """
        span = self.spans[at]
        if span.labels and wanted.is_exact and wanted.passed.get(span.name) == (span.size, 0):
            self.spans[at] = replace(span, labels=narrowed(span.labels, wanted))

    def _take(self, at: int, place: Place, job: JobRecord) -> None:
        self._changed = True
        span = self.spans[at]
        self._taken.setdefault(span.name, set()).add(place)
        left = without_jobs(span, (job.key,), 0, span.vector)
        self.spans[at : at + 1] = [] if left is None else [left]

    # ── Between head and segments ────────────────────────────────────────────
    def mark_taken(self, spill: Spill, blocks: Blocks) -> None:
        """Write the deletion vectors of what was taken out of the middle of segments."""
        for at, span in enumerate(self.spans if self._taken else ()):
            if span.name in self._taken:
                deleted = self.deleted_from(span, blocks)
                assert deleted is not None
                ahead = {offset: mask for offset, mask in deleted.masks.items() if offset >= span.offset}
                vector = spill("segments", partial(encode_vector, DeletionVector(ahead)))
                self.spans[at] = replace(span, vector=vector)
        self._taken = {}

    def fold(self, spill: Spill, blocks: Blocks) -> Sequence[NeededRange]:
        """As other lanes do, and sooner where labels fill the head. Answers what has to be read for it first."""
        for at, span in enumerate(self.spans):
            if span.labels_length and span.labels and span.labels.size > limits.LABELS_OF_A_SPAN_BYTES_MAX:
                self.spans[at] = replace(
                    span, labels=None
                )  # out of an index; those of its blocks tell as well
        fresh: dict[str, Labels | None] = {}  # of the indexes made here, which nobody can read yet
        while run := foldable(self.spans, self.drops) or self._labelled_run():
            group = list(self.spans[run])
            for at, span in enumerate(group):
                if span.level and span.labels is None:
                    if span.name not in fresh and (span.name, 0) not in blocks:
                        return needs_of(span)
                    labels = fresh[span.name] if span.name in fresh else _below(span, blocks)
                    group[at] = replace(span, labels=labels)
            self._changed = True
            index = self.drops.aged(spill("segments", partial(encode_index, group)), group)
            fresh[index.name] = union(span.labels for span in group)
            self.spans[run] = [index]
        return ()

    def _labelled_run(self) -> slice | None:
        """The longest run of segments, where their labels fill the head."""
        if labels_bytes(self) <= limits.LABELS_BYTES_MAX:
            return None
        alike = groupby(
            range(len(self.spans)), lambda at: (self.spans[at].level, self.drops.side(self.spans[at]))
        )
        runs = (list(run) for (level, _), run in alike if not level)
        longest = max(runs, key=len, default=[])[: limits.FANOUT]
        return slice(longest[0], longest[-1] + 1) if len(longest) > 1 else None


def draft_of(kind: str, backlog: Backlog, drops: Drops) -> BacklogDraft:
    """A lane of a kind, or a mixed one, being changed."""
    return MixedDraft(backlog, drops) if kind == MIXED else BacklogDraft(backlog, drops)


def labels_bytes(backlog: Backlog | BacklogDraft) -> int:
    """The labels of its spans in the head."""
    return sum([span.labels.size for span in backlog.spans if span.labels])


def _begins_with(front: Span, wanted: Wanted, blocks: Blocks) -> bool:
    """May there be a wanted job in the next block of a segment that labels its blocks? No, if those were not read."""
    labelled = cast("tuple[LabelledBlock, ...]", blocks.get(_labels_of(front).place, ()))
    return any(each.offset == front.offset and may_hold(each.labels, wanted) for each in labelled)


def _labels_of(span: Span) -> NeededRange:
    """Where the labels of its blocks are."""
    return NeededRange(span.name, span.labels_at, span.labels_length, LABELS, 0)


def _below(index: Span, blocks: Blocks) -> Labels | None:
    inside = cast("tuple[Span, ...]", blocks.get((index.name, 0), ()))
    return union(span.labels for span in inside)


class Search:
    """Looking for a wanted job in one segment."""

    def __init__(
        self,
        span: Span,
        deleted: DeletionVector | None,
        wanted: Wanted,
        blocks: Blocks,
        gone: Collection[bytes],
        drops: Drops,
    ) -> None:
        self.needs: list[NeededRange] = []  # what has to be read for it
        self.covered: list[tuple[Place, JobRecord]] = []  # that rules cancel, and were met on the way
        self._drops = drops
        self.is_told = span.labels is not None  # it is known that there is one, or was
        self._span = span
        self._deleted = deleted
        self._wanted = wanted
        self._blocks = blocks
        self._gone = gone

    def first(self) -> tuple[Place, JobRecord] | None:
        """The first one, and its place; None when there is none, or ``needs`` have to be read first."""
        span, deleted, wanted = self._span, self._deleted, self._wanted
        if deleted is None and span.vector is not None:
            self.needs.append(need_of(span.vector))
        begun = max((span.offset, span.skip), wanted.passed.get(span.name, (0, 0)))
        for need in self._candidates(begun[0]):
            block = self._blocks.get(need.place)
            if block is None or self.needs:  # each block has one at least, or had: as many are read together
                if block is None:
                    self.needs.append(need)
                if len(self.needs) < min(wanted.count, READS_AHEAD_MAX) and span.labels_length:
                    continue
                return None
            if not isinstance(block, Block) or deleted is None:
                return None
            begin = begun[1] if need.start == begun[0] else 0
            for index, job in enumerate(islice(block.jobs, begin, None), begin):
                if wanted.takes(job) and job.key not in self._gone and not deleted.has(need.start, index):
                    if self._drops.rules and covering(self._drops.rules, job, span):
                        self.covered.append(((need.start, index), job))
                        if self._drops.count + len(self.covered) >= DROPPED_PER_COMMIT_MAX:
                            return None
                        continue
                    wanted.passed[span.name] = (need.start, index + 1)
                    return (need.start, index), job
                wanted.is_exact = wanted.is_exact and not wanted.is_mistaken_for(job)
        if not self.needs:
            wanted.passed[span.name] = (span.size, 0)
        return None

    def _candidates(self, begin: int) -> Iterator[NeededRange]:
        """The blocks from a place on in which there may be one."""
        span = self._span
        if begin >= span.size:
            return
        if not span.labels_length:
            offset, length = span.offset, span.length
            while length:
                ahead = max(length, min(span.size - offset, READ_AHEAD_BYTES_MAX))
                if offset >= begin:
                    yield NeededRange(span.name, offset, ahead, 0, length)
                block = cast("Block", self._blocks[span.name, offset])
                offset, length = offset + length, block.next_length
            return
        told = _labels_of(span)
        labelled = self._blocks.get(told.place)
        if labelled is None:
            self.needs.append(told)
            return
        for each in cast("tuple[LabelledBlock, ...]", labelled):
            if each.offset >= begin and may_hold(each.labels, self._wanted):
                self.is_told = True
                yield NeededRange(span.name, each.offset, each.length, 0, each.length)
