"""Claim, and the turns of a worker: how its jobs ended, and a claim for the next, in one commit."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..commit.effects import QueueFlow, Submit, submit_together
from ..commit.retry import impatient
from ..core.groups import are_stopped
from ..core.job_ops import ClaimJobs
from ..core.ops import Code, Outcome
from ..core.rows import BodyRef
from ..core.state import LeaseRecord
from ..errors import Damaged, OsqueueError
from ..model import validation
from ..model.codecs import Codec
from ..model.job import Done
from ..objects.segments import read_bodies
from .endings import AttemptEnd, EndingFlows
from .head_board import NEVER, NEVER_BEFORE

if TYPE_CHECKING:
    from .lending import Borrower

CLOSED_SECONDS_MAX = 60.0  # for which one who waits believes that a queue is closed: a limit may be lifted


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


class FoundLeases(Struct, frozen=True):
    """What a claim was granted, before it is read what its jobs are given to work on."""

    shard: int
    leases: Sequence[LeaseRecord]
    asked: float  # monotonic seconds when the claim was sent


# Of each ending and each claim. An error in its place: nobody knows yet, so say it again; or it was refused.
TurnAnswers = tuple[list[Done | Exception], list[ClaimResult | Exception]]
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


class ClaimFlows(EndingFlows):
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
        op = claim_of(limit, self.machine.name() if worker is None else worker, lease, kinds)
        wait_s = validation.milliseconds(wait, "wait", 0, limits.DAY_MS) / 1000
        if not wait_s:
            return (yield from self._claim(op))
        until = self.machine.monotonic() + wait_s
        waiter = self.work_waiter(op.kinds)
        while True:
            idle = not waiter.ready and self.known_idle(waiter)
            waiter.begin_claim()
            claimed = NOTHING if idle else (yield from self._claim(op))
            left = until - self.machine.monotonic()
            if claimed.leases or left <= 0 or self.closing:
                return claimed
            now = self.machine.monotonic()
            waiter.closed_until, waiter.again_at = closed_until(claimed, now), again_at(claimed, now)
            yield from self.rest(waiter, left)

    def turn(self, endings: Sequence[AttemptEnd], claims: Sequence[ClaimJobs]) -> QueueFlow[TurnAnswers]:
        """Say how attempts ended and claim jobs, in one commit where they meet at a shard. No claim waits."""
        start = self.machine.uniform()
        flows = [self.end(endings), *[self._claim(op, start) for op in claims]]
        return turn_answers(len(endings), (yield from submit_together(flows)))

    def _claim(self, op: ClaimJobs, start: float | None = None) -> QueueFlow[ClaimResult]:
        found = yield from self.find_work(op, start)
        return found if isinstance(found, ClaimResult) else ClaimResult((yield from self.granted(found)))

    def find_work(self, op: ClaimJobs, start: float | None = None) -> QueueFlow[FoundLeases | ClaimResult]:
        """Claim in the first shard that has something: from any one on, or from where ``start``, below 1, says."""
        count = self.shards_seen() or (yield from self.shards())
        first = int((self.machine.uniform() if start is None else start) * count) if count > 1 else 0
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
                return FoundLeases(shard, outcome.leases, asked)
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

    def granted(self, found: FoundLeases) -> QueueFlow[tuple[GrantedLease, ...]]:
        """Leases with what their jobs were given to work on."""
        leases, asked = found.leases, found.asked
        inline = [
            GrantedLease(lease, payload, asked)
            for lease in leases
            if isinstance(payload := lease.job.payload, bytes) and lease.job.links is None
        ]
        if len(inline) == len(leases):  # the common case: nothing to read
            return tuple(inline)
        contents: list[Any] = [each for lease in leases for each in lease.job.contents]
        if BodyRef in map(type, contents):
            contents = yield from impatient(read_bodies(self.writers[found.shard].root, contents))
        return with_contents(leases, contents, asked)


def turn_answers(endings: int, found: Sequence[Any]) -> TurnAnswers:
    """What flows of a turn brought: the first of so many endings, the others of a claim each."""
    done, *claimed = found
    return [done] * endings if isinstance(done, Exception) else done, claimed


def _is_unfinished(op: ClaimJobs, outcome: Outcome) -> bool:
    """Did late jobs stand in front, and may there be more of them? A consumer may be told to wait instead."""
    return outcome.code == Code.RETRY and (op.use is None or not outcome.count)


def claim_of(limit: Any, worker: Any, lease: Any, kinds: Any) -> ClaimJobs:
    """A claim, checked. Raises Rejected."""
    asked = (limit, worker, lease, None if kinds is None else validation.kinds(kinds))
    try:
        return _remembered(*asked)
    except TypeError:  # one that has no hash, which makes no sense here: its check says so
        return _remembered.__wrapped__(*asked)


@functools.lru_cache(maxsize=64, typed=True)  # callers repeat themselves
def _remembered(limit: Any, worker: Any, lease: Any, kinds: tuple[str, ...] | None) -> ClaimJobs:
    return ClaimJobs(
        validation.whole_number(limit, "limit", 1, limits.CLAIM_LIMIT_MAX),
        validation.text(worker, "worker", limits.WORKER_CHARS_MAX, 1),
        validation.lease_ms(lease),
        kinds,
    )
