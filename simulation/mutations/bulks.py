"""Bulks of many processes with one check removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import Any

from msgspec.structs import replace

from osqueue.bulk import receipts, writer
from osqueue.bulk.receipts import BulkReceipt, BulkReceipts, StoredReceipt
from osqueue.bulk.writer import BulkFlows, BulkResult, StagedJobs
from osqueue.commit.effects import All, Flow, QueueFlow
from osqueue.commit.writer import ShardWriter
from osqueue.core import reduce, spill
from osqueue.core.draft import Draft
from osqueue.core.job_ops import AttachBulk, AttachSpans, EnqueueJobs
from osqueue.core.ops import Code, Op, Outcome, Request, outcome
from osqueue.core.state import JobRecord, Span, State
from osqueue.errors import Unknown
from osqueue.maintenance import garbage_collection
from osqueue.objects.layout import read_state
from osqueue.objects.staging import SegmentBuilder, StagingArea
from osqueue.stores.base import Delete, Put

from .control import Control, dispatched, in_interleavings, in_runs, in_scene, patched

ENDED_EARLY = "a delay of 60000 ms ended"


def receipt_ignored() -> AbstractContextManager[None]:
    """Every run of a batch decides anew what it is."""

    def read(self: Any, batch_id: str) -> Flow[StoredReceipt | None]:
        yield from ()
        return None

    def decide(self: Any, batch: BulkReceipt) -> Flow[StoredReceipt]:
        yield from ()
        return StoredReceipt(batch, "")

    return patched((BulkReceipts, "read", read), (BulkReceipts, "decide", decide))


def identity_of_each_run() -> AbstractContextManager[None]:
    """Who sends the requests of a batch speaks with a voice of their own."""

    def identify(self: Any, ops: tuple[Op, ...], state: State) -> Request:
        request = receipts.identified(self.machine, state, ops)
        self.env = request.env
        return request

    return patched((receipts._FixedWriter, "identify", identify))


def refusals_unspent() -> AbstractContextManager[None]:
    """A bulk that is refused is so by the head as it is, and nothing is written."""
    real = reduce._APPLY[AttachBulk]

    def attach_all(draft: Draft, op: AttachBulk) -> Outcome:
        before = draft.changed
        answer = real(draft, op)
        if answer.code != Code.QUEUED:
            draft.changed = before
        return answer

    return dispatched(AttachBulk, attach_all)


def half_a_bulk() -> AbstractContextManager[None]:
    """The parts of a bulk join one after the other, until one is refused."""

    def attach_all(draft: Draft, op: AttachBulk) -> Outcome:
        for part in op.parts:
            answer = reduce._attach(draft, part)
            if answer.code not in (Code.QUEUED, Code.SCHEDULED):
                return answer
        return outcome([Code.QUEUED])

    return dispatched(AttachBulk, attach_all)


def staged_collected_at_once() -> AbstractContextManager[None]:
    """What nobody refers to is collected however young it is."""
    return patched((garbage_collection, "born_of", lambda name: 0))


def decided_again() -> AbstractContextManager[None]:
    """What a batch is, the last of its runs decides."""
    return patched((receipts, "PutIfAbsent", Put))


def rewritten_whatever_it_says() -> AbstractContextManager[None]:
    """What is left of a batch is written down, even if another run has done so since."""
    return patched((receipts, "PutIfMatch", lambda key, body, version: Put(key, body)))


def removed_whatever_it_says() -> AbstractContextManager[None]:
    """A batch that was refused, or is to be forgotten, is removed, even if it is another one by now."""
    return patched((receipts, "DeleteIfMatch", lambda key, version: Delete((key,))))


def unknown_counts_as_in() -> AbstractContextManager[None]:
    """A shard has its part if nobody can tell whether it has."""
    real = BulkReceipts._commit

    def commit(self: BulkReceipts, shard: int, request: Request, batch: BulkReceipt) -> QueueFlow[Code]:
        try:
            return (yield from real(self, shard, request, batch))
        except Unknown:
            return Code.QUEUED

    return patched((BulkReceipts, "_commit", commit))


def removed_though_partly_in() -> AbstractContextManager[None]:
    """A batch begins anew if any shard refuses its part."""
    real = BulkReceipts._refuse

    def refuse(self: BulkReceipts, known: StoredReceipt, refused: Sequence[Any]) -> QueueFlow[None]:
        yield from real(self, replace(known, batch=replace(known.batch, shards=len(refused))), refused)

    return patched((BulkReceipts, "_refuse", refuse))


def forgotten_at_any_age() -> AbstractContextManager[None]:
    """A batch is forgotten by the next pass."""
    return patched((receipts, "KEPT_MS", 0))


def refused_for_ever() -> AbstractContextManager[None]:
    """What is left of a batch is asked for by the requests that were refused."""
    real, spent = BulkReceipts._refuse, dict[int, Request]()

    def refuse(self: BulkReceipts, known: StoredReceipt, refused: Sequence[Any]) -> QueueFlow[None]:
        spent.update((id(request.ops), request) for _, request, _ in refused)
        yield from real(self, known, refused)

    return patched(
        (BulkReceipts, "_refuse", refuse),
        (receipts, "identified", lambda machine, state, ops: spent[id(ops)]),
    )


def forgotten_though_it_may_join() -> AbstractContextManager[None]:
    """A batch is forgotten although a run that stands still may send what it says."""

    def may_join(queue: str, place: str) -> QueueFlow[bool]:
        yield from ()
        return False

    return patched((receipts, "_may_join", may_join))


def applied_counts_as_in() -> AbstractContextManager[None]:
    """A shard has its part if it was asked before, whatever it answered."""
    return patched((receipts, "outcomes_of", lambda state, request: (outcome([Code.QUEUED]),)))


def refusals_unheard() -> AbstractContextManager[None]:
    """A shard has its part once it was asked."""
    real = BulkReceipts._commit

    def commit(self: BulkReceipts, shard: int, request: Request, batch: BulkReceipt) -> QueueFlow[Code]:
        yield from real(self, shard, request, batch)
        return Code.QUEUED

    return patched((BulkReceipts, "_commit", commit))


def bulks_of_others_claimed() -> AbstractContextManager[None]:
    """A run says that its own bulk is in when that of another run is."""

    def attached(jobs: int, repeated: bool = False) -> BulkResult:
        return BulkResult(jobs)

    return patched((writer, "BulkResult", attached))


def jobs_of_each_run() -> AbstractContextManager[None]:
    """A batch has as many jobs as who asks has staged."""
    real = BulkFlows.attach

    def attach(self: BulkFlows, staged: Sequence[StagedJobs], batch_id: str | None) -> QueueFlow[BulkResult]:
        done = yield from real(self, staged, batch_id)
        return BulkResult(sum(each.jobs for each in staged), done.repeated)

    return patched((BulkFlows, "attach", attach))


# ── Joining ──────────────────────────────────────────────────────────────────
def delayed_looked_for_one_by_one() -> AbstractContextManager[None]:
    """Nobody asks beforehand whether there is room for the delayed jobs of a bulk."""
    real = reduce._APPLY[AttachBulk]

    def attach_all(draft: Draft, op: AttachBulk) -> Outcome:
        answer = real(draft, AttachBulk(tuple(part for part in op.parts if not part.delayed)))
        for part in op.parts if answer.code == Code.QUEUED else ():
            if part.delayed:
                reduce._attach(draft, part)
        return answer

    return dispatched(AttachBulk, attach_all)


def delayed_without_end(op: type[Op]) -> AbstractContextManager[None]:
    """There is room for any number of segments of delayed jobs."""
    real = reduce._APPLY[op]

    def apply(draft: Draft, wished: Any) -> Outcome:
        with patched((spill, "DELAYED_SPANS_MAX", 1 << 30)):
            return real(draft, wished)

    return dispatched(op, apply)


def in_front_of_the_tail() -> AbstractContextManager[None]:
    """A bulk joins between the segments of a lane and those who came last."""
    real = reduce._attach

    def attach(draft: Draft, op: AttachSpans) -> Outcome:
        tails = [(lane, lane.tail) for lane in draft.lanes.values()]
        for lane, _ in tails:
            lane.tail = []
        answer = real(draft, op)
        for lane, tail in tails:
            lane.tail = tail
        return answer

    return patched((reduce, "_attach", attach))


# ── Planning ─────────────────────────────────────────────────────────────────
def delays_from_the_earliest() -> AbstractContextManager[None]:
    """Delays count from the earliest that the store's clock may have shown."""
    real = SegmentBuilder.__init__

    def init(self: SegmentBuilder, stage: StagingArea, now_ms: int, latest_ms: int, *rest: Any) -> None:
        real(self, stage, now_ms, now_ms, *rest)

    return patched((SegmentBuilder, "__init__", init))


def planned_without_the_time() -> AbstractContextManager[None]:
    """Who stages asks for the time once, and goes by the head's where there is no answer."""
    return patched((ShardWriter, "tell_time", ShardWriter.measure_clock))


class _AsTheyCame(list[JobRecord]):
    def sort(self, **how: Any) -> None:
        """Leave them as they are."""


def delayed_as_they_came() -> AbstractContextManager[None]:
    """The delayed jobs of a bulk stand in the order in which they came."""
    real = SegmentBuilder.__init__

    def init(self: SegmentBuilder, *args: Any) -> None:
        real(self, *args)
        self._delayed = _AsTheyCame()

    return patched((SegmentBuilder, "__init__", init))


def merged_as_they_came() -> AbstractContextManager[None]:
    """Segments of delayed jobs are put together one behind the other."""

    class Behind:
        @staticmethod
        def merge(*runs: list[JobRecord], key: Any) -> Iterator[JobRecord]:
            return chain(*runs)

    return patched((writer, "heapq", Behind))


# ── Staging ──────────────────────────────────────────────────────────────────
def merged_ones_born_late() -> AbstractContextManager[None]:
    """Segments that were merged are as old as the merging."""
    real = BulkFlows._merged

    def merged(self: BulkFlows, shard: int, spans: Sequence[Span]) -> Flow[tuple[Span, ...]]:
        state = yield from read_state(self.queue, shard)
        assert state is not None
        with patched((writer, "born_of", lambda name: state.seq)):
            return (yield from real(self, shard, spans))

    return patched((BulkFlows, "_merged", merged))


def unwritten_counts_as_staged() -> AbstractContextManager[None]:
    """What was to be staged counts as staged, whatever the store has answered."""

    def write(self: StagingArea, objects: Sequence[tuple[str, bytes]]) -> Flow[None]:
        yield All(tuple(Put(self.root + name, data) for name, data in objects))

    return patched((StagingArea, "write", write))


def staged_under_common_names() -> AbstractContextManager[None]:
    """All who have seen one head name what they stage alike."""
    real = StagingArea.__init__

    def init(self: StagingArea, *args: Any) -> None:
        real(self, *args)
        self._chance = 0

    return patched((StagingArea, "__init__", init))


CONTROLS: tuple[Control, ...] = (
    Control(
        "batches decided once",
        decided_again,
        (in_interleavings("two runs of a batch", "joined shard 0 a second time|is done, and it is not"),),
    ),
    Control(
        "batches rewritten conditionally",
        rewritten_whatever_it_says,
        (in_scene("refused in part", "joined shard 1 a second time"),),
    ),
    Control(
        "batches removed conditionally",
        removed_whatever_it_says,
        (
            in_scene("refused and loaded", "ended as if it had never been"),
            in_scene("finished as it is forgotten", "ended as if it had never been"),
        ),
    ),
    Control(
        "batches of which nobody can tell",
        unknown_counts_as_in,
        (
            in_scene("silent for too long", "says that a batch is done, and it is not"),
            in_scene("refused and unknown", "says that a batch is done, and it is not"),
        ),
    ),
    Control(
        "batches asked for anew",
        refused_for_ever,
        (in_scene("refused in part", "it cannot be finished"),),
    ),
    Control(
        "batches that may come in",
        forgotten_though_it_may_join,
        (in_scene("abandoned for a month", "joined shard 0 a second time"),),
    ),
    Control(
        "batches that were refused",
        refusals_unheard,
        (in_scene("refused and resumed", "says that a batch is done, and it is not"),),
    ),
    Control(
        "batches that others were refused",
        applied_counts_as_in,
        (in_scene("refused and resumed", "was told that . jobs are in; it is not so"),),
    ),
    Control(
        "whose batch it is",
        bulks_of_others_claimed,
        (in_scene("decided by another", "was told that . jobs are in; it is not so"),),
    ),
    Control(
        "jobs of a batch",
        jobs_of_each_run,
        (in_scene("decided by another", "was told that . jobs are in; it is not so"),),
    ),
    Control(
        "batches that are partly in",
        removed_though_partly_in,
        (in_scene("refused in part", "ended as if it had never been"),),
    ),
    Control(
        "batches known for long",
        forgotten_at_any_age,
        (in_scene("known for a while", "ended as if it had never been"),),
    ),
    Control(
        "receipt",
        receipt_ignored,
        (
            in_runs("loads", "joined shard . a second time"),
            in_interleavings("two runs of a batch", "joined shard 0 a second time"),
        ),
    ),
    Control(
        "identity of a batch",
        identity_of_each_run,
        (
            in_runs("loads", "joined shard . a second time", seed=2),
            in_interleavings("two runs of a batch", "joined shard 0 a second time"),
        ),
    ),
    Control(
        "collected by age",
        staged_collected_at_once,
        (in_scene("staged as the collector comes", "invariant 8"),),
    ),
    Control(
        "spent refusals",
        refusals_unspent,
        (in_scene("refused and resumed", "ended as if it had never been"),),
    ),
    Control(
        "all or nothing", half_a_bulk, (in_scene("refused and resumed", "bulks of 1 jobs were told of"),)
    ),
    Control(
        "room for all that is delayed",
        delayed_looked_for_one_by_one,
        (in_scene("delayed beyond measure", "bulks of 0 jobs were told of"),),
    ),
    Control(
        "room for delayed segments",
        partial(delayed_without_end, AttachSpans),
        (in_scene("delayed without end, staged", "and has room for 2"),),
    ),
    Control(
        "room for delayed jobs",
        partial(delayed_without_end, EnqueueJobs),
        (in_scene("delayed without end", "and has room for 2"),),
    ),
    Control(
        "those who waited first",
        in_front_of_the_tail,
        (in_scene("attached behind others", "in front of an older one"),),
    ),
    Control(
        "delays of bulks",
        delays_from_the_earliest,
        (in_scene("planned for long", ENDED_EARLY), in_scene("enqueued for long", ENDED_EARLY)),
    ),
    Control(
        "the time of a bulk",
        planned_without_the_time,
        (in_scene("planned in silence", ENDED_EARLY), in_scene("enqueued in silence", ENDED_EARLY)),
    ),
    Control(
        "delayed jobs of a bulk in order",
        delayed_as_they_came,
        (in_scene("delayed the other way round", "one job is due, and 0 can be claimed"),),
    ),
    Control(
        "merged segments in order",
        merged_as_they_came,
        (in_scene("merged the other way round", "one job is due, and 0 can be claimed"),),
    ),
    Control(
        "birth of merged segments",
        merged_ones_born_late,
        (in_scene("merged and collected", "invariant 8"),),
    ),
    Control(
        "staged before the commit",
        unwritten_counts_as_staged,
        (in_scene("payloads left unwritten", "invariant 8"),),
    ),
    Control(
        "names of one's own",
        staged_under_common_names,
        (in_scene("staged at the same time", "a second time|is queued already"),),
    ),
)
