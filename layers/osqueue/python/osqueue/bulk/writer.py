"""Enqueueing from many processes at once, so that everything becomes visible in one commit of each shard, or nothing.

    plan      one process looks at the queue: what time it is, and when what is staged now was born
    stage     any number of processes write jobs as immutable segments, which nobody refers to yet
    attach    one process commits one request to each shard, which names all that was staged for it

What is staged and never attached is garbage; it is collected by its age, a day later. So long a bulk may take.

The request of a shard has its identity before it is first sent, so it can be sent again without being applied again. A
bulk with a ``batch_id`` writes its requests down first, under that id: see ``batches``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from .. import limits
from ..clock import MACHINE, Machine
from ..commit.driver import BlockingDriver
from ..commit.effects import Flow, QueueFlow, together
from ..commit.protocol import commit
from ..commit.retry import NEEDED, ask, patient
from ..commit.writer import ShardWriter
from ..core.context import ReductionContext
from ..core.encoding import born_of, decode_blocks, encode_segment
from ..core.groups import home_of
from ..core.job_ops import AttachBulk, AttachSpans, JobSpec
from ..core.ops import Code, Request
from ..core.queue_ops import LOOK_AGAIN
from ..core.reduce import reduce
from ..core.settings import QueueSettings
from ..core.state import JobRecord, Span, State, due_order
from ..errors import Rejected, Throttled, Unavailable, shown
from ..model.keys import KeySource
from ..model.validation import queue_name, text
from ..objects.layout import read_state, register, root_of, unavailable
from ..objects.segments import read_failure
from ..objects.staging import SegmentBuilder, StagingArea
from ..stores.base import Found, Get, Missing, Refused, Store, Written, room_below
from ..stores.counting import counted
from .receipts import (
    ATTACH_SECONDS_MAX,
    BulkReceipt,
    BulkReceipts,
    StoredReceipt,
    identified,
    refusal,
    too_late,
)

DELAYED_SPANS_LOOSE = 16  # more segments of delayed jobs than this are merged before they are attached


class BulkPlan(Struct, frozen=True):
    """What everybody who stages has to know. It is made once, so what is staged does not depend on who does it when."""

    queue: str
    now_ms: int  # when all of its jobs are enqueued, by the store's clock
    born: tuple[int, ...]  # by shard: seq of the head that was seen
    latest_ms: int = 0  # the latest that the store's clock may have shown then; delays count from it
    settings: QueueSettings = QueueSettings()  # as they were then


R = TypeVar("R")


class StagedJobs(Struct, frozen=True):
    """What one process staged for one shard."""

    shard: int
    jobs: int
    parts: tuple[AttachSpans, ...]


class BulkResult(Struct, frozen=True):
    """What became of a bulk."""

    jobs: int  # how many the batch has
    repeated: bool = False  # it had been attached, or decided, by an earlier run with the same batch_id


class StagerFlows:
    """What one process does to stage jobs for one shard, in order. Nobody sees them."""

    def __init__(self, machine: Machine, plan: BulkPlan, shard: int) -> None:
        self._shard = shard
        self._group_shards = plan.settings.group_shards
        self._keys = KeySource(machine)
        self._stage = StagingArea(root_of(plan.queue, shard), plan.born[shard], machine)
        self._bulk = SegmentBuilder(self._stage, plan.now_ms, plan.latest_ms, plan.settings)
        self._jobs = 0

    def keys(self, count: int) -> list[bytes]:
        """Keys for the next jobs, in order."""
        return self._keys.draw(self._shard, count)

    def add(self, jobs: Sequence[JobSpec]) -> Flow[None]:
        """Take jobs in. Their payloads are bytes; large ones are put into objects of their own."""
        for job in jobs:
            self._check_home(job.group)
        payloads: list[bytes] = [each.payload for each in jobs]  # type: ignore[misc]
        placed = yield from self._stage.bodies(payloads)
        yield from self._bulk.add(
            [
                job if content is job.payload else msgspec.structs.replace(job, payload=content)
                for job, content in zip(jobs, placed, strict=True)
            ]
        )
        self._jobs += len(jobs)

    def _check_home(self, group: str) -> None:
        """Raises Rejected for a group that is not at home in this shard: its order and its limit would not hold."""
        if group and not (self._group_shards and home_of(group, self._group_shards) == self._shard):
            raise Rejected(
                f"group: {shown(group)} is not at home in shard {self._shard}. Bulks are staged shard by shard: enqueue"
                " jobs of groups with enqueue_many, or load them into a queue of one shard after 'osqueue queue"
                " configure ADDRESS QUEUE --group-shards 1'.",
                field="group",
            )

    def finish(self) -> Flow[StagedJobs]:
        """Write what is left; what to hand to ``attach``."""
        return StagedJobs(self._shard, self._jobs, (yield from self._bulk.attachments()))


class BulkFlows:
    """Planning and attaching, as flows."""

    def __init__(
        self,
        queue: str,
        machine: Machine,
        store_clock: Callable[[], int | None] = lambda: None,
        room: Callable[[str], int] = room_below,
        swap_gap_s: float = 0.0,
        tick_ms: int = Store.clock_tick_ms,
    ) -> None:
        self.queue = queue
        self.machine = machine
        self.batches = BulkReceipts(queue, machine, self._writer)
        self._store_clock = store_clock
        self._room = room
        self._swap_gap_s = swap_gap_s
        self._tick_ms = tick_ms

    def _writer(self, kind: type[ShardWriter], shard: int) -> ShardWriter:
        root = root_of(self.queue, shard)
        made = kind(
            root, self.queue, self.machine, self._store_clock, self._room, swap_gap_s=self._swap_gap_s
        )
        made.observed = False
        made.tick_ms = self._tick_ms
        return made

    # ── Before ───────────────────────────────────────────────────────────────
    def plan(self) -> Flow[BulkPlan]:
        """Look at the queue. A queue that is not there yet has one shard."""
        first = yield from read_state(self.queue, 0)
        others = range(1, first.settings.shards if first is not None else 1)
        states = [first, *(yield from together([read_state(self.queue, shard) for shard in others]))]
        writer = self._writer(ShardWriter, 0)
        yield from writer.tell_time()
        now = max(writer.now_ms(state or _nothing()) for state in states)
        born = tuple(0 if state is None else state.seq for state in states)
        settings = QueueSettings() if first is None else without_deadlines(first.settings)
        return BulkPlan(self.queue, now, born, writer.latest_ms(now), settings)

    # ── Attaching ────────────────────────────────────────────────────────────
    def attach(self, staged: Sequence[StagedJobs], batch_id: str | None) -> QueueFlow[BulkResult]:
        """As ``BulkWriter.attach``."""
        if batch_id is not None:
            known = yield from self.batches.read(batch_id)
            if known is not None:
                yield from self.batches.settle(known)
                return BulkResult(known.batch.jobs, repeated=True)
        if staged:
            yield from self._register()
        requests = []
        for shard, parts in _by_shard(staged):
            op = AttachBulk(tuple((yield from self._gathered(shard, parts))))
            requests.append((shard, (yield from self._request(shard, op))))
        batch = BulkReceipt(batch_id or "", sum(each.jobs for each in staged), len(requests), tuple(requests))
        if batch_id is None:
            yield from self.batches.settle(StoredReceipt(batch, ""))
            return BulkResult(batch.jobs)
        known = yield from self.batches.decide(batch)
        yield from self.batches.settle(known)
        return BulkResult(known.batch.jobs, repeated=known.batch != batch)

    def resume(self, batch_id: str) -> QueueFlow[BulkResult]:
        """As ``BulkWriter.resume``."""
        known = yield from self.batches.read(batch_id)
        if known is None:
            raise Throttled("batch_id: an earlier run under it has just been given up. Run the batch again.")
        yield from self.batches.settle(known)
        return BulkResult(known.batch.jobs, repeated=True)

    def _register(self) -> QueueFlow[None]:
        reply = yield from ask(register(self.queue), NEEDED)
        if not isinstance(reply, Written | Refused):
            raise unavailable(reply, "room for the queue's registration")

    def _request(self, shard: int, op: AttachBulk) -> QueueFlow[Request]:
        """A request with an identity of its own; the head says beforehand whether it would be taken."""
        state = yield from read_state(self.queue, shard)
        if state is None:  # an identity belongs to a head: let there be one
            deadline = self.machine.monotonic() + ATTACH_SECONDS_MAX
            yield from commit(self._writer(ShardWriter, shard), (LOOK_AGAIN,), deadline)
            state = yield from read_state(self.queue, shard)
            if state is None:
                raise Unavailable("the queue's head is not there any more. See docs/operations.md.")
        request = identified(self.machine, state, (op,))
        tried = reduce(state, [request], ReductionContext(state.now_ms, bytes(16), 0, observed=False))
        answers = tried.outcomes.get(request.identity)
        if answers is not None and answers[0].code != Code.QUEUED:
            raise refusal(shard, answers[0].code, op)
        return request

    # ── Segments of delayed jobs ─────────────────────────────────────────────
    def _gathered(self, shard: int, parts: Sequence[AttachSpans]) -> Flow[list[AttachSpans]]:
        """The same with fewer segments of delayed jobs: each process made one at least, and a head holds few."""
        fewer = []
        for part in parts:
            if part.delayed and len(part.spans) > DELAYED_SPANS_LOOSE:
                spans = yield from self._merged(shard, part.spans)
                part = AttachSpans(part.priority, part.kind, spans, delayed=True)
            fewer.append(part)
        return fewer

    def _merged(self, shard: int, spans: Sequence[Span]) -> Flow[tuple[Span, ...]]:
        """Small segments put together, as many at a time as fit into one, which is all that is in memory."""
        root = root_of(self.queue, shard)
        # As old as the oldest of them: with it the collector may have taken a payload.
        stage = StagingArea(root, min(born_of(span.name) for span in spans), self.machine)
        merged: list[Span] = []
        for group in _groups(spans):
            if len(group) == 1:
                merged.extend(group)
                continue
            runs = yield from together([_jobs_of(root, span) for span in group])
            name = stage.name("segments")
            data, span = encode_segment(list(heapq.merge(*runs, key=due_order)), name)
            yield from stage.write([(name, data)])
            merged.append(span)
        return tuple(merged)


def _groups(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Neighbours that fit into one segment."""
    group: list[Span] = []
    for span in spans:
        if group and sum(each.size for each in group) + span.size > limits.SEGMENT_BYTES_MAX:
            yield group
            group = []
        group.append(span)
    if group:
        yield group


def _jobs_of(root: str, span: Span) -> Flow[list[JobRecord]]:
    reply = yield from ask(Get(root + span.name), NEEDED)
    if isinstance(reply, Missing):
        raise too_late()
    if not isinstance(reply, Found):
        raise read_failure(reply, span.name)
    return [job for _, block in decode_blocks(reply.body, span.length, span.name) for job in block.jobs]


def _run_patiently(driver: BlockingDriver, flow: Flow[R]) -> R:
    """Run a flow that stages or reads, for as long as a call may lose to a store that fails its requests."""
    return driver.run(patient(flow, driver.machine, limits.REQUEST_TIMEOUT_S))


class Stager:
    """Stages jobs for one shard, in order. Nobody sees them."""

    def __init__(self, driver: BlockingDriver, plan: BulkPlan, shard: int) -> None:
        self._driver = driver
        self._staging = StagerFlows(driver.machine, plan, shard)

    def keys(self, count: int) -> list[bytes]:
        """Keys for the next jobs, in order."""
        return self._staging.keys(count)

    def add(self, jobs: Sequence[JobSpec]) -> None:
        """Take jobs in. Their payloads are bytes; large ones are put into objects of their own."""
        _run_patiently(self._driver, self._staging.add(jobs))

    def finish(self) -> StagedJobs:
        """Write what is left; what to hand to ``attach``."""
        return _run_patiently(self._driver, self._staging.finish())


def without_deadlines(settings: QueueSettings) -> QueueSettings:
    """Settings but for start deadlines: staging may take a day, and nobody can have started a job before its end."""
    kinds = tuple(msgspec.structs.replace(each, start_within_ms=None) for each in settings.kinds)
    return msgspec.structs.replace(settings, start_within_ms=0, kinds=kinds)


class BulkWriter:
    """Bulks into one queue. Every method blocks; an object belongs to one thread.

    >>> from osqueue.core.job_ops import JobSpec
    >>> from osqueue.stores.memory import MemoryStore
    >>> bulks = BulkWriter(MemoryStore(), "emails")
    >>> plan = bulks.plan()
    >>> stager = bulks.stager(plan, shard=0)
    >>> stager.add([JobSpec(key, b"{}") for key in stager.keys(3)])
    >>> bulks.attach([stager.finish()], batch_id="monday").jobs
    3
    """

    def __init__(self, store: Store, queue: str, machine: Machine = MACHINE) -> None:
        counting = counted(store)
        limits_of_store = counting.clock_ms, counting.room_below, counting.swap_gap_s, counting.clock_tick_ms
        self._flows = BulkFlows(queue_name(queue), machine, *limits_of_store)
        self._driver = BlockingDriver(counting, machine)

    def plan(self) -> BulkPlan:
        """Look at the queue. A queue that is not there yet has one shard."""
        return _run_patiently(self._driver, self._flows.plan())

    def is_decided(self, batch_id: str) -> bool:
        """Has an earlier run decided what this batch is? Then there is nothing to stage: ``resume`` it."""
        return self._driver.run(self._flows.batches.read(batch_id_of(batch_id))) is not None

    def stager(self, plan: BulkPlan, shard: int) -> Stager:
        """Where one process stages what is to go to a shard."""
        return Stager(self._driver, plan, shard)

    def attach(self, staged: Sequence[StagedJobs], batch_id: str | None = None) -> BulkResult:
        """Make all that was staged visible, in one commit of each shard; in the order given, within each of its lanes.

        With a ``batch_id`` only the first of all runs under it does so; the others answer ``repeated``, and finish what
        a run before them left undone. Raises Throttled where the queue does not take it, with nothing visible unless
        the message says otherwise; Timeout, Unavailable or Unknown where it is not known what has become of it.
        """
        return self._driver.run(
            self._flows.attach(staged, None if batch_id is None else batch_id_of(batch_id))
        )

    def resume(self, batch_id: str) -> BulkResult:
        """Finish what an earlier run of a batch left undone, if anything. Raises as ``attach`` does."""
        return self._driver.run(self._flows.resume(batch_id_of(batch_id)))


def batch_id_of(value: Any) -> str:
    """A batch's id. Raises Rejected."""
    return text(value, "batch_id", limits.ID_CHARS_MAX, 1)


def _by_shard(staged: Sequence[StagedJobs]) -> list[tuple[int, list[AttachSpans]]]:
    """What was staged for each shard, by lane, each in the order given."""
    shards: dict[int, dict[tuple[int, str, bool], list[Span]]] = {}
    for each in staged:
        lanes = shards.setdefault(each.shard, {})
        for part in each.parts:
            lanes.setdefault((part.priority, part.kind, part.delayed), []).extend(part.spans)
    return [
        (
            shard,
            [
                AttachSpans(priority, kind, tuple(spans), late)
                for (priority, kind, late), spans in lanes.items()
            ],
        )
        for shard, lanes in sorted(shards.items())
        if lanes
    ]


def _nothing() -> State:
    return State(commit=bytes(16), epoch=0)
