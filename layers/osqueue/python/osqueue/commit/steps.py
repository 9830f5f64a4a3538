"""The steps of a commit that its paths share: read the head, judge a request by it, reduce, swap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import crontab, limits
from ..clock import Moment
from ..core.backlog import NeededRange
from ..core.claim_search import needs_of_claims
from ..core.context import ReductionContext, StagedObject
from ..core.ops import Identity, Outcome, Request
from ..core.reduce import Reduction, Told, reduce
from ..core.state import State
from ..core.timers import has_due_timers
from ..errors import Throttled, Unknown
from ..stores.base import (
    Delete,
    Failed,
    Found,
    Get,
    Listed,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    StoreReply,
    Written,
)
from .announcements import Announcements
from .block_reader import Place, read_blocks
from .deadline import Deadline
from .effects import All, Flow
from .news import REST_MS, NewsRequest
from .request_status import CommitResult, RequestStatus, outcomes_of, status_of_request
from .writer import HEAD, Head, ShardWriter

LOAD_ROUNDS_MAX = 12 + limits.TOMBSTONES_MAX  # reads of segments one after the other, for one reduction
CHANCE_MASK = (1 << 64) - 1
DIRECT_MS_MAX = limits.SECOND_MS // 2  # direct commits in a row for this long look for announced requests
PUBLISHED_MS_MAX = 20 * limits.SECOND_MS  # the same where writers publish, since they read the doors as well
SETTLED_PER_DELETE_MAX = 500  # intents; with the longest keys, half of the megabyte that servers take
NEWS_REQUESTS_MAX = 4  # of one report, after the one beside the swap
CROWDED = "too many writers are active on this queue. Repeat later, or add shards."


class RequestRefused(Throttled):
    """A commit refused the request finally: the head had no room for what the request would leave there."""

    def __init__(self, message: str, events: tuple[Told, ...] = ()) -> None:
        super().__init__(message)
        self.events = events  # transitions of that commit, if this writer made it


class BeginAgain(Exception):
    """The request was certainly not applied and never will be: begin again under a new identity."""


def _with_others(request: Request, others: Sequence[Request]) -> list[Request]:
    """Return each request once, the writer's own last: it may have been read back."""
    each = {other.identity: other for other in others}
    each.pop(request.identity, None)
    return [*each.values(), request]


class Steps:
    """One run of the protocol, as far as all paths share it."""

    def __init__(self, writer: ShardWriter, deadline: float, look_first: bool) -> None:
        self.changes = False  # does this call most likely change the head?
        self.look_first = look_first  # take along what is announced, contended or not
        self.writer = writer
        self.deadline = Deadline(writer, deadline)
        self.unreadable: set[Place] = set()  # what the head refers to and no read brings
        self.stumbles = 0  # reads of segments in a row that failed
        self.announcements: Announcements | None = None  # of others, once this commit has to take them along
        self.lost = (
            False  # was the last swap lost? Then another writer's was won, and there is a new head to read
        )
        self.refused: Head | None = None  # on which the last swap was refused
        self.left_out = 0  # commits in a row that had no room for this request
        self.unsure: dict[bytes, tuple[Told, ...]] = {}  # transitions of swaps without a response, by commit
        self.applied: dict[Identity, tuple[Outcome, ...]] = {}  # by the latest swap that was won

    def reread(self) -> Flow[Head]:
        """Read the head until the store returns it or the deadline passes."""
        self.deadline.in_time()
        tries = 0
        while not isinstance(head := (yield from self.writer.read_head(self.looks_at_news())), Head):
            tries += 1
            yield from self.deadline.back_off(tries, head)
        return head

    def await_flush(self, head: Head) -> Flow[None]:
        """Wait until the head that a result is read from would survive a power cut: its writer may still flush it."""
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

    def write(self, objects: Sequence[StagedObject]) -> Flow[bool]:
        """Write what a head will refer to. Return whether all of it is there.

        Writers that reduce the same head may give an object the same name. It is created, not replaced: a purge may
        have blanked it since.
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
        """Run the state machine and read what it asks for. Return None if what the head refers to is gone."""
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
            seen = (writer.blocks, frozenset(self.unreadable), writer.observed, writer.latest_ms(now))
            again = writer.commits_again(head) if writer.publishes else None
            context = ReductionContext(now, commit_id, chance, *seen, crontab.ticks, writer.wakes, again)
            reduction = reduce(head.state, requests, context, listed=listed)
            wanted = self.unread(reduction.missing)
            rounds += 1
            if not wanted or not load or rounds == LOAD_ROUNDS_MAX:
                return reduction

    def clock_is_wanted(self, state: State, changes: bool) -> bool:
        """Return whether to measure the store's clock now: not for a result that neither writes nor depends on it."""
        writer = self.writer
        return writer.clock_is_due() and (changes or has_due_timers(state, writer.timers_ms(state)))

    def unread(self, needs: Iterable[NeededRange]) -> list[NeededRange]:
        """Return the needs that have neither been read nor found unreadable."""
        read, failed = self.writer.blocks, self.unreadable
        return [need for need in needs if need.place not in read and need.place not in failed]

    # ── What became of a request ─────────────────────────────────────────────
    def look(self, request: Request, head: Head) -> Flow[CommitResult | None]:
        """Return the result of a request from a head that was just read, or None if the head has none."""
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
                raise BeginAgain
            case RequestStatus.NEVER:
                raise BeginAgain
            case RequestStatus.UNKNOWN:
                self.writer.redraw()
                if not self.deadline.sent:
                    raise BeginAgain
                raise Unknown(
                    "it is not known any more whether this operation was applied: its writer sent nothing for too long."
                    " Look at the queue before you repeat it."
                )

    def refuse(self, state: State, request: Request, reduction: Reduction) -> None:
        """Raise why the reducer does not take a request that this call has not sent."""
        if reduction.crowded:
            raise Throttled(CROWDED)
        status = status_of_request(state, request)
        if status is RequestStatus.TURNED_AWAY:  # sent by others, or before: one of a batch
            raise RequestRefused(CROWDED)
        if status is RequestStatus.CLONED or request.env in state.sessions:
            self.writer.redraw()
        raise BeginAgain

    # ── News ─────────────────────────────────────────────────────────────────
    def ends_rest(self, head: Head | None) -> bool:
        """Return whether a commit on this head ends a rest, as far as is known.

        While a head is ahead of the store's clock its time stands still, so the length of its rest is not known.
        """
        if head is None or head.version is None or self.writer.ahead_ms(head.state):
            return True
        return self.writer.now_ms(head.state) - head.state.now_ms >= REST_MS

    def looks_at_news(self) -> Sequence[Get]:
        """Return what to read beside the head, so that the commit after it can report the end of a rest."""
        writer = self.writer
        changes = self.changes or (writer.head is None and writer.will_write)
        if writer.news is None or not changes or not self.ends_rest(writer.head):
            return ()
        return (writer.news.look(),)

    def news_of_rest(self, head: Head) -> Sequence[NewsRequest]:
        """Return what to send beside a swap of this head to report the end of its rest."""
        writer = self.writer
        if writer.news is None or not self.ends_rest(head):
            return ()
        return writer.news.report(writer.root, writer.machine)

    def send_news(self, request: NewsRequest, reply: StoreReply, began: Moment) -> Flow[None]:
        """Report the end of a rest after the swap, if the request beside it could not."""
        news, writer = self.writer.news, self.writer
        assert news is not None
        for requests_left in reversed(range(NEWS_REQUESTS_MAX)):
            last = requests_left < 2
            again = news.report_again(request, reply, began.monotonic, writer.root, writer.machine, last=last)
            if not again:
                return
            (request,), began = again, writer.machine.moment()
            reply = yield request

    # ── To commit it ─────────────────────────────────────────────────────────
    @property
    def direct_ms_max(self) -> int:
        """After how many milliseconds a run of direct commits looks for announced requests.

        Where writers publish, an announced request is at the door as well.
        """
        return PUBLISHED_MS_MAX if self.writer.publishes else DIRECT_MS_MAX

    def apply(
        self, request: Request, head: Head, others: Sequence[Request], *, read: bool = True
    ) -> Flow[CommitResult | None]:
        """Commit the request together with others. Return None if that was not possible this time.

        ``read`` states that this call has read the head: then a result that needs no commit may come from it.
        """
        in_a_run = not self.writer.publishes or head.state.direct >= limits.HOT_COMMITS
        if in_a_run and self.writer.now_ms(head.state) - head.state.direct_ms >= self.direct_ms_max:
            return (yield from self.combine(request, head, noted=others))
        requests = _with_others(request, others)
        reduction = yield from self.reduce(head, requests, load=True)
        if reduction is None:
            return None
        writes = reduction.changed or reduction.crowded or bool(others) or self.deadline.sent
        if self.clock_is_wanted(head.state, writes):
            yield from self.deadline.tell_time()
            reduction = yield from self.reduce(head, requests, load=True)
            if reduction is None or self.writer.clock_is_due():
                return None
        own = reduction.outcomes.get(request.identity)
        if own is None and not self.deadline.sent:
            self.refuse(head.state, request, reduction)
        if (
            own is None
        ):  # a later reader of its note may have room: it applies the request, or refuses it finally
            return None
        # A writer that reads the request again must find its result in the head: by then another one may be due.
        if reduction.changed or others or self.deadline.sent:
            return (yield from self.swap(request, head, reduction, ()))
        if not read:
            return None
        yield from self.await_flush(head)
        return CommitResult(own, head.state.now_ms)

    def combine(
        self, request: Request, head: Head, listed: Listed | None = None, noted: Sequence[Request] = ()
    ) -> Flow[CommitResult | None]:
        """Apply every announced request, this one included, in one swap. Return None if that brought no result."""
        yield from self.deadline.tell_time()  # others' leases are granted by it, and it may have stood still
        if self.announcements is None:
            self.announcements = Announcements(self.writer, self.deadline, unpublish=self.look_first)
        looked = yield from self.announcements.gather(head, request, listed)
        if looked is None:
            return None
        others, done, fresh = looked
        if fresh.version != head.version:
            answer = yield from self.look(request, fresh)
            if answer is not None:
                return answer
            head = fresh
        requests = _with_others(request, [*others, *noted])
        reduction = yield from self.reduce(head, requests, load=True, listed=True)
        if reduction is None or self.writer.clock_is_due():  # it may have been set while segments were read
            return None
        if request.identity not in reduction.outcomes:
            would_be = status_of_request(reduction.state, request)
            if would_be is RequestStatus.PENDING:  # there is no room for it, nor for its refusal
                self.left_out += 1
                yield from self.deadline.back_off(self.left_out)
            if would_be is not RequestStatus.TURNED_AWAY:
                return None
        return (yield from self.swap(request, head, reduction, done))

    def yields(self, head: Head, sent: bool) -> bool:
        """Return whether a swap yields to a writer that has the turn.

        It does so once in a call: a call that has ``sent`` a swap has waited for the turn since, perhaps for nothing.
        """
        writer = self.writer
        return writer.turns and writer.turn is None and not sent and writer.is_alone(head)

    def swap(
        self, request: Request, head: Head, reduction: Reduction, done: tuple[str, ...]
    ) -> Flow[CommitResult | None]:
        """Write what the new head refers to, then the head, if it is still the one that was read.

        Settled intents go at the same time: they are part of the head that was read, whichever writer wins now.
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
            else PutIfMatch(
                writer.root + HEAD,
                body,
                head.version,
                self.deadline.left() / 2,
                True,
                self.yields(head, sent),
            )
        )
        # All of them, or they would stand before younger announcements in the next listing. What another writer's lock
        # keeps now, the next combiner finds again.
        starts = range(0, len(done), SETTLED_PER_DELETE_MAX)
        deletes = [Delete(done[at : at + SETTLED_PER_DELETE_MAX], wait_seconds=0.0) for at in starts]
        looks = writer.looks_beside(reduction.state)
        news = self.news_of_rest(head)
        if deletes or looks or news:
            reply, *others = yield All((put, *looks, *deletes, *news))
        else:
            reply, others = (yield put), []
        if not isinstance(reply, Written):
            self.lost = True
            self.refused = head if isinstance(reply, Refused) else None
            self.unsure[reduction.state.commit] = reduction.told
            writer.shared = True
            self.deadline.complain(reply)
            if isinstance(reply, Failed) and reply.too_soon:
                writer.note_written()
            if isinstance(reply, Failed) and reply.error.permanent and not sent:
                raise reply.error  # refused finally, and nothing else was sent: it did not happen
            if news and isinstance(reply, Failed):  # it may have happened, and then nothing reports it later
                yield from self.send_news(news[0], others[-1], began)
            return None
        writer.won(reduction.state, reply.version, began)
        writer.keep_looks(looks, others[: len(looks)])
        self.applied = reduction.outcomes
        if news:
            yield from self.send_news(news[0], others[-1], began)
        outcomes = reduction.outcomes.get(request.identity)
        if outcomes is None:
            raise RequestRefused(CROWDED, reduction.told)
        return CommitResult(outcomes, reduction.state.now_ms, reduction.told)
