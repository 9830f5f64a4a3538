"""Claim, and what a worker says of the jobs it holds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..commit.effects import QueueFlow, Submit
from ..core.groups import are_stopped
from ..core.job_ops import (
    AbortJobs,
    ClaimJobs,
    CompleteJobs,
    Completion,
    ExtendLeases,
    FailedAttempt,
    FailJobs,
    LeaseBeat,
    LeaseRef,
    ReleaseJobs,
)
from ..core.ops import Code, Op, Outcome
from ..core.pauses import lengthened, timed
from ..core.queue_ops import LengthenPauses
from ..core.rows import BodyRef
from ..core.state import COMPLETED, LeaseRecord
from ..errors import Damaged, LeaseLost, OsqueueError, Rejected, shown
from ..model import validation
from ..model.codecs import Codec
from ..model.job import Done
from ..model.keys import job_id, shard_of
from ..objects.lookup import seek_rows
from ..objects.segments import read_bodies
from ..objects.staging import wipe_refused
from .head_board import NEVER, NEVER_BEFORE
from .waiting import WaitFlows

if TYPE_CHECKING:
    from .lending import Borrower

CLOSED_SECONDS_MAX = 60.0  # for which one who waits believes that a queue is closed: a limit may be lifted
SCOPES = ("kind", "queue")  # of what a throttle lets nothing start
SPREAD_SECONDS_MAX = 5.0  # for which one tries to tell another shard of a pause
STALE_TRIES = 3  # times a result is staged again when the collector overtook it

_LOST = (Code.LEASE_LOST, Code.STALE)

OpFactory = Callable[[int, Sequence[Any]], QueueFlow[Op]]


class GrantedLease(Struct, frozen=True):
    """A leased job with its payload at hand."""

    lease: LeaseRecord
    payload: bytes | OsqueueError  # or why it cannot be read
    sent_at: (
        float  # monotonic seconds when the claim was sent; the lease ends no earlier than its length after
    )
    input: bytes | OsqueueError | None = None  # what its job was given beside the payload

    def input_by(self, codec: Codec, payload: Any) -> Any:
        """What the job before answered, or what is told of a batch; of any other job None. Raises what reading it did.

        Where the job has no payload of its own, that is its payload.
        """
        links = self.lease.job.links
        if links is None or not links.parent:
            return None
        if self.input is None:
            return payload
        if isinstance(self.input, OsqueueError):
            raise self.input
        return codec.decode(self.input, links.input_codec, field="input")


def with_contents(
    leases: Sequence[LeaseRecord], read: Iterable[bytes | OsqueueError], asked: float
) -> tuple[GrantedLease, ...]:
    """Leases with what their jobs were given to work on, which was read in order."""
    each = iter(read)
    return tuple(
        [
            GrantedLease(lease, next(each), asked, next(each) if len(lease.job.contents) > 1 else None)
            for lease in leases
        ]
    )


class ClaimResult(Struct, frozen=True):
    """The answer to a claim."""

    leases: tuple[GrantedLease, ...]
    reason: str | None = None  # why it is empty
    retry_after: float | None = None  # seconds until time alone lets something start, where it is known
    scope: str | None = (
        None  # what is closed: "queue"; "kind", others may start; "group": all that wait are of groups to be resumed
    )
    by_limiter: bool = False  # its limiter gave no slot: no head tells when it will


NOTHING = ClaimResult((), "empty")
UNREADABLE_TEXT = (
    "the next jobs lie in an object that is missing, damaged or of a newer format. Other operations go on. See"
    " docs/operations.md."
)
LIMITED = (Code.NO_SLOTS, Code.RATE_LIMITED)  # by slots of a limiter, perhaps
STOPPED = "stopped"  # all that wait are of groups that somebody has to resume
REASONS: dict[Code | str, tuple[str, str | None]] = {  # why a claim is empty, and what is closed
    Code.PAUSED: ("paused", "queue"),
    Code.KINDS_PAUSED: ("paused", "kind"),
    Code.RATE_LIMITED: ("rate_limited", "queue"),
    Code.NO_SLOTS: ("rate_limited", "queue"),
    Code.KINDS_RATE_LIMITED: ("rate_limited", "kind"),
    Code.RUNNING_LIMIT: ("running_limit", None),
    Code.IN_FLIGHT_LIMIT: ("in_flight_limit", None),
    Code.GROUPS_CLOSED: ("groups_closed", None),
    STOPPED: ("groups_closed", "group"),
    Code.GROUP_LIMIT: ("group_limit", None),
}


def release_times(delay: Any, until: Any) -> tuple[int, int]:
    """When a job that is given back is offered again: so many ms from now, or at a time. Raises Rejected."""
    wait = validation.milliseconds(delay, "delay", 0, limits.DELAY_MS_MAX)
    at = 0 if until is None else validation.moment_ms(until, "until", limits.AT_MS_MAX)
    if wait and until is not None:
        raise Rejected("until: a delay is given, too. Say one of them.", field="until")
    return wait, at


def throttle_of(seconds: Any, scope: Any, why: Any) -> tuple[int, bool, str]:
    """For how many ms what does not start, the whole queue or a kind, and why. Raises Rejected."""
    pause = validation.milliseconds(validation.seconds(seconds), "seconds", 1, limits.DELAY_MS_MAX)
    if scope not in SCOPES:
        raise Rejected(f"scope: {shown(scope)} is neither 'kind' nor 'queue'.", field="scope")
    return pause, scope == "queue", validation.error_text(why)


def closed_until(claimed: ClaimResult, now: float) -> float:
    """Until when, monotonic seconds, one who waits need not ask: no job of the queue starts before."""
    if claimed.reason != "rate_limited" or claimed.scope != "queue" or claimed.retry_after is None:
        return NEVER_BEFORE
    return now + min(claimed.retry_after, CLOSED_SECONDS_MAX)


def again_at(claimed: ClaimResult, now: float) -> float:
    """When, monotonic seconds, one who waits asks again although no head has told of anything."""
    if not claimed.by_limiter or claimed.retry_after is None:
        return NEVER
    return now + min(claimed.retry_after, CLOSED_SECONDS_MAX)


def why_empty(answers: Sequence[tuple[Code | str, int]]) -> ClaimResult:
    """The answer of a claim that found nothing: by the last run of each shard's outcome."""
    closed = [(*REASONS[code], wait_ms) for code, wait_ms in answers if code in REASONS]
    if not closed:
        return NOTHING
    closed.sort(key=lambda each: each[1] != "group")  # what opens by itself tells more than what does not
    reason, scope, _ = closed[-1]
    waits = [wait_ms for _, _, wait_ms in closed if wait_ms]
    refused = any(code == Code.NO_SLOTS and wait_ms for code, wait_ms in answers)  # then none start elsewhere
    all_closed = refused or len(closed) == len(answers)
    if scope == "queue" and not (all_closed and all(each == "queue" for _, each, _ in closed)):
        scope = "kind"  # jobs that come may start elsewhere
    return ClaimResult((), reason, min(waits) / 1000 if waits else None, scope, refused)


class ClaimFlows(WaitFlows):
    """The flows of workers."""

    def claim(
        self,
        limit: int = 1,
        worker: str | None = None,
        wait: float = 0,
        lease: float = limits.LEASE_MS_DEFAULT / 1000,
        kinds: Iterable[str] | None = None,
    ) -> QueueFlow[ClaimResult]:
        """Lease jobs, waiting up to ``wait`` seconds for the first."""
        name = self.machine.name() if worker is None else worker
        op, wait_s = _asked(limit, name, lease, wait, None if kinds is None else validation.kinds(kinds))
        if not wait_s:
            return (yield from self._claim(op))
        until = self.machine.monotonic() + wait_s
        waiter = self.work_waiter(op.kinds)
        while True:
            idle = self.known_idle(waiter)
            claimed = NOTHING if idle else (yield from self._claim(op))
            left = until - self.machine.monotonic()
            if claimed.leases or left <= 0 or self.closing:
                return claimed
            now = self.machine.monotonic()
            waiter.closed_until, waiter.again_at = closed_until(claimed, now), again_at(claimed, now)
            yield from self.rest(waiter, left)

    def _claim(self, op: ClaimJobs) -> QueueFlow[ClaimResult]:
        count = self.shards_seen() or (yield from self.shards())
        first = int(self.machine.uniform() * count) if count > 1 else 0
        answers: list[tuple[Code | str, int]] = []
        damaged = False
        borrower: Borrower | None = None
        for at in range(count):
            shard = (first + at) % count
            asked = self.machine.monotonic()
            outcome = yield from self.claim_in(shard, op)
            if outcome.code in LIMITED and self.limiter_of(shard):
                if borrower is None:
                    from .lending import Borrower  # few queues have a limiter

                    borrower = Borrower(self.queue, self.writers, self.claim_in)
                outcome = yield from borrower.claim(shard, op, outcome)
            if outcome.leases:
                for each in range(count):
                    self.board(each).active = asked
                return ClaimResult((yield from self.granted(shard, outcome.leases, asked)))
            if outcome.code == Code.UNREADABLE:
                damaged = True  # the other shards may have work that can be read
            head = self.writers[shard].head
            closed = outcome.code == Code.GROUPS_CLOSED and not outcome.count
            stopped = closed and head is not None and are_stopped(head.state)
            answers.append((STOPPED if stopped else outcome.code, outcome.count))
        if damaged:
            raise Damaged(UNREADABLE_TEXT)
        return why_empty(answers)

    def claim_in(self, shard: int, op: ClaimJobs) -> QueueFlow[Outcome]:
        """Claim in one shard. Slots are deposited once, however often it takes."""
        answer = yield Submit(shard, (op,))
        while _is_unfinished(op, answer.outcomes[0]):
            answer = yield Submit(shard, (replace(op, lent=None),))
        outcome: Outcome = answer.outcomes[0]
        return outcome

    def limiter_of(self, shard: int) -> str:
        """The queue's limiter, by the head that has just answered; "" where there is none."""
        head = self.writers[shard].head
        return "" if head is None else head.state.settings.limiter

    def granted(
        self, shard: int, leases: Sequence[LeaseRecord], asked: float
    ) -> QueueFlow[tuple[GrantedLease, ...]]:
        """Leases with what their jobs were given to work on."""
        links = [lease.job.links for lease in leases]
        contents: list[Any] = [lease.job.payload for lease in leases]
        if any(links):
            contents = [each for lease in leases for each in lease.job.contents]
        if BodyRef in map(type, contents):
            contents = yield from read_bodies(self.writers[shard].root, contents)
        if any(links):
            return with_contents(leases, contents, asked)
        given = zip(leases, contents, strict=True)
        return tuple([GrantedLease(lease, payload, asked) for lease, payload in given])

    # ── What a worker says ───────────────────────────────────────────────────
    def complete(self, key: bytes, token: str, value: Any) -> QueueFlow[bool]:
        """One job; answers whether its lease was still the newest."""
        data = self.encode_result(value)
        if key[15] < limits.SHARDS_MAX and len(data or b"") <= limits.INLINE_BYTES_MAX:  # nothing to stage
            item = self._completion(key, token, data)
            answer = yield Submit(key[15], (CompleteJobs((item,)),))
            if answer.outcomes[0].code not in _LOST:
                return True
            (won,) = yield from self._won_before(key[15], [item])
            return won
        (done,) = yield from self.complete_encoded([(key, token, data)])
        return done.ok

    def complete_many(self, items: Sequence[tuple[bytes, str, Any]]) -> QueueFlow[list[Done]]:
        """(key, token, result) each; one commit per shard. Raises Rejected for a result that cannot be serialised."""
        return self.complete_encoded([(key, token, self.encode_result(value)) for key, token, value in items])

    def encode_result(self, value: Any) -> bytes | None:
        """A result as stored: None stays None, since a serialiser may make nothing of something else."""
        return None if value is None else self.codec.results.encode(value, "result")

    def _completion(self, key: bytes, token: str, data: bytes | None) -> Completion:
        return (
            Completion(key, token) if data is None else Completion(key, token, data, self.codec.results.name)
        )

    def complete_encoded(self, items: Sequence[tuple[bytes, str, bytes | None]]) -> QueueFlow[list[Done]]:
        """The same with results already serialised."""
        found = [self._completion(key, token, data) for key, token, data in items]
        done = yield from self._held(found, self._complete_ops)
        yield from self.look_back(found, done)
        return done

    def look_back(self, items: Sequence[Any], done: list[Done]) -> QueueFlow[None]:
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

    def _complete_ops(self, shard: int, items: Sequence[Any]) -> QueueFlow[Op]:
        if any(len(item.result) > limits.INLINE_BYTES_MAX for item in items):
            stage = yield from self.stage(shard)
            placed = yield from stage.bodies([item.result for item in items])
            items = [Completion(i.key, i.token, r, i.codec) for i, r in zip(items, placed, strict=True)]
        return CompleteJobs(tuple(items))

    def heartbeat_many(self, items: Sequence[LeaseBeat], lease: float | None = None) -> QueueFlow[list[Done]]:
        """Extend leases; one commit per shard."""
        length = 0 if lease is None else validation.lease_ms(lease)
        return (yield from self._held(items, lambda _, held: _op(ExtendLeases(tuple(held), length))))

    def fail_many(
        self, items: Sequence[tuple[bytes, str, Any]], retry_in: float | None = None, retry: bool = True
    ) -> QueueFlow[list[Done]]:
        """(key, token, error) each; one commit per shard."""
        wait = (
            -1 if retry_in is None else validation.milliseconds(retry_in, "retry_in", 0, limits.DELAY_MS_MAX)
        )
        found = []
        for key, token, error in items:
            told = validation.error_details(error)
            found.append(
                FailedAttempt(
                    key, token, told.text, wait, self.machine.uniform(), not retry, told.type, told.trace
                )
            )
        return (yield from self._held(found, lambda _, items: _op(FailJobs(tuple(items)))))

    def release_many(
        self,
        items: Sequence[tuple[bytes, str]],
        delay: float = 0,
        until: datetime | float | None = None,
    ) -> QueueFlow[list[Done]]:
        """(key, token) each; one commit per shard."""
        when = release_times(delay, until)
        return (yield from self._held(_holds(items), lambda _, held: _op(ReleaseJobs(tuple(held), *when))))

    def throttle_many(
        self, items: Sequence[tuple[bytes, str]], seconds: float, scope: str = "kind", why: str = ""
    ) -> QueueFlow[list[Done]]:
        """(key, token) each: given back, and nothing of their kinds, or of the queue, starts for so long.

        In the commits where the jobs are; of other shards as far as they can be told now.
        """
        pause, whole, reason = throttle_of(seconds, scope, why)

        def make(_: int, held: Sequence[Any]) -> QueueFlow[Op]:
            return _op(ReleaseJobs(tuple(held), pause_ms=pause, whole=whole, why=reason))

        done = yield from self._held(_holds(items), make)
        yield from self.spread_pauses({key[15] for key, _ in items})
        return done

    def spread_pauses(self, shards: Iterable[int]) -> QueueFlow[None]:
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

    def abort_many(self, items: Sequence[tuple[bytes, str]], why: str = "") -> QueueFlow[list[Done]]:
        """(key, token) each; one commit per shard."""
        reason = validation.error_text(why)
        return (yield from self._held(_holds(items), lambda _, held: _op(AbortJobs(tuple(held), reason))))

    def _held(self, items: Sequence[Any], make: OpFactory) -> QueueFlow[list[Done]]:
        """Send items to the shards of their keys, a request's worth at a time; the outcomes in order."""
        shards = {item.key[15] for item in items}
        if len(shards) == 1 and len(items) <= limits.ITEMS_PER_REQUEST_MAX:
            return (yield from self._send(shards.pop(), items, make))
        results: dict[int, Done] = {}
        for shard in shards:
            places = [at for at, item in enumerate(items) if item.key[15] == shard]
            for start in range(0, len(places), limits.ITEMS_PER_REQUEST_MAX):
                chunk = places[start : start + limits.ITEMS_PER_REQUEST_MAX]
                done = yield from self._send(shard, [items[at] for at in chunk], make)
                results.update(zip(chunk, done, strict=True))
        return [results[at] for at in range(len(items))]

    def _send(self, shard: int, items: Sequence[Any], make: OpFactory) -> QueueFlow[list[Done]]:
        if shard >= limits.SHARDS_MAX:  # no queue drew such a key
            return [done_of(item.key, Code.LEASE_LOST) for item in items]
        codes = yield from self._tell(shard, items, make)
        for _ in range(STALE_TRIES - 1):
            if Code.STALE not in codes:
                break
            again = [at for at, code in enumerate(codes) if code == Code.STALE]
            anew = yield from self._tell(shard, [items[at] for at in again], make)
            for at, code in zip(again, anew, strict=True):
                codes[at] = code
        return [done_of(item.key, code) for item, code in zip(items, codes, strict=True)]

    def _tell(self, shard: int, items: Sequence[Any], make: OpFactory) -> QueueFlow[list[Code]]:
        op = yield from make(shard, items)
        answer = yield Submit(shard, (op,))
        codes: list[Code] = answer.outcomes[0].codes
        yield from self._wipe_refused(shard, op, codes)
        return codes

    def _wipe_refused(self, shard: int, op: Op, codes: Sequence[Code]) -> QueueFlow[None]:
        """Let no result that was refused stay beside one that was accepted."""
        if isinstance(op, CompleteJobs) and Code.LEASE_LOST in codes:  # what is stale is so as a whole
            taken = [code == Code.OK for code in codes]
            staged = zip([item.result for item in op.items], taken, strict=True)
            yield from wipe_refused(self.writers[shard].root, staged)


def _is_unfinished(op: ClaimJobs, outcome: Outcome) -> bool:
    """Did late jobs stand in front, and may there be more of them? A consumer may be told to wait instead."""
    return outcome.code == Code.RETRY and (op.use is None or not outcome.count)


def _asked(
    limit: Any, worker: Any, lease: Any, wait: Any, kinds: tuple[str, ...] | None
) -> tuple[ClaimJobs, float]:
    """A claim's arguments, checked: the operation, and the seconds to wait."""
    arguments = (limit, worker, lease, wait, kinds)
    try:
        return _remembered(*arguments)
    except TypeError:  # one that has no hash, which makes no sense here: its check says so
        return _remembered.__wrapped__(*arguments)


@functools.lru_cache(maxsize=64, typed=True)  # callers repeat themselves
def _remembered(
    limit: Any, worker: Any, lease: Any, wait: Any, kinds: tuple[str, ...] | None
) -> tuple[ClaimJobs, float]:
    op = ClaimJobs(
        validation.whole_number(limit, "limit", 1, limits.CLAIM_LIMIT_MAX),
        validation.text(worker, "worker", limits.WORKER_CHARS_MAX, 1),
        validation.lease_ms(lease),
        kinds,
    )
    return op, validation.milliseconds(wait, "wait", 0, limits.DAY_MS) / 1000


def _op(op: Op) -> QueueFlow[Op]:
    """An operation that needs nothing staged, as a flow."""
    yield from ()
    return op


def _holds(items: Sequence[tuple[bytes, str]]) -> list[LeaseRef]:
    return [LeaseRef(key, token) for key, token in items]


def done_of(key: bytes, code: Code) -> Done:
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
