"""Enqueueing from many processes at once, so that everything becomes visible in one commit of each shard, or nothing.

    plan      one process looks at the queue: what time it is, and when what is staged now was born
    stage     any number of processes write jobs as immutable segments, which nobody refers to yet
    attach    one process commits one request to each shard, which names all that was staged for it

What is staged and never attached is garbage; it is collected by its age, a day later. So long a bulk may take.

The request of a shard has its identity (``commit.protocol``) before it is first sent, so it can be sent again without
being applied again. A bulk with a ``batch_id`` writes its requests down first, under that id:

    batches/<queue>/<SHA-256 of the batch's id>

Of any number of runs with one id the first that creates the object decides what the batch is. The others, and whoever
finds a batch whose writer died halfway, send the very requests that stand there. Once all are committed the object
says so, and keeps saying it for as long as it is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from . import limits
from .clock import MACHINE, Machine
from .commit.driver import BlockingDriver
from .commit.effects import Flow, Sleep, together
from .commit.protocol import commit
from .commit.verdict import Verdict, outcomes_of, verdict
from .commit.writer import Head, Writer
from .core.draft import Context
from .core.ops import LOOK_AGAIN, Attach, AttachAll, Code, New, Op, Request
from .core.reduce import reduce
from .core.state import Span, State
from .core.wire import encode, frame, unframe
from .errors import Damaged, OsqueueError, Throttled, Timeout, Unavailable, Unknown
from .keys import KeySource, job_id
from .lookup import seek
from .shards import QueueFlow, read_state, register, root_of, unavailable
from .staging import Bulk, Stage
from .stores.base import (
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    Missing,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Reply,
    Store,
    Written,
)
from .stores.base import Request as Ask
from .stores.counting import CountingStore
from .validation import queue_name, text

FOLDER = "batches/"
ATTACH_SECONDS_MAX = 60.0  # how long one request may try
TRIES = 5  # of a request that brought no definite answer
PAUSE_SECONDS = 0.2  # before the second try, doubled for each further one
MAGIC = b"OSQM"


class Plan(Struct, frozen=True):
    """What everybody who stages has to know. It is made once, so what is staged does not depend on who does it when."""

    queue: str
    now_ms: int  # when all of its jobs are enqueued, by the store's clock; delays count from it
    born: tuple[int, ...]  # by shard: seq of the head that was seen


class Staged(Struct, frozen=True):
    """What one process staged for one shard."""

    shard: int
    jobs: int
    parts: tuple[Attach, ...]


class Attached(Struct, frozen=True):
    """What became of a bulk."""

    jobs: int  # how many the batch has
    repeated: bool = False  # it had been attached, or decided, by an earlier run with the same batch_id


class _Decided(Struct, frozen=True, array_like=True):
    """A batch, as it is written down."""

    batch_id: str
    jobs: int
    requests: tuple[tuple[int, Request], ...]  # by shard; none left: it is done


class _Known(Struct, frozen=True):
    """The same as it was read, and its version."""

    batch: _Decided
    version: str


_decode = msgspec.msgpack.Decoder(_Decided).decode


def place_of(queue: str, batch_id: str) -> str:
    """The key under which a batch is written down."""
    return f"{FOLDER}{queue}/{hashlib.sha256(batch_id.encode()).hexdigest()}"


class Stager:
    """Stages jobs for one shard, in order. Nobody sees them."""

    def __init__(self, driver: BlockingDriver, plan: Plan, shard: int) -> None:
        self._driver = driver
        self._shard = shard
        self._keys = KeySource(driver.machine)
        self._stage = Stage(root_of(plan.queue, shard), plan.born[shard], driver.machine)
        self._bulk = Bulk(self._stage, plan.now_ms)
        self._jobs = 0

    def keys(self, count: int) -> list[bytes]:
        """Keys for the next jobs, in order."""
        return self._keys.draw(self._shard, count)

    def add(self, jobs: Sequence[New]) -> None:
        """Take jobs in. Their payloads are bytes; large ones are put into objects of their own."""
        self._driver.run(self._add(jobs))
        self._jobs += len(jobs)

    def _add(self, jobs: Sequence[New]) -> Flow[None]:
        payloads: list[bytes] = [each.payload for each in jobs]  # type: ignore[misc]
        placed = yield from self._stage.bodies(payloads)
        yield from self._bulk.add(
            [
                job if content is job.payload else msgspec.structs.replace(job, payload=content)
                for job, content in zip(jobs, placed, strict=True)
            ]
        )

    def finish(self) -> Staged:
        """Write what is left; what to hand to ``attach``."""
        return Staged(self._shard, self._jobs, self._driver.run(self._bulk.attachments()))


class BulkWriter:
    """Bulks into one queue. Every method blocks; an object belongs to one thread.

    >>> from osqueue.core.ops import New
    >>> from osqueue.stores.memory import MemoryStore
    >>> bulks = BulkWriter(MemoryStore(), "emails")
    >>> plan = bulks.plan()
    >>> stager = bulks.stager(plan, shard=0)
    >>> stager.add([New(key, b"{}") for key in stager.keys(3)])
    >>> bulks.attach([stager.finish()], batch_id="monday").jobs
    3
    """

    def __init__(self, store: Store, queue: str, machine: Machine = MACHINE) -> None:
        self.queue = queue_name(queue)
        self.store = store if isinstance(store, CountingStore) else CountingStore(store)
        self.machine = machine
        self._driver = BlockingDriver(self.store, machine)

    # ── Before ───────────────────────────────────────────────────────────────
    def plan(self) -> Plan:
        """Look at the queue. A queue that is not there yet has one shard."""
        return self._driver.run(self._plan())

    def is_decided(self, batch_id: str) -> bool:
        """Has an earlier run decided what this batch is? Then there is nothing to stage: ``resume`` it."""
        return self._driver.run(self._read(batch_id_of(batch_id))) is not None

    def stager(self, plan: Plan, shard: int) -> Stager:
        """Where one process stages what is to go to a shard."""
        return Stager(self._driver, plan, shard)

    def _plan(self) -> QueueFlow[Plan]:
        first = yield from read_state(self.queue, 0)
        others = range(1, first.settings.shards if first is not None else 1)
        states = [first, *(yield from together([read_state(self.queue, shard) for shard in others]))]
        writer = self._writer(0)
        while writer.clock_is_due():
            yield from writer.measure_clock()
            if writer.clock_is_due() and writer.complaint is not None:
                raise writer.complaint
        now = max(writer.now_ms(state or _nothing(0)) for state in states)
        return Plan(self.queue, now, tuple(0 if state is None else state.seq for state in states))

    def _writer(self, shard: int) -> Writer:
        return self._as_usual(Writer, shard)

    def _as_usual(self, kind: type[Writer], shard: int) -> Writer:
        store = self.store
        root = root_of(self.queue, shard)
        made = kind(root, self.queue, self.machine, store.clock_ms, store.key_bytes_max)
        made.observed = False
        return made

    # ── Attaching ────────────────────────────────────────────────────────────
    def attach(self, staged: Sequence[Staged], batch_id: str | None = None) -> Attached:
        """Make all that was staged visible, in one commit of each shard; in the order given, within each of its lanes.

        With a ``batch_id`` only the first of all runs under it does so; the others answer ``repeated``, and finish what
        a run before them left undone. Raises Throttled where the queue does not take it, with nothing visible unless
        the message says otherwise; Timeout, Unavailable or Unknown where it is not known what has become of it.
        """
        if batch_id is not None:
            batch_id_of(batch_id)
        return self._driver.run(self._attach(staged, batch_id))

    def resume(self, batch_id: str) -> Attached:
        """Finish what an earlier run of a batch left undone, if anything. Raises as ``attach`` does."""
        return self._driver.run(self._resume(batch_id_of(batch_id)))

    def _resume(self, batch_id: str) -> QueueFlow[Attached]:
        known = yield from self._read(batch_id)
        if known is None:
            raise Throttled("batch_id: an earlier run under it has just been given up. Run the batch again.")
        yield from self._settle(known)
        return Attached(known.batch.jobs, repeated=True)

    def _attach(self, staged: Sequence[Staged], batch_id: str | None) -> QueueFlow[Attached]:
        if batch_id is not None:
            known = yield from self._read(batch_id)
            if known is not None:
                yield from self._settle(known)
                return Attached(known.batch.jobs, repeated=True)
        yield from self._register()
        requests = []
        for shard, op in _by_shard(staged):
            requests.append((shard, (yield from self._request(shard, op))))
        batch = _Decided(batch_id or "", sum(each.jobs for each in staged), tuple(requests))
        if batch_id is None:
            yield from self._settle(_Known(batch, ""))
            return Attached(batch.jobs)
        known = yield from self._decide(batch)
        yield from self._settle(known)
        return Attached(known.batch.jobs, repeated=known.batch != batch)

    def _register(self) -> QueueFlow[None]:
        reply = yield from _insist(register(self.queue))
        if not isinstance(reply, Written | Refused):
            raise unavailable(reply, "room for the queue's registration")

    def _request(self, shard: int, op: AttachAll) -> QueueFlow[Request]:
        """A request with an identity of its own; the head says beforehand whether it would be taken."""
        state = yield from read_state(self.queue, shard)
        if state is None:  # an identity belongs to a head: let there be one
            yield from commit(self._writer(shard), (LOOK_AGAIN,), self._deadline())
            state = yield from read_state(self.queue, shard)
            if state is None:
                raise Unavailable("the queue's head is not there any more. See docs/operations.md.")
        request = self._identified(state, (op,))
        tried = reduce(state, [request], Context(state.now_ms, bytes(16), 0, observed=False))
        answers = tried.outcomes.get(request.identity)
        if answers is not None and answers[0].code != Code.QUEUED:
            raise _refusal(shard, answers[0].code, op)
        return request

    def _identified(self, state: State, ops: tuple[Op, ...]) -> Request:
        """Operations under an identity that nobody else has."""
        bits = self.machine.bits
        return Request(f"{bits(64):016x}", 1, bits(64), state.seq, state.epoch, ops)

    def _decide(self, batch: _Decided) -> QueueFlow[_Known]:
        """Write a batch down, unless another run has."""
        place = place_of(self.queue, batch.batch_id)
        reply = yield from _insist(PutIfAbsent(place, frame(MAGIC, encode(batch))))
        if isinstance(reply, Written):
            return _Known(batch, reply.version)
        known = yield from self._read(batch.batch_id)  # another's, or ours with its answer lost
        if known is None:
            raise unavailable(reply, "room for the batch")
        return known

    def _read(self, batch_id: str) -> QueueFlow[_Known | None]:
        place = place_of(self.queue, batch_id)
        reply = yield from _insist(Get(place))
        if isinstance(reply, Missing):
            return None
        if not isinstance(reply, Found):
            raise unavailable(reply, "what is known of the batch")
        try:
            return _Known(_decode(unframe(MAGIC, reply.body, place)), reply.version)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{place} cannot be decoded: {error}") from error

    def _settle(self, known: _Known) -> QueueFlow[None]:
        """See to it that every request of a batch is committed, and say so."""
        batch = known.batch
        refused: list[tuple[int, Request, Code]] = []
        for shard, request in batch.requests:
            code = yield from self._commit(shard, request, batch)
            if code != Code.QUEUED:
                refused.append((shard, request, code))
        if refused:
            yield from self._refuse(known, refused)
        elif batch.batch_id and batch.requests:
            yield from self._rewrite(known, ())

    def _rewrite(self, known: _Known, left: Sequence[tuple[int, Request]]) -> QueueFlow[None]:
        """Write down which requests are left, unless another run has. Without an answer the next run finds out."""
        batch = known.batch
        data = frame(MAGIC, encode(_Decided(batch.batch_id, batch.jobs, tuple(left))))
        yield from _insist(PutIfMatch(place_of(self.queue, batch.batch_id), data, known.version))

    def _refuse(self, known: _Known, refused: Sequence[tuple[int, Request, Code]]) -> QueueFlow[None]:
        """The head takes what a batch brings to some shards no more: the precheck's answer was overtaken."""
        batch = known.batch
        shard, request, code = refused[0]
        error = _refusal(shard, code, request.ops[0])
        if len(refused) == len(batch.requests):
            if batch.batch_id:  # the next run begins anew
                yield DeleteIfMatch(place_of(self.queue, batch.batch_id), known.version)
            raise error
        whole = len(batch.requests)
        remedy = "what is there cannot be taken back, and a second run would add it again"
        if batch.batch_id:
            left = []
            for shard, request, _ in refused:  # the old identities are spent on a refusal
                state = yield from read_state(self.queue, shard)
                left.append((shard, self._identified(state or _nothing(request.epoch), request.ops)))
            yield from self._rewrite(known, left)
            remedy = "run it again with the same batch_id, which adds only what is missing"
        raise Throttled(
            f"{len(refused)} of {whole} shards did not take their part of the bulk, and the others have theirs:"
            f" {remedy}. ({error.message})"
        )

    def _commit(self, shard: int, request: Request, batch: _Decided) -> QueueFlow[Code]:
        """Send a request until it is known what became of it."""
        for last in range(1, TRIES + 1):
            writer = self._as_usual(_FixedWriter, shard)
            assert isinstance(writer, _FixedWriter)
            writer.fix(request)
            try:
                answer = yield from commit(writer, request.ops, self._deadline())
                return answer.outcomes[0].code
            except _SpokenBefore:
                return (yield from self._look(shard, request, batch))
            except (Timeout, Unavailable, Throttled) as error:
                if last == TRIES:
                    raise _unsettled(error, batch) from error
            yield Sleep(PAUSE_SECONDS * 2 ** (last - 1))
        raise AssertionError("unreachable")

    def _look(self, shard: int, request: Request, batch: _Decided) -> QueueFlow[Code]:
        """What became of a request that was sent before, by this process or another one."""
        state = yield from read_state(self.queue, shard)
        if state is not None and verdict(state, request) is Verdict.APPLIED:
            return outcomes_of(state, request)[0].code
        first = _spans(request)[0].first  # the writer's row is forgotten: its jobs may be there all the same
        _, sighting = yield from seek(self.queue, shard, first)
        if sighting is not None:
            return Code.QUEUED
        raise Unknown(
            f"batch_id: nobody can tell any more whether shard {shard} has got its part of {batch.batch_id!r}: the run"
            f" that was about to attach it did not come back for too long. Look in the archive for job"
            f" {job_id(first)}. If it is there, so is that part. If not, delete the object"
            f" {place_of(self.queue, batch.batch_id)} and run the batch again."
        )

    def _deadline(self) -> float:
        return self.machine.monotonic() + ATTACH_SECONDS_MAX


def _insist(request: Ask) -> Flow[Reply]:
    """Ask until there is a definite answer, a few times."""
    reply = yield request
    for tried in range(TRIES - 1):
        if not isinstance(reply, Failed) or reply.error.permanent:
            break
        yield Sleep(PAUSE_SECONDS * 2**tried)
        reply = yield request
    return reply  # type: ignore[no-any-return]


class _SpokenBefore(Exception):
    """The protocol would begin again under another identity, which must not be."""


class _FixedWriter(Writer):
    """A writer with one request, whose identity is fixed: it speaks with the voice of whoever fixed it."""

    _request: Request | None = None

    def fix(self, request: Request) -> None:
        """This is what it will say."""
        self._request = request

    def identify(self, ops: Any, state: State) -> Request:
        """The same identity, once."""
        request, self._request = self._request, None
        if request is None:
            raise _SpokenBefore
        self.env = request.env
        return request

    def redraw(self) -> None:
        """It cannot become another."""
        raise _SpokenBefore

    def check_process(self) -> None:
        """It does not live long enough for a fork."""

    def see(self, reply: Any, began: float) -> Head | None:
        """A head that is not there any more is made by nobody's old request."""
        if isinstance(reply, Missing):
            raise _SpokenBefore
        return super().see(reply, began)


def batch_id_of(value: Any) -> str:
    """A batch's id. Raises Rejected."""
    return text(value, "batch_id", limits.ID_CHARS_MAX, 1)


def _by_shard(staged: Sequence[Staged]) -> list[tuple[int, AttachAll]]:
    """One operation for each shard: what was staged for it, by lane, each in the order given."""
    shards: dict[int, dict[tuple[int, str, bool], list[Span]]] = {}
    for each in staged:
        lanes = shards.setdefault(each.shard, {})
        for part in each.parts:
            lanes.setdefault((part.priority, part.kind, part.delayed), []).extend(part.spans)
    return [
        (
            shard,
            AttachAll(
                tuple(
                    Attach(priority, kind, tuple(spans), delayed)
                    for (priority, kind, delayed), spans in lanes.items()
                )
            ),
        )
        for shard, lanes in sorted(shards.items())
        if lanes
    ]


def _spans(request: Request) -> list[Span]:
    (op,) = request.ops
    assert isinstance(op, AttachAll)
    return [span for part in op.parts for span in part.spans]


def _nothing(epoch: int) -> State:
    return State(commit=bytes(16), epoch=epoch)


def _refusal(shard: int, code: Code, op: Any) -> OsqueueError:
    if code == Code.LANES:
        return Throttled(
            f"kind: shard {shard} would have jobs of more than {limits.LANES_MAX} different (priority, kind) pairs"
            " waiting. Use fewer kinds, or wait until some of them are empty."
        )
    if code == Code.DELAYED_LIMIT:
        runs = sum(len(part.spans) for part in op.parts if part.delayed)
        return Throttled(
            f"delay: the bulk has {runs} segments of delayed jobs for shard {shard}, which has no room for so many."
            " Stage them in fewer processes, each of which makes one at least; or add shards."
        )
    return Throttled(
        "the bulk took longer than a day between its plan and its attachment, so the collector may have been at it."
        " Run it again, in smaller bulks."
    )


def _unsettled(error: OsqueueError, batch: _Decided) -> OsqueueError:
    hint = (
        "Run it again with the same batch_id, which adds nothing twice."
        if batch.batch_id
        else "Look at the queue before you run it again: it has no batch_id, so a second run adds it again."
    )
    return type(error)(f"{error.message} The bulk may or may not be in the queue. {hint}")
