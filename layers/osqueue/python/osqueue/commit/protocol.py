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

from collections.abc import Iterable, Sequence

from .. import crontab, limits
from ..core import intents
from ..core.backlog import NeededRange
from ..core.claim_search import needs_of_claims
from ..core.context import ReductionContext, StagedObject
from ..core.ops import Identity, Op, Outcome, Request
from ..core.reduce import Reduction, Told, reduce
from ..core.state import State
from ..core.timers import has_due_timers
from ..errors import Conflict, Throttled, Unknown
from ..stores.base import (
    Delete,
    Failed,
    Found,
    Get,
    List,
    Listed,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreRequest,
    Written,
)
from .announcements import Announcements
from .block_reader import Place, read_blocks
from .deadline import Deadline, may_combine, poll_delay
from .effects import All, Flow
from .in_turn import commit_in_turn
from .request_status import CommitResult, RequestStatus, outcomes_of, status_of_request
from .writer import HEAD, Head, ShardWriter, perhaps_done_before_removal

LOAD_ROUNDS_MAX = 12 + limits.TOMBSTONES_MAX  # reads of segments one after the other, for one reduction
PATIENT_ROUNDS = 8  # looks at the head before a writer combines without drawing lots
RECENT_WRITER_MS = 10_000  # a writer seen this recently may be waiting
DIRECT_MS_MAX = limits.SECOND_MS // 2  # direct commits in a row for this long look for announced requests
SETTLED_PER_DELETE_MAX = 500  # intents; with the longest keys, half of the megabyte that servers take
CHANCE_MASK = (1 << 64) - 1
CROWDED = "too many writers are active on this queue. Repeat later, or add shards."


def commit(writer: ShardWriter, ops: Sequence[Op], deadline: float, look: bool = False) -> Flow[CommitResult]:
    """Apply operations to the shard, exactly once. ``deadline`` is in seconds on the machine's monotonic clock.

    ``look`` takes announced requests along even when nobody seems to collide: the reaper's way of finishing what
    vanished writers began.
    Raises Throttled or Conflict (not applied; the latter: the queue is being removed), Timeout or Unavailable (perhaps
    applied, now or later), Unknown (nobody can tell any more), Damaged or NewerFormat (the head is not ours to touch).
    """
    return _Commit(writer, tuple(ops), deadline, look).run()


class RequestRefused(Throttled):
    """A commit refused the request for good, since there was no room for what it would leave behind."""

    def __init__(self, message: str, events: tuple[Told, ...] = ()) -> None:
        super().__init__(message)
        self.events = events  # what there is to tell of that commit, when this writer made it


class _BeginAgain(Exception):
    """The request was certainly not applied and never will be: begin again under a new identity."""


class _Commit:
    """One run of the protocol. Each method is one step of the picture above."""

    def __init__(self, writer: ShardWriter, ops: tuple[Op, ...], deadline: float, look: bool) -> None:
        self.look_first = look
        self.writer = writer
        self.ops = ops
        self.deadline = Deadline(writer, deadline)
        self.cached = writer.head  # as it was known before; a look brings another object, whatever it finds
        self.announcements: Announcements | None = None  # of others, once this commit has to take them along
        self.unreadable: set[Place] = set()  # what the head refers to and nobody can read
        self.lost = False  # was the last swap lost? Then somebody else's was won, and there is news to read
        self.refused: Head | None = None  # on which the last swap was refused
        self.left_out = 0  # commits in a row that had no room for this request
        self.unsure: dict[bytes, tuple[Told, ...]] = {}  # what swaps tell whose answer was lost, by commit
        self.stumbles = 0  # reads of segments in a row that failed
        self.applied: dict[Identity, tuple[Outcome, ...]] = {}  # by the latest swap that was won

    def run(self) -> Flow[CommitResult]:
        while True:
            try:
                request, head = yield from self.prepare()
                in_turn = self.writer.turns and head.version is not None and not self.look_first
                answer = None
                if not in_turn or self.writer.is_alone(head):
                    answer = yield from self.direct(request, head)
                if answer is None and in_turn:
                    answer = yield from commit_in_turn(self, request)
                    if answer is None and not self.deadline.sent:
                        answer = yield from self.direct(request, head)
                if answer is None:
                    answer = yield from self.announced(request)
                return answer
            except _BeginAgain:
                continue
            except Conflict as mark:  # of a removal; it may be taken back, and then others find what was sent
                sent = self.deadline.sent
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
        if head is None or outdated or (self.is_old(head, unseen_ms) and not writer.turns):
            head = yield from self.reread()
        if head.version is None:
            yield from self.deadline.check_queue()
        return writer.identify(self.ops, head.state), head

    def is_old(self, head: Head, unseen_ms: float) -> bool:
        """Is a fresh look worth a GET? Not when the request will be announced anyway, or nobody else was here."""
        return (self.writer.shared or unseen_ms > self.writer.alone_ms(head)) and not self.writer.contended(
            head
        )

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

    def apply(self, request: Request, head: Head, others: Sequence[Request]) -> Flow[CommitResult | None]:
        """Commit the request together with others, on a head that was just read, in turn. None: not this time."""
        yield from self.deadline.tell_time()
        if self.writer.now_ms(head.state) - head.state.direct_ms >= DIRECT_MS_MAX:
            return (yield from self.combine(request, head, noted=others))
        reduction = yield from self.reduce(head, [*others, request], load=True)
        if reduction is None or self.writer.clock_is_due():
            return None
        own = reduction.outcomes.get(request.identity)
        if own is None and not self.deadline.sent:
            self.refuse(head.state, request, reduction)
        if own is None:  # who reads its note later may have room: it is told so for good, or applied
            return None
        # Whoever meets a request again must find that it was answered: another answer may be due by then.
        if reduction.changed or others or self.deadline.sent:
            return (yield from self.swap(request, head, reduction, ()))
        yield from self.await_flush(head)
        return CommitResult(own, head.state.now_ms)

    def clock_is_wanted(self, state: State, changes: bool) -> bool:
        """Is it time to measure the store's clock? Not for an answer that neither writes nor depends on it."""
        writer = self.writer
        return writer.clock_is_due() and (changes or has_due_timers(state, writer.timers_ms(state)))

    def must_look(self, state: State, now: int) -> bool:
        """A run of direct commits could shut announced requests out: from time to time, take them along.

        Every few commits when others have been here lately, every half second when nobody has.
        """
        if state.direct < limits.HOT_COMMITS:
            return False
        if now - state.direct_ms >= DIRECT_MS_MAX:
            return True
        return any(
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
            raise _BeginAgain
        return (yield from self.look(request, head))

    def refuse(self, state: State, request: Request, reduction: Reduction) -> None:
        """The reducer would not take the request, and it has not been sent anywhere by this call."""
        if reduction.crowded:
            raise Throttled(CROWDED)
        status = status_of_request(state, request)
        if status is RequestStatus.TURNED_AWAY:  # sent by others, or before: one of a batch
            raise RequestRefused(CROWDED)
        if status is RequestStatus.CLONED or request.env in state.sessions:
            self.writer.redraw()
        raise _BeginAgain

    # ── Announced ────────────────────────────────────────────────────────────
    def announced(self, request: Request) -> Flow[CommitResult]:
        """Publish the request, then wait until some commit includes it, combining when it is this writer's turn."""
        writer = self.writer
        seals = writer.head.state.seals if writer.head is not None else ()
        key = intents.intent_key(request, writer.name_bytes_max, seals)
        put = Put(intents.intents_prefix(writer.root) + key, intents.intent_body(request), durable=False)
        self.deadline.send()
        landed = isinstance((yield put), Written)
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

    def look(self, request: Request, head: Head) -> Flow[CommitResult | None]:
        """Read the request's fate in a head that was just read."""
        match status_of_request(head.state, request):
            case RequestStatus.PENDING:
                return None
            case RequestStatus.APPLIED:
                yield from self.await_flush(head)
                return CommitResult(
                    outcomes_of(head.state, request),
                    head.state.now_ms,
                    self.unsure.get(head.state.commit, ()),
                )
            case RequestStatus.TURNED_AWAY:
                yield from self.await_flush(head)
                raise RequestRefused(CROWDED, self.unsure.get(head.state.commit, ()))
            case RequestStatus.CLONED:
                self.writer.redraw()
                raise _BeginAgain
            case RequestStatus.NEVER:
                raise _BeginAgain
            case RequestStatus.UNKNOWN:
                self.writer.redraw()
                if not self.deadline.sent:
                    raise _BeginAgain
                raise Unknown(
                    "nobody can tell any more whether this operation was applied: its writer was silent for too"
                    " long. Look at the queue before you repeat it."
                )

    def await_flush(self, head: Head) -> Flow[None]:
        """Wait until a power cut would leave the head that an answer is read from: its writer may be flushing yet."""
        writer = self.writer
        tries = 0
        while writer.flushes and head.version not in (None, writer.flushed):
            reply = yield Get(writer.root + HEAD, unless=head.version, length=0, flushed=True)
            if not isinstance(reply, Failed):
                writer.flushed = head.version
                return
            self.deadline.complain(reply)
            tries += 1
            yield from self.deadline.back_off(tries)

    def combine(
        self, request: Request, head: Head, listed: Listed | None = None, noted: Sequence[Request] = ()
    ) -> Flow[CommitResult | None]:
        """Apply every announced request, this one included, in one swap. None: lost, or no answer."""
        yield from self.deadline.tell_time()  # others' leases are granted by it, and it may have stood still
        if self.announcements is None:
            self.announcements = Announcements(self.writer, self.deadline)
        looked = yield from self.announcements.gather(head, request, listed)
        if looked is None:
            return None
        others, done, fresh = looked
        if fresh.version != head.version:
            answer = yield from self.look(request, fresh)
            if answer is not None:
                return answer
            head = fresh
        each = {other.identity: other for other in (*others, *noted, request)}
        reduction = yield from self.reduce(head, list(each.values()), load=True, listed=True)
        if reduction is None or self.writer.clock_is_due():  # it may have been set while segments were read
            return None
        if request.identity not in reduction.outcomes:
            would_be = status_of_request(reduction.state, request)
            if would_be is RequestStatus.PENDING:  # there is no room for it, nor to say so
                self.left_out += 1
                yield from self.deadline.back_off(self.left_out)
            if would_be is not RequestStatus.TURNED_AWAY:
                return None
        return (yield from self.swap(request, head, reduction, done))

    # ── The swap ─────────────────────────────────────────────────────────────
    def swap(
        self, request: Request, head: Head, reduction: Reduction, done: tuple[str, ...]
    ) -> Flow[CommitResult | None]:
        """Write what the new head refers to, then the head, if it is still the one that was read.

        Settled intents go at the same time: they are part of the head that was read, whoever wins now.
        """
        writer = self.writer
        if head.version is not None and writer.gap_left():
            return None
        if reduction.objects and not (yield from self.write(reduction.objects)):
            return None
        body = writer.encoder.encode(reduction.state)
        sent, self.deadline.sent = self.deadline.sent, True
        began = writer.machine.moment()
        put = (
            PutIfAbsent(writer.root + HEAD, body, hot=True)
            if head.version is None
            else PutIfMatch(writer.root + HEAD, body, head.version, self.deadline.left() / 2, hot=True)
        )
        if done:  # all of them, or they would stand before younger announcements in the next listing
            runs = [
                done[at : at + SETTLED_PER_DELETE_MAX] for at in range(0, len(done), SETTLED_PER_DELETE_MAX)
            ]
            # What another writer's lock keeps now, the next combiner finds again.
            reply, *_ = yield All((put, *(Delete(keys, wait_seconds=0.0) for keys in runs)))
        else:
            reply = yield put
        if not isinstance(reply, Written):
            self.lost = True
            self.refused = head if isinstance(reply, Refused) else None
            self.unsure[reduction.state.commit] = reduction.told
            writer.shared = True
            self.deadline.complain(reply)
            if isinstance(reply, Failed) and reply.too_soon:
                writer.note_written()
            if isinstance(reply, Failed) and reply.error.permanent and not sent:
                raise reply.error  # refused for good, and nothing else was sent: it did not happen
            return None
        writer.won(reduction.state, reply.version, began)
        self.applied = reduction.outcomes
        outcomes = reduction.outcomes.get(request.identity)
        if outcomes is None:
            raise RequestRefused(CROWDED, reduction.told)
        return CommitResult(outcomes, reduction.state.now_ms, reduction.told)

    def write(self, objects: Sequence[StagedObject]) -> Flow[bool]:
        """Write what a head will refer to; is all of it there?

        Whoever reduces the same head may give the same thing the same name. It is created, not written over: since
        then a purge may have blanked it.
        """
        keys = [self.writer.root + item.name for item in objects]
        replies = yield All(tuple(map(PutIfAbsent, keys, [item.body for item in objects])))
        others = [key for key, reply in zip(keys, replies, strict=True) if isinstance(reply, Refused)]
        if others:  # a store may refuse two at once: is it there?
            replies += yield All(tuple(Get(key, length=0, flushed=True) for key in others))
        for reply in replies:
            self.deadline.complain(reply)
        return all(isinstance(reply, Written | Refused | Found) for reply in replies)

    def reduce(
        self, head: Head, requests: list[Request], *, load: bool, listed: bool = False
    ) -> Flow[Reduction | None]:
        """Run the state machine, reading what it asks for. None: what the head refers to is gone, so it is old."""
        writer = self.writer
        machine = writer.machine
        drawn = machine.bits(128 + 64)
        commit_id, chance = (drawn >> 64).to_bytes(16, "big"), drawn & CHANCE_MASK
        now = writer.now_ms(head.state)
        wanted = self.unread(needs_of_claims(head.state, requests)) if load else []
        rounds = 0
        while True:
            if wanted:
                failed = yield from read_blocks(writer, head, wanted, self.unreadable)
                if failed is not None:
                    self.deadline.complain(failed)
                    self.stumbles = self.stumbles + 1 if isinstance(failed, Failed) else 0
                    if self.stumbles:
                        yield from self.deadline.back_off(self.stumbles)
                    return None
                self.stumbles = 0
            told = (writer.blocks, frozenset(self.unreadable), writer.observed, writer.latest_ms(now))
            context = ReductionContext(now, commit_id, chance, *told, crontab.ticks, writer.wakes)
            reduction = reduce(head.state, requests, context, listed=listed)
            wanted = self.unread(reduction.missing)
            rounds += 1
            if not wanted or not load or rounds == LOAD_ROUNDS_MAX:
                return reduction

    def unread(self, needs: Iterable[NeededRange]) -> list[NeededRange]:
        """Those that have neither been read nor found unreadable."""
        read, failed = self.writer.blocks, self.unreadable
        return [need for need in needs if need.place not in read and need.place not in failed]

    # ── The head ─────────────────────────────────────────────────────────────
    def reread(self) -> Flow[Head]:
        """Read the head until the store returns it or the deadline passes."""
        self.deadline.in_time()
        tries = 0
        while not isinstance(head := (yield from self.writer.read_head()), Head):
            tries += 1
            yield from self.deadline.back_off(tries, head)
        return head
