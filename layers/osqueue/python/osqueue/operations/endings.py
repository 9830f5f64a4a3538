"""How attempts end: the ways there are, checked, and what a worker says of those that it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct

from .. import limits
from ..clock import Machine
from ..commit.effects import QueueFlow, Submit
from ..core.job_ops import (
    AbortJobs,
    CompleteJobs,
    Completion,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    LeaseBeat,
    LeaseRef,
    ReleaseJobs,
)
from ..core.ops import Code, Op
from ..core.pauses import lengthened, timed
from ..core.queue_ops import LengthenPauses
from ..core.state import COMPLETED
from ..errors import LeaseLost, OsqueueError, Rejected
from ..model import validation
from ..model.codecs import Codec
from ..model.job import Done
from ..model.keys import job_id, shard_of
from ..objects.lookup import seek_rows
from ..objects.staging import wipe_refused
from .waiting import WaitFlows

SCOPES = ("kind", "queue")  # of what a throttle lets nothing start
SPREAD_SECONDS_MAX = 5.0  # for which one tries to tell another shard of a pause
STALE_TRIES = 3  # times a result is staged again when the collector overtook it

_LOST = (Code.LEASE_LOST, Code.STALE)


class ReleasedJob(Struct, frozen=True):
    """A job given back by its worker; with a pause nothing like it starts for a while."""

    key: bytes
    token: str
    delay_ms: int = 0
    at_ms: int = 0
    pause_ms: int = 0
    whole: bool = False  # the pause is of the whole queue
    why: str = ""


class AbortedJob(Struct, frozen=True):
    """A job cancelled by its worker."""

    key: bytes
    token: str
    why: str


AttemptEnd = Completion | FailedAttempt | ReleasedJob | AbortedJob
Holding = tuple[bytes, str]  # key and token
ItemSender = Callable[[int, Sequence[Any]], QueueFlow[list[Code]]]  # of items of one shard


# ── The ways, as callers name them. All raise Rejected ───────────────────────
def failed(key: bytes, token: str, error: Any, retry_in: Any, retry: Any, jitter: float) -> FailedAttempt:
    """An attempt that failed, and is tried again in ``retry_in`` seconds; None: after the queue's back-off."""
    wait = -1
    if retry_in is not None:
        wait = validation.milliseconds(retry_in, "retry_in", 0, limits.DELAY_MS_MAX)
    told = validation.error_details(error)
    return FailedAttempt(key, token, told.text, wait, jitter, not retry, told.type, told.trace)


def released(key: bytes, token: str, delay: Any = 0, until: Any = None) -> ReleasedJob:
    """A job that is offered again at once, in ``delay`` seconds, or at a time."""
    wait = validation.milliseconds(delay, "delay", 0, limits.DELAY_MS_MAX)
    at = 0 if until is None else validation.moment_ms(until, "until", limits.AT_MS_MAX)
    if wait and until is not None:
        raise Rejected("until: a delay is given, too. Say one of them.", field="until")
    return ReleasedJob(key, token, wait, at)


def throttled(key: bytes, token: str, seconds: Any, scope: Any = "kind", why: Any = "") -> ReleasedJob:
    """A job that goes back, and for so many seconds nothing of its kind starts, or of the queue."""
    pause = validation.milliseconds(validation.seconds(seconds), "seconds", 1, limits.DELAY_MS_MAX)
    validation.word(scope, "scope", SCOPES)
    return ReleasedJob(key, token, 0, 0, pause, scope == "queue", validation.error_text(why, "why"))


def aborted(key: bytes, token: str, why: Any = "") -> AbortedJob:
    """A job that its worker cancels."""
    return AbortedJob(key, token, validation.error_text(why, "why"))


class EndingCalls(ABC):
    """What a worker says of its attempts: each call is ``end`` with endings of one kind. All raise Rejected."""

    machine: Machine
    codec: Codec

    @abstractmethod
    def end(self, items: Sequence[AttemptEnd]) -> QueueFlow[list[Done]]:
        """Say how attempts ended, in whatever ways; answers each one."""

    @abstractmethod
    def encode_result(self, value: Any) -> bytes | None:
        """A result as it is kept: None stays None, since a serialiser may make nothing of something else."""

    def completion(self, key: bytes, token: str, data: bytes | None) -> Completion:
        """A job that is done, with its result already serialised."""
        return (
            Completion(key, token) if data is None else Completion(key, token, data, self.codec.results.name)
        )

    def complete_many(self, items: Iterable[tuple[bytes, str, Any]]) -> QueueFlow[list[Done]]:
        """(key, token, result) each."""
        return self.complete_encoded([(key, token, self.encode_result(value)) for key, token, value in items])

    def complete_encoded(self, items: Iterable[tuple[bytes, str, bytes | None]]) -> QueueFlow[list[Done]]:
        """The same with results already serialised."""
        return self.end([self.completion(*each) for each in items])

    def fail_many(
        self, items: Iterable[tuple[bytes, str, Any]], retry_in: float | None = None, retry: bool = True
    ) -> QueueFlow[list[Done]]:
        """(key, token, error) each."""
        return self.end([failed(*each, retry_in, retry, self.machine.uniform()) for each in items])

    def release_many(
        self, items: Iterable[Holding], delay: float = 0, until: datetime | float | None = None
    ) -> QueueFlow[list[Done]]:
        """(key, token) each."""
        return self.end([released(*each, delay, until) for each in items])

    def throttle_many(
        self, items: Iterable[Holding], seconds: float, scope: str = "kind", why: str = ""
    ) -> QueueFlow[list[Done]]:
        """(key, token) each."""
        return self.end([throttled(*each, seconds, scope, why) for each in items])

    def abort_many(self, items: Iterable[Holding], why: str = "") -> QueueFlow[list[Done]]:
        """(key, token) each."""
        return self.end([aborted(*each, why) for each in items])


class EndingFlows(EndingCalls, WaitFlows):
    """The flows of those who hold leases."""

    def complete(self, key: bytes, token: str, value: Any) -> QueueFlow[bool]:
        """One job; answers whether its lease was still the newest."""
        data = self.encode_result(value)
        item = self.completion(key, token, data)
        if key[15] < limits.SHARDS_MAX and len(data or b"") <= limits.INLINE_BYTES_MAX:  # nothing to stage
            answer = yield Submit(key[15], (CompleteJobs((item,)),))
            if answer.outcomes[0].code not in _LOST:
                return True
            (won,) = yield from self._won_before(key[15], [item])
            return won
        (done,) = yield from self.end([item])
        return done.ok

    def encode_result(self, value: Any) -> bytes | None:
        return None if value is None else self.codec.results.encode(value, "result")

    def heartbeat_many(self, items: Sequence[LeaseBeat], lease: float | None = None) -> QueueFlow[list[Done]]:
        """Extend leases; one commit per shard."""
        length = 0 if lease is None else validation.lease_ms(lease)

        def extend(shard: int, held: Sequence[LeaseBeat]) -> QueueFlow[list[Code]]:
            answer = yield Submit(shard, (ExtendLeases(tuple(held), length),))
            codes: list[Code] = answer.outcomes[0].codes
            return codes

        return (yield from self._by_shard(items, extend))

    def end(self, items: Sequence[AttemptEnd]) -> QueueFlow[list[Done]]:
        """Say how attempts ended: all of a shard in one commit, up to 1,000 of them.

        What lets nothing start for a while is told to other shards as far as they can be told now.
        """
        done = yield from self._by_shard(items, self._end)
        yield from self._look_back(items, done)
        paused = {item.key[15] for item in items if isinstance(item, ReleasedJob) and item.pause_ms}
        yield from self._spread_pauses(paused)
        return done

    def _by_shard(self, items: Sequence[Any], send: ItemSender) -> QueueFlow[list[Done]]:
        """Send items to the shards of their keys, a request's worth at a time; the outcomes in order."""
        if len({item.key[15] for item in items}) == 1 and len(items) <= limits.ITEMS_PER_REQUEST_MAX:
            return (yield from self._heard(items[0].key[15], items, send))
        shards: dict[int, list[int]] = {}
        for at, item in enumerate(items):
            shards.setdefault(item.key[15], []).append(at)
        found: dict[int, Done] = {}
        for shard, places in shards.items():
            for start in range(0, len(places), limits.ITEMS_PER_REQUEST_MAX):
                chunk = places[start : start + limits.ITEMS_PER_REQUEST_MAX]
                done = yield from self._heard(shard, [items[at] for at in chunk], send)
                found.update(zip(chunk, done, strict=True))
        return [found[at] for at in range(len(items))]

    def _heard(self, shard: int, items: Sequence[Any], send: ItemSender) -> QueueFlow[list[Done]]:
        """What one shard answers of some items."""
        if shard >= limits.SHARDS_MAX:  # no queue drew such a key
            return [done_of(item.key, Code.LEASE_LOST) for item in items]
        codes = yield from send(shard, items)
        return [done_of(item.key, code) for item, code in zip(items, codes, strict=True)]

    def _end(self, shard: int, items: Sequence[AttemptEnd]) -> QueueFlow[list[Code]]:
        codes = yield from self._say(shard, items)
        for _ in range(STALE_TRIES - 1):
            if Code.STALE not in codes:
                break
            again = [at for at, code in enumerate(codes) if code == Code.STALE]
            anew = yield from self._say(shard, [items[at] for at in again])
            for at, code in zip(again, anew, strict=True):
                codes[at] = code
        return codes

    def _say(self, shard: int, items: Sequence[AttemptEnd]) -> QueueFlow[list[Code]]:
        """One commit, with an operation for those that are alike."""
        alike = _alike(items)
        ops: list[Op] = []
        for places in alike:
            op = yield from self._op(shard, [items[at] for at in places])
            ops.append(op)
        answer = yield Submit(shard, tuple(ops))
        codes = [Code.STALE] * len(items)
        for op, places, outcome in zip(ops, alike, answer.outcomes, strict=True):
            for at, code in zip(places, outcome.codes, strict=True):
                codes[at] = code
            yield from self._wipe_refused(shard, op, outcome.codes)
        return codes

    def _op(self, shard: int, items: Sequence[Any]) -> QueueFlow[Op]:
        """One operation for endings that are alike."""
        first: AttemptEnd = items[0]
        if isinstance(first, Completion):
            if any(len(item.result) > limits.INLINE_BYTES_MAX for item in items):
                stage = yield from self.stage(shard)
                placed = yield from stage.bodies([item.result for item in items])
                items = [Completion(i.key, i.token, r, i.codec) for i, r in zip(items, placed, strict=True)]
            return CompleteJobs(tuple(items))
        if isinstance(first, FailedAttempt):
            return FailJobs(tuple(items))
        held = tuple(LeaseRef(item.key, item.token) for item in items)
        if isinstance(first, AbortedJob):
            return AbortJobs(held, first.why)
        return ReleaseJobs(held, first.delay_ms, first.at_ms, first.pause_ms, first.whole, first.why)

    def _wipe_refused(self, shard: int, op: Op, codes: Sequence[Code]) -> QueueFlow[None]:
        """Let no result that was refused stay beside one that was accepted."""
        if isinstance(op, CompleteJobs) and Code.LEASE_LOST in codes:  # what is stale is so as a whole
            taken = [code == Code.OK for code in codes]
            staged = zip([item.result for item in op.items], taken, strict=True)
            yield from wipe_refused(self.writers[shard].root, staged)

    def _look_back(self, items: Sequence[Any], done: list[Done]) -> QueueFlow[None]:
        """Completions that lost their lease may repeat the one that won: these answer as it did.

        What was committed is told whatever happens here. Where nobody can tell just now, the answer is "stale": say
        it again. A call that has nothing else to tell raises the error.
        """
        late: dict[int, list[int]] = {}
        for at, each in enumerate(done):
            if isinstance(items[at], Completion) and each.code == "lease_lost":
                late.setdefault(shard_of(items[at].key), []).append(at)
        all_late = sum(map(len, late.values())) == len(done)
        for shard, places in late.items():
            for start in range(0, len(places), limits.ITEMS_PER_REQUEST_MAX):
                chunk = places[start : start + limits.ITEMS_PER_REQUEST_MAX]
                try:
                    won = yield from self._won_before(shard, [items[at] for at in chunk])
                except OsqueueError:
                    if all_late:
                        raise
                    codes = [Code.STALE] * len(chunk)
                else:
                    codes = [Code.OK if before else Code.LEASE_LOST for before in won]
                for at, code in zip(chunk, codes, strict=True):
                    done[at] = done_of(items[at].key, code)

    def _won_before(self, shard: int, items: Sequence[Completion]) -> QueueFlow[list[bool]]:
        """Which are repeats of the complete that won? Its row may have left the head, so the reducer cannot tell.

        One look at the shard tells of all of them.
        """
        if shard >= limits.SHARDS_MAX:  # no queue drew such a key
            return [False] * len(items)
        rows = yield from seek_rows(self.queue, shard, {item.key for item in items})
        return [
            (row := rows.get(item.key)) is not None and row.state == COMPLETED and row.token == item.token
            for item in items
        ]

    def _spread_pauses(self, shards: Iterable[int]) -> QueueFlow[None]:
        """Tell all shards of the pauses that some have just begun. Whoever cannot be told now goes on."""
        heads = [self.writers[shard].head for shard in shards if shard < limits.SHARDS_MAX]
        ends = {end for head in heads if head is not None for end in timed(head.state.settings)}
        count = 0
        if ends:
            with suppress(OsqueueError):
                count = self.shards_seen() or (yield from self.shards())
        for shard in range(count) if count > 1 else ():
            known = self.writers[shard].head
            if known is None or lengthened(known.state.settings, ends) != known.state.settings:
                with suppress(OsqueueError):
                    yield Submit(shard, (LengthenPauses(tuple(ends)),), SPREAD_SECONDS_MAX)


def _alike(items: Sequence[AttemptEnd]) -> list[Sequence[int]]:
    """The places of endings that go into one operation."""
    if set(map(type, items)) == {Completion}:
        return [range(len(items))]
    found: dict[tuple[object, ...], list[int]] = {}
    for at, item in enumerate(items):
        likeness: tuple[object, ...] = (type(item),)
        if isinstance(item, ReleasedJob):
            likeness += (item.delay_ms, item.at_ms, item.pause_ms, item.whole, item.why)
        elif isinstance(item, AbortedJob):
            likeness += (item.why,)
        found.setdefault(likeness, []).append(at)
    return list(found.values())


def done_of(key: bytes, code: Code) -> Done:
    """What a worker is told of one of its items."""
    text = job_id(key)
    if code is Code.OK:
        return Done(text, True)
    if code in _LOST:
        return Done(text, False, code.name.lower())
    if code == Code.CANCEL_REQUESTED:
        return Done(text, True, cancel_requested=True)
    return Done(text, True, code.name.lower())


def lease_lost(text: str) -> LeaseLost:
    """The error of a worker that came too late."""
    return LeaseLost(
        f"job {text}: this lease is not the newest one. It ended, or the job was finished or cancelled. Drop the work;"
        " use the job id as an idempotency key for outside effects."
    )
