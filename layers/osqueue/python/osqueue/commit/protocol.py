"""The commit protocol: how many independent writers share one head, without a broker.

One S3 object takes about 15 compare-and-swaps a second, whoever sends them. So a writer that is alone swaps the
head directly, and writers that collide *announce* their request where all can see it; whoever wins the next swap
applies every announced request. Contention makes batches larger instead of making losers. The ideas come from
lock-free data structures: the universal construction (M. Herlihy, 1991), flat combining (D. Hendler et al.,
2010) and the fast path / slow path method (A. Kogan, E. Petrank, 2012).

    commit ─▶ reduce the cached head with my operations
                │ nothing would change ──▶ GET the head to be sure ──▶ answer; nothing is written
                │ nobody collides
                ├──▶ PUT head If-Match ── won ──▶ answer                              (one request in all)
                │        └── any other answer ─┐
                └─ writers collide ────────────┤
                                               ▼
                          PUT intents/…/<identity>   the key holds the identity: retrying is free
                                               ▼
              ┌────────▶ pause, GET head ── my row is there ──▶ answer
              │                │ not yet
              │                ├── not my turn to combine ──┐
              │                ▼                           │
              │           LIST intents, reduce all          │
              │           PUT head If-Match ── won ──▶ answer
              └──────── lost ──┴───────────────────────────┘

What makes it safe, each found to be needed by exploring every interleaving:

* The identity ``(born, env, n, nonce)`` of a request is fixed before it is first sent and never changes, however
  often it is sent and by whichever path. A session row per writer remembers the last one applied.
* A row is forgotten only by raising ``floor`` above everything its writer may still have under way.
* A 412, a 409, a 5xx and a time-out are one case: the head, not the reply, tells what happened.
* An answer that no won swap backs comes from a head whose GET began after the request.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import limits
from ..core import intents
from ..core.job_ops import CompleteJobs, EnqueueJobs
from ..core.ops import Op, Request
from ..core.state import State
from ..errors import Conflict
from ..stores.base import (
    Get,
    List,
    Listed,
    Put,
    StoreRequest,
    Written,
)
from .deadline import may_combine, poll_delay
from .effects import All, Flow
from .few_writers import commit_among_few
from .in_turn import commit_in_turn
from .request_status import CommitResult
from .steps import DIRECT_MS_MAX, BeginAgain, Steps
from .writer import HEAD, Head, ShardWriter, perhaps_done_before_removal

PATIENT_ROUNDS = 8  # looks at the head before a writer combines without drawing lots
LOOK_AFTER = 0.2  # of the time between two writers' commits: a lost swap costs as much as six looks
RECENT_WRITER_MS = 10_000  # a writer seen this recently may be waiting


def commit(writer: ShardWriter, ops: Sequence[Op], deadline: float, look: bool = False) -> Flow[CommitResult]:
    """Apply operations to the shard, exactly once. ``deadline`` is in seconds on the machine's monotonic clock.

    ``look`` takes announced requests along even when nobody seems to collide: the reaper's way of finishing what
    vanished writers began.
    Raises Throttled or Conflict (not applied; the latter: the queue is being removed), Timeout or Unavailable (perhaps
    applied, now or later), Unknown (nobody can tell any more), Damaged or NewerFormat (the head is not ours to touch).
    """
    return Commit(writer, tuple(ops), deadline, look).run()


class Commit(Steps):
    """One run of the protocol. Each method is one step of the picture above."""

    def __init__(self, writer: ShardWriter, ops: tuple[Op, ...], deadline: float, look: bool) -> None:
        super().__init__(writer, deadline, look)
        self.ops = ops
        self.cached = writer.head  # as it was known before; a look brings another object, whatever it finds
        self.stale = False  # is the known head worth a look before a commit on it?
        self.changes = not self.only_looks()

    def run(self) -> Flow[CommitResult]:
        while True:
            try:
                request, head = yield from self.prepare()
                in_turn = self.writer.turns and head.version is not None and not self.look_first
                answer = None
                few = self.writer.shares_head(head) and not self.look_first
                if few and (yield from self.meets_others(head)):
                    if (yield from self.finds_nothing(request, head)):
                        answer = yield from self.direct(request, head)
                elif not in_turn or self.writer.is_alone(head):
                    answer = yield from self.direct(request, head)
                if answer is None and few:
                    answer = yield from commit_among_few(self, request)
                if answer is None and in_turn:
                    answer = yield from commit_in_turn(self, request)
                    if answer is None and not self.deadline.sent:
                        answer = yield from self.direct(request, head)
                if answer is None:
                    answer = yield from self.announced(request)
                return answer
            except BeginAgain:
                continue
            except Conflict as mark:  # of a removal; it may be taken back, and then others find what was sent
                sent = self.deadline.sent
                yield from self.writer.remove_clock()
                raise (perhaps_done_before_removal(self.writer.queue) if sent else mark) from None

    # ── Before anything is sent ──────────────────────────────────────────────
    def prepare(self) -> Flow[tuple[Request, Head]]:
        """See to it that the head is known well enough, then fix the identity."""
        writer = self.writer
        writer.check_process()
        writer.forget_old_blocks()
        head = writer.head
        unseen_ms = 0 if head is None else writer.machine.ms_since(head.seen)
        outdated = unseen_ms > limits.BORN_AGE_MAX_MS
        self.stale = head is not None and self.is_old(head, unseen_ms) and not writer.turns
        if head is None or outdated or (self.stale and (self.look_first or not writer.shares_head(head))):
            head = yield from self.reread()
            self.stale = False
        if head.version is None:
            yield from self.deadline.check_queue()
        return writer.identify(self.ops, head.state), head

    def meets_others(self, head: Head) -> Flow[bool]:
        """Return whether others most likely committed since the known head, or commit now."""
        writer = self.writer
        if self.stale or writer.publications.found:
            return True
        if writer.contended(head) and not self.only_looks():
            yield from self.deadline.tell_time()  # without it a head at rest looks young
        return writer.contended(head)

    def only_looks(self) -> bool:
        """Return whether these operations often change nothing."""
        return not any(isinstance(op, EnqueueJobs | CompleteJobs) for op in self.ops)

    def finds_nothing(self, request: Request, head: Head) -> Flow[bool]:
        """Return whether the request would change nothing in the known head, and so most likely nothing at all."""
        if not self.only_looks():
            return False
        reduction = yield from self.reduce(head, [request], load=False)
        return reduction is not None and not reduction.changed and not reduction.missing

    def is_old(self, head: Head, unseen_ms: float) -> bool:
        """Return whether a fresh look is worth a GET.

        It is not where the head was read just now, where the request will be announced anyway, or where no other
        writer was here.
        """
        writer = self.writer
        if unseen_ms < writer.commit_seconds * 1000 or writer.contended(head):
            return False
        return writer.shared or unseen_ms > LOOK_AFTER * writer.alone_ms(head)

    # ── The fast path ────────────────────────────────────────────────────────
    def direct(self, request: Request, head: Head) -> Flow[CommitResult | None]:
        """Answer without writing, or by one swap; None sends the request on to be announced."""
        if self.look_first and head.version is not None:
            yield from self.deadline.await_gap()
            return (yield from self.combine(request, head))
        waited = False
        while True:
            state = head.state
            contended = self.writer.contended(head)
            reduction = yield from self.reduce(head, [request], load=not contended)
            if reduction is None:
                head = yield from self.reread()
                continue
            own = reduction.outcomes.get(request.identity)
            changes = reduction.changed or (contended and bool(reduction.missing))
            # A crowded head may have room again: it forgets idle writers as time goes by.
            if self.clock_is_wanted(state, changes or reduction.crowded):
                yield from self.deadline.tell_time()
                continue
            if own is not None and changes:
                if contended or (self.writer.shared and self.writer.gap_left()):
                    return None
                if not (yield from self.deadline.await_gap()):
                    break
                waited = True
                continue
            if head is self.cached:  # it may be wrong; one read since may not
                known = head.version
                head = yield from self.reread()
                if head.version != known:
                    continue
            if own is None:
                self.refuse(state, request, reduction)
            assert own is not None
            yield from self.await_flush(head)
            return CommitResult(own, state.now_ms)
        if waited or self.must_look(state, reduction.state.now_ms):  # others may have come meanwhile
            return (yield from self.combine(request, head))
        answer = yield from self.swap(request, head, reduction, ())
        if answer is None and head.version is None:
            answer = yield from self.created(request)
        return answer

    def must_look(self, state: State, now: int) -> bool:
        """A run of direct commits could shut announced requests out: from time to time, take them along.

        Every few commits when others have been here lately, every half second when nobody has.
        """
        if state.direct < limits.HOT_COMMITS:
            return False
        if now - state.direct_ms >= self.direct_ms_max:
            return True
        return self.direct_ms_max == DIRECT_MS_MAX and any(
            row.at_ms > now - RECENT_WRITER_MS
            for env, row in state.sessions.items()
            if env != self.writer.env
        )

    def created(self, request: Request) -> Flow[CommitResult | None]:
        """The head's creation brought no definite answer. Whose head is it now?

        It is tried again under the same epoch and identity while there is none, so a late first try does no harm.
        Once another writer's head is there, this one's can never appear.
        """
        tries = 0
        while (head := (yield from self.reread())).version is None:
            tries += 1
            if self.refused is not None:
                self.deadline.refused(idle=True)
                self.refused = None
            yield from self.deadline.back_off(tries)
            reduction = yield from self.reduce(head, [request], load=False)
            assert reduction is not None
            answer = yield from self.swap(request, head, reduction, ())
            if answer is not None:
                return answer
        if head.state.epoch != request.epoch:
            raise BeginAgain
        return (yield from self.look(request, head))

    # ── Announced ────────────────────────────────────────────────────────────
    def announced(self, request: Request) -> Flow[CommitResult]:
        """Publish the request, then wait until some commit includes it, combining when it is this writer's turn."""
        writer = self.writer
        seals = writer.head.state.seals if writer.head is not None else ()
        key = intents.intent_key(request, writer.name_bytes_max, seals)
        put = Put(intents.intents_prefix(writer.root) + key, intents.intent_body(request), durable=False)
        self.deadline.send()
        if writer.head is not None and writer.shares_head(writer.head):  # where the few look who commit
            landed, _ = yield All((put, writer.publication_of(request, writer.head)))
        else:
            landed = yield put
        landed = isinstance(landed, Written)
        rounds = troubles = 0
        while True:
            rounds += 1
            mine = (rounds > PATIENT_ROUNDS or may_combine(writer)) and not (self.lost and writer.swap_gap_s)
            troubles = troubles + 1 if self.deadline.troubled or self.deadline.idle_refusals else 0
            if troubles > 1:
                yield from self.deadline.back_off(troubles)
            elif not self.lost:
                yield from self.deadline.pause(poll_delay(writer, rounds, mine))
            self.deadline.in_time()
            self.lost = self.deadline.troubled = False
            began = self.deadline.now()
            head, landed, listed = yield from self.survey(put, landed, mine)
            if head is None:
                continue
            if self.refused is not None:
                self.deadline.refused(head.version == self.refused.version, head.version)
                self.refused = None
            writer.survey_seconds += 0.2 * (self.deadline.now() - began - writer.survey_seconds)
            writer.ahead = False
            answer = yield from self.look(request, head)
            if answer is None and rounds % 2 == 0 and writer.shares_head(head):
                yield writer.publication_of(request, head)
            if answer is None and listed is not None and not writer.gap_left():
                answer = yield from self.combine(request, head, listed)
                if answer is not None:
                    writer.ahead = True
                    writer.combine_seconds += 0.2 * (self.deadline.now() - began - writer.combine_seconds)
            if answer is not None:
                return answer

    def survey(self, put: Put, landed: bool, mine: bool) -> Flow[tuple[Head | None, bool, Listed | None]]:
        """Publish what has not landed yet, read the head and, if it is this writer's turn, the announcements.

        All at once: a listing is judged by the session rows of the head it is applied to, so it does no harm when
        it is older or newer than that head.
        """
        writer = self.writer
        began = writer.machine.moment()
        known = writer.head.version if writer.head else None
        requests: list[StoreRequest] = [Get(writer.root + HEAD, unless=known)]
        if mine:
            requests.append(List(intents.intents_prefix(writer.root)))
        if not landed:
            requests.append(put)
        replies = yield All(tuple(requests))
        for reply in replies:
            self.deadline.complain(reply)
        head = writer.see(replies[0], began)
        listed = replies[1] if mine and isinstance(replies[1], Listed) else None
        return head, landed or isinstance(replies[-1], Written), listed
