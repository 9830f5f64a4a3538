"""One writer of one shard: who it is, what it last saw of the head, and how it tells the time.

A writer is what a Queue object keeps between commits. Its identity ``env`` is drawn at random when it first
speaks and again in a new process (a fork would otherwise speak with its parent's voice). It has one request
outstanding at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from msgspec import Struct

from .. import limits
from ..clock import Machine, Moment, clocks_disagree
from ..core.backlog import Loaded
from ..core.encoding import HeadEncoder, decode_head
from ..core.intents import intents_prefix
from ..core.ops import Op, Request
from ..core.state import State
from ..errors import Conflict, OsqueueError, Unavailable, Unknown
from ..stores.base import (
    Delete,
    Failed,
    Found,
    Get,
    Missing,
    Put,
    Store,
    StoreReply,
    StoreRequest,
    Turn,
    Unchanged,
    Written,
    room_below,
)
from .effects import All, Flow
from .news import News
from .publications import Publications, are_few
from .retry import NEEDED, Tries, before_commit, is_refusal

HEAD = "head"
CLOCK = "clock"
ANNOUNCING_COMMITS = 2  # in whose time a request is announced
COMMIT_SECONDS_FIRST = 0.05  # what a commit is thought to take before one was measured
CLOCK_DRIFT_MAX = (
    0.0005  # of a machine's clock, as a share of the time: what is corrected at most, by RFC 5905
)
ALONE_MS = limits.SECOND_MS  # without others, after which a writer needs no turn
ALONE_MS_REMOTE = 100  # where a turn costs requests, and those who are about commit every few milliseconds
STORE_TICK_MS = Store.clock_tick_ms  # the default of stores
# Largest error of a measurement at the end of its life. A longer tick of the store allows a larger error.
CLOCK_ERROR_MS = 10
WARN_AGAIN_SECONDS = 600.0  # between two warnings of a head that is ahead
MEASURING_SECONDS_MAX = 60.0  # that it may take to read the store's clock: so much longer may leases last
CLOCK_PUT_MS_MAX = 300  # after which its time is not worth reading: it would be known badly
CONTENTION_SECONDS = 2.0  # a head at rest for longer is not contended
SAMPLE_MAX = 4.0  # times the average, that one commit counts for at most
AGAIN_WITHIN = 3.0  # times of a commit between two of a writer that commits in quick succession
BLOCKS_KEPT = 64  # blocks of segments kept from one commit to the next


OnHead = Callable[[State, str], None]  # told of every head that is newly read or written, and its version


def _unheard(state: State, version: str) -> None:
    """Nobody listens."""


class Head(Struct, frozen=True):
    """The head as this writer last saw it."""

    state: State
    version: str | None  # None: there is no head yet, and ``state`` is what the first commit starts from
    seen: Moment  # when the request was sent that showed it was current


class ClockReading(Struct, frozen=True):
    """The store's clock, read once: at a moment of an interval it stood between ``store_ms`` and one tick later.

    Frozen: a thread that measures must not show half of it to the others.
    """

    store_ms: int
    since: Moment  # the interval's beginning
    until: Moment  # and its end


def head_is_gone(queue: str) -> Unknown:
    """The error of a call in whose queue there was a head before, and is none now."""
    return Unknown(
        f"queue {queue}: its head is gone. Either it was removed ('osqueue queue rm'): then repeat what you enqueue,"
        " which begins a new queue. Or its head was lost: then let nobody enqueue before 'osqueue doctor ADDRESS"
        f" {queue} --restore'. Nobody can tell whether this operation was applied before."
    )


def perhaps_done_before_removal(queue: str) -> Unknown:
    """The error of a call that had sent its operation when it met the mark of a removal."""
    return Unknown(
        f"queue {queue}: it is being removed, and this operation was under way before. If the removal is given up, the"
        " operation may still be applied. Look at the queue before you repeat it, when 'osqueue queue rm' is through;"
        " if that was interrupted, run it again."
    )


def _without_time(reply: StoreReply) -> OsqueueError:
    """Return the error of a call that needs the store's time."""
    if isinstance(reply, Failed) and reply.error.permanent:
        return before_commit(reply.error)
    why = f": {reply.error.message}" if isinstance(reply, Failed) else ""
    return before_commit(Unavailable(f"the store did not return its time{why}"))


class ShardWriter:
    """The memory of one writer between its commits. Not thread-safe: one batch at a time uses it."""

    def __init__(
        self,
        root: str,
        queue: str,
        machine: Machine,
        store_clock: Callable[[], int | None] = lambda: None,
        room: Callable[[str], int] = room_below,
        flushes: bool = False,
        turns: bool = False,
        swap_gap_s: float = 0.0,
    ) -> None:
        self.root = root  # the shard's prefix, ending in "/"
        self.queue = queue
        self.machine = machine
        self.name_bytes_max = room(intents_prefix(root))  # of its announcements
        self.store_clock = store_clock
        self.turns = turns  # may its commits wait for their turn?
        self.alone_after_ms = ALONE_MS
        self.turn: Turn | None = None  # that its commit has just now
        self.swap_gap_s = swap_gap_s  # between two heads, at the least; 0: the store takes them as they come
        self.tick_ms = STORE_TICK_MS  # resolution of the store's clock
        self.will_write = False  # does a commit follow the first read of the head?
        self.clock_put: Moment | None = None  # before the clock was written, whose time is not read yet
        self.clock_seen: tuple[str, Moment] | None = None  # its version, and a moment before it was looked at
        self.written_by = float("-inf")  # when the head had been written, on the monotonic clock
        self.written_ms: int | None = None  # and when the store says it was
        self.flushes = flushes  # may a head be seen here that a power cut would take back?
        self.flushed: str | None = None  # the version of which it is known that none would
        self.observed = True  # does anybody want to know the transitions of its commits?
        self.wakes = False  # is there anybody who invokes the consumers that its commits wake?
        self.on_head: OnHead = _unheard
        self.news: News | None = None  # where the ends of rests are reported; None: nowhere
        self.first: ShardWriter | None = None  # that of the queue's first shard, where this is another
        self.env = ""
        self.n = 0
        self.process = machine.process()
        self.head: Head | None = None
        self.encoder = HeadEncoder()
        self.won_version: str | None = None  # of this writer's latest commit
        self.won_at = float("-inf")  # and when it was made, on the monotonic clock
        self.publications = Publications(root)
        self.shared = True  # others have written since this writer's last commit, as far as it knows
        self.commit_seconds = COMMIT_SECONDS_FIRST  # moving average of a head's PUT
        self.combine_seconds = 2 * COMMIT_SECONDS_FIRST  # and of a combiner's whole round
        self.survey_seconds = COMMIT_SECONDS_FIRST  # and of one look at the head and the announcements
        self.ahead = False  # was this writer's last commit one that took others along?
        self.warn_again_at = float("-inf")  # on the monotonic clock: of a head that is ahead
        self.measured: ClockReading | None = None  # the store's clock, when it was last measured
        self.blocks: dict[tuple[str, int], Loaded] = {}

    @classmethod
    def on(cls, store: Store, root: str, queue: str, machine: Machine) -> Self:
        """A writer that knows what its store tells of itself."""
        told = store.clock_ms, store.room_below, store.flushes, store.turns, store.swap_gap_s
        writer = cls(root, queue, machine, *told)
        if store.remote:
            writer.alone_after_ms = ALONE_MS_REMOTE
        writer.tick_ms = store.clock_tick_ms
        return writer

    # ── Identity ─────────────────────────────────────────────────────────────
    def redraw(self) -> None:
        """Become a new writer: another identity, nothing remembered."""
        self.env = f"{self.machine.bits(64):016x}"
        self.n = 0

    def check_process(self) -> None:
        """After a fork: forget what belongs to the parent."""
        if self.machine.process() != self.process:
            self.process = self.machine.process()
            self.env = ""
            self.head = None
            self.measured = self.clock_put = None
            self.won_version = None
            self.publications = Publications(self.root)

    def identify(self, ops: tuple[Op, ...], state: State) -> Request:
        """Fix the identity of a request for good. The head must have been current within the last minute."""
        if not self.env:
            self.redraw()
        self.n += 1
        return Request(self.env, self.n, self.machine.bits(64), state.seq, state.epoch, ops)

    def gone(self) -> Unknown:
        """The error of a call whose head is not there any more."""
        return head_is_gone(self.queue)

    # ── The head ─────────────────────────────────────────────────────────────
    def alone_ms(self, head: Head) -> float:
        """Return how long before this head another writer's last commit was; infinite when none is known.

        When a large part of that time has gone by since, another one has perhaps committed again.
        """
        others = [row.at_ms for env, row in head.state.sessions.items() if env != self.env]
        return head.state.now_ms - max(others) if others else float("inf")

    def is_alone(self, head: Head) -> bool:
        """Is nobody about who may wait for a turn? Whoever commits without one takes it from them."""
        alone_ms = self.alone_ms(head)
        return (
            not self.shared and alone_ms > self.alone_after_ms and self.machine.ms_since(head.seen) < alone_ms
        )

    def contended(self, head: Head) -> bool:
        """Return whether writers collide on this head."""
        state = head.state
        if state.hot == 0 or head.version is None:
            return False
        age_s = (self.now_ms(state) - state.now_ms) / 1000
        return age_s < CONTENTION_SECONDS + self.swap_gap_s

    @property
    def publishes(self) -> bool:
        """Whether few writers publish: not where they take turns, nor where a write waits for a gap."""
        return not self.turns and not self.swap_gap_s

    def shares_head(self, head: Head) -> bool:
        """Return whether so few writers use the head that they publish rather than announce."""
        return self.publishes and head.version is not None and are_few(head.state)

    def commits_again(self, head: Head) -> bool:
        """Return whether the head is this writer's own, and so young that its commits follow in quick succession."""
        if head.version is None or head.version != self.won_version:
            return False
        return self.machine.monotonic() - self.won_at < AGAIN_WITHIN * self.commit_seconds

    def looks_beside(self, state: State) -> list[StoreRequest]:
        """Return what others published that is read beside the swap that makes this state the head."""
        if not self.publishes or not are_few(state):
            return []
        head = Head(state, "", self.machine.moment())
        return self.publications.looks_beside(state, self.env, self.contended(head), self.commit_seconds)

    def keep_looks(self, looks: Sequence[StoreRequest], replies: Sequence[StoreReply]) -> None:
        """Keep for the next commit what was read beside this writer's own."""
        head, publications = self.head, self.publications
        if looks and head is not None:
            publications.found = publications.take_in(head.state, self.env, looks, replies)
            publications.found_at = self.machine.monotonic()

    def publication_of(self, request: Request, head: Head) -> Put:
        """Return what publishes a request where the next commit on the head looks."""
        draw = self.machine.uniform()
        return self.publications.publish(request, head.state, self.contended(head), draw)

    def read_head(self, looks: Sequence[Get] = ()) -> Flow[Head | StoreReply]:
        """Read the head, unless it is still the known one. Return the store's reply if that is not a head.

        ``looks`` are looks at the news, which are read beside it.
        """
        began = self.machine.moment()
        get = Get(self.root + HEAD, unless=self.head.version if self.head else None)
        first = self.head is None and self.will_write and self.publishes and self.clock_is_due()
        puts = [self._clock_put()] if first else []
        reply: StoreReply
        if puts or looks:
            reply, *others = yield All((get, *puts, *looks))
            if puts:
                self.clock_put = began if isinstance(others[0], Written) else None
            if self.news is not None:
                self.news.see(looks, others[len(puts) :], began.monotonic)
        else:
            reply = yield get
        return self.see(reply, began) or reply

    def see(self, reply: StoreReply, began: Moment) -> Head | None:
        """Take in the reply to a GET of the head that was sent at ``began``. Return None if the request failed."""
        if isinstance(reply, Unchanged) and self.head is not None:
            self.head = Head(self.head.state, self.head.version, began)
            self.shared = False
        elif isinstance(reply, Found):
            try:
                self.head = Head(decode_head(reply.body), reply.version, began)
            except Conflict:  # the queue is being removed: what is known of it is of no use any more
                self.head = None
                raise
            self.shared = True
            self.note_written(reply.modified_ms)
            self.on_head(self.head.state, reply.version)
        elif isinstance(reply, Missing):
            # A creation that brought no answer may still land: try again with the same epoch.
            before = self.head
            known = before if before is not None and before.version is None else None
            state = known.state if known else State(commit=b"\0" * 16, epoch=self.machine.bits(64))
            self.head = Head(state, None, began)
            self.shared = False
            if before is not None and known is None:  # whoever goes on has to register the queue first
                raise self.gone()
        else:
            return None
        return self.head

    def check_queue(self) -> Flow[StoreReply | None]:
        """Check before the first head of a shard is written that the queue is still the one that this process knows.

        Else the shard would be one of a queue that was removed, or of another that began since and has fewer. Raises
        Unknown then. Return the store's reply if that does not show the queue's first head.
        """
        first = self.first
        if first is None:
            return None
        known, began = first.head, self.machine.moment()
        reply: StoreReply = yield Get(first.root + HEAD)
        now = first.see(reply, began)
        if now is None:
            return reply
        if known is not None and known.version is not None and known.state.epoch != now.state.epoch:
            raise self.gone()
        return None

    def won(self, state: State, version: str, began: Moment) -> None:
        """This writer's own commit is the head now."""
        self.head = Head(state, version, began)
        self.flushed = self.won_version = version
        self.won_at = self.machine.monotonic()
        self.note_written()
        self.on_head(state, version)
        self.shared = False
        # A process that stood still meanwhile, or one slow request, says little about the next commit.
        took = min(self.machine.monotonic() - began.monotonic, SAMPLE_MAX * self.commit_seconds)
        self.commit_seconds += 0.2 * (took - self.commit_seconds)

    # ── The gap between two heads ────────────────────────────────────────────
    def note_written(self, written_ms: int | None = None) -> None:
        """The head was written before this moment, but perhaps only just. ``written_ms``: when, says the store."""
        if self.swap_gap_s:
            self.written_by, self.written_ms = self.machine.monotonic(), written_ms

    def gap_left(self) -> float:
        """Seconds until the store takes another head, as far as this writer knows.

        A courtesy: who errs is refused, or waits a gap too long. So the machine's wall clock will do.
        """
        if not self.swap_gap_s:
            return 0.0
        past = self.machine.monotonic() - self.written_by
        if self.written_ms is not None:
            now = self.earliest_ms()
            now = self.machine.now_ms() if now is None else now
            past = max(past, (now - self.written_ms - self.tick_ms) / 1000)
        return max(0.0, self.swap_gap_s - past)

    def gather_seconds(self, deadline: float) -> float:
        """How much of that others may still join a request in: it has to be announced when the gap is over."""
        left = self.gap_left()
        if not left:
            return 0.0
        left -= ANNOUNCING_COMMITS * self.commit_seconds
        return max(0.0, left) if left < deadline - self.machine.monotonic() else 0.0

    # ── Time ─────────────────────────────────────────────────────────────────
    def now_ms(self, state: State) -> int:
        """The time of a commit on this head: the store's at the earliest, and never before the head's own.

        Whatever ends (a lease, a delay) is judged by it, so nothing ends early. Without a measurement time stands
        still, and so it does on a head that is ahead: one bad clock must neither expire everybody's leases nor be
        believed by the next writer.
        """
        now = self.earliest_ms()
        if now is None:
            return state.now_ms
        self._warn_of_time(self.ahead_ms(state))
        return max(now, state.now_ms)

    def ahead_ms(self, state: State) -> int:
        """Return how far a head is ahead of the store's clock, or 0 if that is less than a clock's error."""
        now = self.earliest_ms()
        ahead_ms = 0 if now is None else state.now_ms - now
        return ahead_ms if ahead_ms > limits.CLOCK_AHEAD_MS_MAX else 0

    def _warn_of_time(self, ahead_ms: int) -> None:
        """Log, now and then, that time stands still if a head is ahead: nothing else shows it."""
        monotonic = self.machine.monotonic()
        if not ahead_ms or monotonic < self.warn_again_at:
            return
        self.warn_again_at = monotonic + WARN_AGAIN_SECONDS
        import logging  # here, because a function that starts needs it for nothing else

        logging.getLogger("osqueue.clock").warning(
            "The head %s is %d s ahead of the store's clock: until then no lease ends, no delayed job becomes due and"
            " no schedule ticks. Remedy: set the clocks of all machines, then run"
            " osqueue doctor ADDRESS QUEUE --fix-clock.",
            self.root + HEAD,
            ahead_ms // 1000,
        )

    def earliest_ms(self) -> int | None:
        """What the store's clock shows, at the earliest; None: nobody knows."""
        now = self.store_clock()
        if now is None and (measured := self.measured) is not None:
            # Counted on from the measurement: a step of the machine's wall clock changes nothing.
            passed_ms = (self.machine.monotonic() - measured.until.monotonic) * 1000
            now = measured.store_ms + int(passed_ms * (1 - CLOCK_DRIFT_MAX))
        return now

    def latest_ms(self, now_ms: int) -> int:
        """The latest that the store's clock may show when the time of a commit is ``now_ms``.

        Whatever begins (a lease, a delay) counts from it, so another writer whose clock is better does not end it
        early. The machine's clocks count by the one that says more: while it was suspended, one may have stood still.
        """
        measured = self.measured
        if measured is None or self.store_clock() is not None:
            return now_ms
        passed_ms = self.machine.ms_since(measured.since) * (1 + CLOCK_DRIFT_MAX)
        return max(now_ms, measured.store_ms + self.tick_ms + int(passed_ms))

    def timers_ms(self, state: State) -> int:
        """Return the time up to which timers of a head may have ended: a claim may find what they make due.

        If the store's clock has to be measured, return the latest time that it may show. The claim then measures it.
        """
        now = self.earliest_ms()
        if now is None:
            return self.machine.now_ms()
        self._warn_of_time(self.ahead_ms(state))
        return self.latest_ms(now) if self.clock_is_due() else now

    @property
    def clock_age_ms_max(self) -> float:
        """The life of a measurement: as the machine's clock drifts, its error must stay small beside a tick."""
        return min(limits.CLOCK_AGE_MS_MAX, max(self.tick_ms, CLOCK_ERROR_MS) / CLOCK_DRIFT_MAX)

    def clock_is_due(self) -> bool:
        """Does the store's clock have to be measured (again)?"""
        if self.store_clock() is not None:
            return False
        measured = self.measured
        if measured is None:
            return True
        now = self.machine.moment()
        age_ms = (now.monotonic - measured.until.monotonic) * 1000
        return clocks_disagree(measured.until, now) or age_ms > self.clock_age_ms_max

    def tell_time(self) -> Flow[None]:
        """Measure the store's clock if that is due. Raises Unavailable if the store does not give its time."""
        tries = Tries(NEEDED)
        while self.clock_is_due():
            reply = yield from self.measure_clock()
            if self.clock_is_due() and (is_refusal(reply) or not (yield from tries.again())):
                raise _without_time(reply)

    def measure_clock(self) -> Flow[StoreReply]:
        """Write a small object and ask the store when it was written. Return the store's last reply.

        That was between the first request and the last answer, however long they took. The answer to the write does
        not end the interval: the object may be written again meanwhile, by another writer, or by this request where it
        arrives twice.
        """
        since, self.clock_put = self.clock_put, None
        reply: StoreReply | None = None
        if since is None or self.machine.ms_since(since) > CLOCK_PUT_MS_MAX:
            since = self.machine.moment()
            reply = yield self._clock_put()
        if isinstance(reply, Failed) and reply.too_soon:
            reply = yield from self._overhear_clock()
        elif reply is None or isinstance(reply, Written):
            reply = yield Get(self.root + CLOCK)
            if isinstance(reply, Found):
                self._set_clock(reply.modified_ms, since)
        return reply

    def remove_clock(self) -> Flow[None]:
        """Remove what was written beside the first read of a head that is not there: no queue is left to remove it."""
        if self.clock_put is not None:
            self.clock_put = None
            yield Delete((self.root + CLOCK,))

    def _clock_put(self) -> Put:
        """Return what writes the object whose time the store is asked for."""
        body = self.machine.bits(64).to_bytes(8, "big")  # a version of its own, where a version is a hash
        return Put(self.root + CLOCK, body)

    def _overhear_clock(self) -> Flow[StoreReply]:
        """Learn the time from others, where the store takes no second write of the object so soon.

        A version that is not the one of the look before was written between the two. Why the store refuses to write,
        and for how long it has, is not known: one look alone says nothing.
        """
        since = self.machine.moment()
        found = yield Get(self.root + CLOCK)
        if isinstance(found, Found):
            seen, self.clock_seen = self.clock_seen, (found.version, since)
            if seen is not None and seen[0] != found.version:
                self._set_clock(found.modified_ms, seen[1])
        return found  # type: ignore[no-any-return]

    def _set_clock(self, store_ms: int, since: Moment) -> None:
        """The store's clock stood there between that moment and this one."""
        until = self.machine.moment()
        # A client that stood still meanwhile knows too little, and asks again.
        if not clocks_disagree(since, until) and until.monotonic - since.monotonic <= MEASURING_SECONDS_MAX:
            self.measured = ClockReading(store_ms, since, until)

    def forget_old_blocks(self) -> None:
        """Called between commits: blocks are immutable, so keeping them is always safe, but not free."""
        if len(self.blocks) > BLOCKS_KEPT:
            self.blocks.clear()
