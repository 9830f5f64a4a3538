"""What a bulk is, written down before any of it is visible: any number of runs make it once, and each can finish it.

    batches/<queue>/<SHA-256 of the batch's id>

holds the requests of a batch, one for each shard, each with an identity of its own (``commit.protocol``). Of any number
of runs with one id the first that creates the object decides what the batch is. The others, and whoever finds a batch
whose writer died halfway, send the very requests that stand there, which their shards apply once. Once all are
committed the object says so: from then on it is the batch's receipt, for ``KEPT_MS``.

A request that a shard has no room for is refused by a commit as well (``core.reduce``), so all who send it hear the
same, whenever they do. Only then is the object removed, or written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from .. import limits
from ..clock import Machine
from ..commit.effects import Flow, QueueFlow
from ..commit.protocol import commit
from ..commit.request_status import RequestStatus, outcomes_of, status_of_request
from ..commit.retry import NEEDED, ask, ask_all, retried
from ..commit.steps import RequestRefused
from ..commit.writer import ShardWriter
from ..core.encoding import born_of, encode, frame, unframe
from ..core.job_ops import AttachBulk
from ..core.ops import Code, Op, Request
from ..core.reduce import applicable
from ..core.state import Span, State
from ..core.turns import SLICES, turn_of
from ..errors import Damaged, NewerFormat, OsqueueError, Throttled, Timeout, Unavailable, Unknown
from ..model.keys import job_id
from ..objects.layout import read_state, unavailable
from ..objects.lookup import seek
from ..stores.base import (
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Missing,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Written,
)

FOLDER = "batches/"
KEPT_MS = 30 * limits.DAY_MS  # how long a batch is known after it was last written
ATTACH_SECONDS_MAX = 60.0  # how long one request may try
MAGIC = b"OSQM"


class BulkReceipt(Struct, frozen=True, array_like=True):
    """A batch, as it is written down."""

    batch_id: str  # "": it has none, and is not written down
    jobs: int
    shards: int  # how many it has parts for
    requests: tuple[
        tuple[int, Request], ...
    ]  # by shard, of those that may lack their part; none left: it is done


class StoredReceipt(Struct, frozen=True):
    """The same as it was read, and its version."""

    batch: BulkReceipt
    version: str


_decode = msgspec.msgpack.Decoder(BulkReceipt).decode


def receipt_key(queue: str, batch_id: str) -> str:
    """The key under which a batch is written down."""
    return f"{FOLDER}{queue}/{hashlib.sha256(batch_id.encode()).hexdigest()}"


def identified(machine: Machine, state: State, ops: tuple[Op, ...]) -> Request:
    """Operations under an identity that nobody else has."""
    bits = machine.bits
    return Request(f"{bits(64):016x}", 1, bits(64), state.seq, state.epoch, ops)


class BulkReceipts:
    """The batches of one queue."""

    def __init__(
        self, queue: str, machine: Machine, writer_of: Callable[[type[ShardWriter], int], ShardWriter]
    ) -> None:
        self.queue = queue
        self.machine = machine
        self._writer_of = writer_of

    # ── Written down ─────────────────────────────────────────────────────────
    def read(self, batch_id: str) -> Flow[StoredReceipt | None]:
        """What is known of a batch, also after a power cut."""
        place = receipt_key(self.queue, batch_id)
        reply = yield from ask(Get(place, flushed=True), NEEDED)
        if isinstance(reply, Missing):
            return None
        if not isinstance(reply, Found):
            raise unavailable(reply, "what is known of the batch")
        return StoredReceipt(_decoded(reply.body, place), reply.version)

    def decide(self, batch: BulkReceipt) -> Flow[StoredReceipt]:
        """Write a batch down, unless another run has: what it is from now on."""
        place = receipt_key(self.queue, batch.batch_id)
        reply = yield from ask(PutIfAbsent(place, frame(MAGIC, encode(batch))), NEEDED)
        if isinstance(reply, Written):
            return StoredReceipt(batch, reply.version)
        known = yield from self.read(batch.batch_id)  # another's, or ours with its answer lost
        if known is None:
            raise unavailable(reply, "room for the batch")
        return known

    def _rewrite(self, known: StoredReceipt, left: Sequence[tuple[int, Request]]) -> Flow[None]:
        """Write down which requests are left, unless another run has. Without an answer the next run finds out."""
        batch = known.batch
        data = frame(MAGIC, encode(BulkReceipt(batch.batch_id, batch.jobs, batch.shards, tuple(left))))
        yield from ask(PutIfMatch(receipt_key(self.queue, batch.batch_id), data, known.version), NEEDED)

    # ── Committed ────────────────────────────────────────────────────────────
    def settle(self, known: StoredReceipt) -> QueueFlow[None]:
        """See to it that every request of a batch is committed, and say so."""
        batch = known.batch
        refused: list[tuple[int, Request, Code]] = []
        unknown: Unknown | None = None
        for shard, request in batch.requests:
            try:
                code = yield from self._commit(shard, request, batch)
            except Unknown as error:  # the other shards can get their parts all the same
                unknown = unknown or error
                continue
            if code != Code.QUEUED:
                refused.append((shard, request, code))
        if unknown is not None:
            raise unknown
        if refused:
            yield from self._refuse(known, refused)
        elif batch.batch_id and batch.requests:
            yield from self._rewrite(known, ())

    def _refuse(self, known: StoredReceipt, refused: Sequence[tuple[int, Request, Code]]) -> QueueFlow[None]:
        """Some shards did not take their parts: what they told the run that decided was overtaken by others."""
        batch = known.batch
        shard, request, code = refused[0]
        error = refusal(shard, code, request.ops[0])
        if len(refused) == batch.shards:
            if batch.batch_id:  # the next run starts from the beginning
                yield from ask(DeleteIfMatch(receipt_key(self.queue, batch.batch_id), known.version), NEEDED)
            raise error
        remedy = "what is there cannot be taken back, and a second run would add it again"
        if batch.batch_id:
            left = []
            for at, request, _ in refused:  # the old identities are spent on a refusal
                state = yield from read_state(self.queue, at)
                head = state or State(commit=bytes(16), epoch=request.epoch)
                left.append((at, identified(self.machine, head, request.ops)))
            yield from self._rewrite(known, left)
            remedy = "run it again with the same batch_id, which adds only what is missing"
        if stale := [str(at) for at, _, code in refused if code == Code.STALE]:
            gone = f"what was staged for {', '.join(stale)} is gone"
            remedy = f"{gone}, so write those rows again, under another batch_id"
        raise Throttled(
            f"{len(refused)} of {batch.shards} shards did not take their part of the bulk, and the others have theirs:"
            f" {remedy}. ({error.message})"
        )

    def _commit(self, shard: int, request: Request, batch: BulkReceipt) -> QueueFlow[Code]:
        """Send a request until it is known what became of it."""
        try:
            code = yield from retried(lambda: self._attempt(shard, request), NEEDED)
        except (Timeout, Unavailable, Throttled) as error:
            raise _unsettled(error, batch) from error
        return (yield from self._look(shard, request, batch)) if code is None else code

    def _attempt(self, shard: int, request: Request) -> QueueFlow[Code | None]:
        """Send a request once; None: it was sent before."""
        writer = self._writer_of(_FixedWriter, shard)
        assert isinstance(writer, _FixedWriter)
        writer.fix(request)
        try:
            answer = yield from commit(writer, request.ops, self.machine.monotonic() + ATTACH_SECONDS_MAX)
        except _SpokenBefore:
            return None
        except RequestRefused:
            return Code.CROWDED
        return answer.outcomes[0].code

    def _look(self, shard: int, request: Request, batch: BulkReceipt) -> QueueFlow[Code]:
        """What became of a request that was sent before, by this process or another one."""
        state = yield from read_state(self.queue, shard)
        fate = RequestStatus.UNKNOWN if state is None else status_of_request(state, request)
        if state is not None and fate is RequestStatus.APPLIED:
            return outcomes_of(state, request)[0].code
        if fate is RequestStatus.TURNED_AWAY:
            return Code.CROWDED
        first = _spans(request)[0].first  # the writer's row is forgotten: its jobs may be there all the same
        _, location = yield from seek(self.queue, shard, first)
        if location is not None:
            return Code.QUEUED
        what, remedy = "of the bulk", "If not, run the bulk again."
        if batch.batch_id:
            what = f"of {batch.batch_id!r}"
            remedy = f"If not, delete the object {receipt_key(self.queue, batch.batch_id)} and run the batch again."
        if batch.shards > 1:
            remedy = f"If not, write the rows of shard {shard} again, under another batch_id; others have their parts."
        raise Unknown(
            f"batch_id: nobody can tell any more whether shard {shard} has got its part {what}: the run that was about"
            f" to attach it did not come back for too long. Look in the archive for job {job_id(first)}. If it is"
            f" there, so is that part. {remedy}"
        )


class _SpokenBefore(Exception):
    """The protocol would begin again under another identity, which must not be."""


class _FixedWriter(ShardWriter):
    """A writer with one request, whose identity is fixed: it speaks with the voice of whoever fixed it.

    Where the head is gone it makes none: the request belongs to the epoch of the old one, so it changes nothing.
    """

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


def _spans(request: Request) -> list[Span]:
    (op,) = request.ops
    assert isinstance(op, AttachBulk)
    return [span for part in op.parts for span in part.spans]


def refusal(shard: int, code: Code, op: Any) -> OsqueueError:
    """Why a shard does not take its part of a bulk."""
    if code == Code.DELAYED_LIMIT:
        runs = sum(len(part.spans) for part in op.parts if part.delayed)
        return Throttled(
            f"delay: the bulk has {runs} segments of delayed jobs for shard {shard}, which has no room for so many."
            " Add shards, or wait until some of its delayed jobs are due."
        )
    if code == Code.CROWDED:
        return Throttled(
            f"too many writers are active on shard {shard}. Run the bulk again later, or add shards."
        )
    return too_late()


def too_late() -> OsqueueError:
    """The collector's horizon has passed what was staged."""
    return Throttled(
        "the bulk took longer than a day between its plan and its attachment, so the collector may have been at it."
        " Run it again, in smaller bulks."
    )


def _unsettled(error: OsqueueError, batch: BulkReceipt) -> OsqueueError:
    hint = (
        "Run it again with the same batch_id, which adds nothing twice."
        if batch.batch_id
        else "Look at the queue before you run it again: it has no batch_id, so a second run adds it again."
    )
    return type(error)(f"{error.message} The bulk may or may not be in the queue. {hint}")


# ── Forgotten ────────────────────────────────────────────────────────────────
LOOKED_AT_MAX = 1_000  # batches of a slice


def forget(queue: str, now_ms: int) -> QueueFlow[int]:
    """Remove batches that were last written ``KEPT_MS`` ago, unless some of it may still come in; answers how many.

    It looks at those whose turn it is in this hour, and at no more than ``LOOKED_AT_MAX`` of them: each day at those
    after another point.
    """
    turn, day = turn_of(now_ms), now_ms // limits.DAY_MS
    low, high = ((at << 256) // SLICES for at in (turn, turn + 1))
    folder = f"{FOLDER}{queue}/"
    last = f"{folder}{high - 1:064x}"
    listed = yield from _page(folder, low)
    if listed.more and listed.keys[-1] < last:
        listed = yield from _page(folder, low + (high - low) * (day * 37 % 64) // 64)
    places = [key for key in listed.keys if key <= last]
    found = yield from ask_all([Get(place, start=0, length=1) for place in places], NEEDED)
    old = []
    for place, reply in zip(places, found, strict=True):
        if isinstance(reply, Failed):
            raise unavailable(reply, "what is known of a batch")
        if isinstance(reply, Found) and reply.modified_ms <= now_ms - KEPT_MS:
            old.append((place, reply.version))
    gone = 0
    for place, version in old:
        if (yield from _may_join(queue, place)):
            continue
        reply = yield from ask(DeleteIfMatch(place, version), NEEDED)
        if not isinstance(reply, Deleted | Refused):
            raise unavailable(reply, "leave to remove a batch")
        gone += isinstance(reply, Deleted)
    return gone


def _may_join(queue: str, place: str) -> QueueFlow[bool]:
    """Would a shard still take its part of a batch? Its run may stand still, and send it however late.

    No shard does once the collector has passed what was staged. A queue in which nothing happens keeps the batch.
    """
    reply = yield from ask(Get(place), NEEDED)
    if not isinstance(reply, Found):
        return isinstance(reply, Failed)
    try:
        batch = _decoded(reply.body, place)
    except Damaged:
        return False  # nobody can send what it told
    except NewerFormat:
        return True
    for shard, request in batch.requests:
        state = yield from read_state(queue, shard)
        if state is None or not applicable(state, request):
            continue
        if all(born_of(span.name) >= state.gc_floor for span in _spans(request)):
            return True
    return False


def _decoded(body: bytes, place: str) -> BulkReceipt:
    try:
        return _decode(unframe(MAGIC, body, place))
    except msgspec.MsgspecError as error:
        raise Damaged(f"{place} cannot be decoded: {error}") from error


def _page(folder: str, first: int) -> Flow[Listed]:
    listed = yield List(
        folder, after=f"{folder}{first:064x}"[:-1], limit=LOOKED_AT_MAX
    )  # sorts just before it
    if not isinstance(listed, Listed):
        raise unavailable(listed, "the list of batches")
    return listed
