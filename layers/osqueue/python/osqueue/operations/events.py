"""Events for everybody: the recorded transitions of a queue from a cursor on, whoever committed them.

A reader asks each shard to record its transitions (``core.event_log``), once an hour again, and reads heads: at once
after a commit of its own process, else when it looks. So an event is told at most a poll and one read after its commit,
and in the order of commits within its shard. Every event has a cursor, with which another reader, in another process
and later, goes on behind it: at least once, for whoever keeps the cursor after the work.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from .. import limits
from ..commit.effects import Flow, QueueFlow, Sleep, Submit
from ..commit.retry import HEAD_READ, NEEDED, ask_all
from ..commit.writer import HEAD
from ..core.encoding import decode_head
from ..core.event_log import POSITIONS_PER_COMMIT
from ..core.queue_ops import RecordEvents
from ..core.state import State, Transition
from ..errors import Conflict, Damaged, Expired, NotFound
from ..model.event import PREFIX, Event, ShardPosition, cursor_of, positions_of, public_event
from ..model.validation import milliseconds, moment_ms
from ..objects import event_objects
from ..objects.layout import is_registered, read_state, root_of, unavailable
from ..stores.base import Found, Get, Missing, Unchanged
from .head_board import EventWaiter, SeenHead
from .results import ResultFlows
from .waiting import POLL_SECONDS

EVENTS_PER_PAGE_MAX = 1_000
POLL_MS_MIN, POLL_MS_MAX = 10, limits.HOUR_MS
REST_SECONDS_MAX = 600.0  # after which a listener sees to it that transitions are still recorded
KEPT = "they are kept for a day, and recorded while somebody listens"
ASKS_PER_LOG = 24  # so often a listener asks again while a wish to record lasts


class ReadTransition(Struct, frozen=True):
    """A transition, and how far its reader is behind it."""

    at_ms: int
    shard: int
    position: ShardPosition
    transition: Transition


class EventReader:
    """One listener of a queue."""

    def __init__(
        self,
        flows: ResultFlows,
        since: str | datetime | float | None,
        poll: float = POLL_SECONDS,
        creates: bool = True,
        records: bool = True,
    ) -> None:
        """Read from a cursor, from a time, or from now on.

        ``creates``: whether a queue that is missing is created. ``records``: whether the reader has transitions
        recorded; if not, it commits nothing. Raises Rejected.
        """
        self._flows = flows
        self._queue = flows.queue
        self._pace = flows.pace(milliseconds(poll, "poll", POLL_MS_MIN, POLL_MS_MAX) / 1000)
        self._creates = creates and records
        self._records = records
        self._heads: dict[int, SeenHead] = {}
        self.positions: dict[int, ShardPosition] = {}  # by shard
        self._since_ms: int | None = None  # None: shards that come later are read from their beginning
        self._from_now = since is None
        if isinstance(since, str):
            self.positions = positions_of(since)
        elif since is not None:
            self._since_ms = moment_ms(since, "since", limits.AT_MS_MAX)

    @property
    def cursor(self) -> str:
        """To go on behind all that was read; empty before it has begun."""
        return cursor_of(self.positions) if self.positions else ""

    def begin(self) -> QueueFlow[None]:
        """From now on nothing is missed. ``page`` does it where nobody else has."""
        yield from self._look()

    def page(self, limit: int = EVENTS_PER_PAGE_MAX, wait: float = 0.0) -> QueueFlow[list[Event]]:
        """The next events, or none when there were none for ``wait`` seconds.

        Raises Expired when some that follow are not kept any more, Damaged, Unavailable.
        """
        machine = self._flows.machine
        until = machine.monotonic() + wait
        while True:
            yield from self._look()
            before = dict(self.positions)
            events = yield from self._read(limit)
            left = until - machine.monotonic()
            if events or (before == self.positions and (left <= 0 or self._flows.closing)):
                return events
            if before == self.positions:
                waiter = EventWaiter(self._pace, self._roots())
                yield from self._flows.rest(waiter, min(left, REST_SECONDS_MAX), self._heads)

    def _roots(self) -> dict[str, tuple[int, int]]:
        return {root_of(self._queue, shard): (at.epoch, at.position) for shard, at in self.positions.items()}

    # ── Heads ────────────────────────────────────────────────────────────────
    def _look(self) -> QueueFlow[None]:
        """Read the heads, and see to it that transitions are recorded."""
        yield from self._read_heads(range(max(1, len(self._heads))))
        yield from self._read_heads(range(len(self._heads), self._heads[0].state.settings.shards))
        for shard, head in self._heads.items():
            now = yield from self._flows.moment(shard, head.state)
            if not self._records:
                if not head.state.log.is_recorded_at(now):
                    raise NotRecorded(self._queue)
            elif head.state.log.until_ms - now < limits.EVENTS_KEPT_MS * (ASKS_PER_LOG - 1) // ASKS_PER_LOG:
                yield from self._record(shard)
            if shard not in self.positions:
                self.positions[shard] = yield from self._beginning(shard)
        self._from_now = False

    def _record(self, shard: int) -> QueueFlow[None]:
        """Have transitions recorded for as long as they are kept; again if that time ended before the head was read."""
        recorded = False
        while not recorded:
            yield Submit(shard, (RecordEvents(),))
            yield from self._read_heads([shard])
            recorded = self._heads[shard].state.log.until_ms > 0

    def _read_heads(self, shards: Sequence[int]) -> QueueFlow[None]:
        known = [self._heads.get(shard) for shard in shards]
        gets = [
            # What is told has to outlast a power cut, although its writer may be flushing yet.
            Get(root_of(self._queue, shard) + HEAD, unless=head.version if head else None, flushed=True)
            for shard, head in zip(shards, known, strict=True)
        ]
        for shard, reply in zip(shards, (yield from ask_all(gets, HEAD_READ)), strict=True):
            if isinstance(reply, Missing):
                yield from self._create(shard)
            elif isinstance(reply, Found):
                self._heads[shard] = SeenHead(reply.version, decode_head(reply.body))
            elif not isinstance(reply, Unchanged):
                raise unavailable(reply, "the queue's head")

    def _create(self, shard: int) -> QueueFlow[None]:
        """There is no head. Somebody may listen before the first job comes."""
        if not (yield from is_registered(self._queue)):
            if self.positions or self._heads:
                raise _gone("the queue was removed")
            if not self._creates:
                raise NotFound(
                    f"queue {self._queue}: nobody has used it yet. The first enqueue makes it; listen then."
                )
            yield from self._flows.known_queue()
            yield Submit(shard, (RecordEvents(),))
        for tried in range(1, NEEDED.tries):  # another one may be making it
            state = yield from read_state(self._queue, shard)
            if state is not None:
                yield from self._read_heads([shard])
                return
            yield Sleep(NEEDED.pause_after(tried))
        raise Damaged(
            f"queue {self._queue}: shard {shard} has no head: it is lost, or the first enqueue never came through."
            " 'osqueue doctor' tells which, and what to do before anybody enqueues."
        )

    def _beginning(self, shard: int) -> Flow[ShardPosition]:
        """Where to begin in a shard of which the cursor, if there is one, tells nothing: it came later."""
        state = self._heads[shard].state
        if self._from_now:
            return ShardPosition(state.epoch, state.seq, state.log.end)
        at = yield from self._oldest(shard, -1)
        if self._since_ms is None and at.position % POSITIONS_PER_COMMIT:
            raise _gone(KEPT)
        return at

    def _oldest(self, shard: int, behind: int) -> Flow[ShardPosition]:
        """The oldest position behind another one that is kept, of the wished time on."""
        state = self._heads[shard].state
        root = root_of(self._queue, shard)
        for each in (yield from event_objects.objects_since(root, self._since_ms or 0, state.epoch)):
            if each.first > behind:
                return ShardPosition(state.epoch, each.born, each.first)
        return ShardPosition(state.epoch, state.seq, state.log.first)

    # ── Rows ─────────────────────────────────────────────────────────────────
    def _read(self, limit: int) -> QueueFlow[list[Event]]:
        rows = []
        for shard, head in self._heads.items():
            rows.append((yield from self._rows(shard, head.state, limit)))
        events: list[Event] = []
        for row in heapq.merge(*rows, key=lambda each: each.at_ms):
            self.positions[row.shard] = row.position
            event = public_event(self._queue, row.transition)
            if event is not None and row.at_ms >= (self._since_ms or 0):
                events.append(replace(event, cursor=cursor_of(self.positions)))
                if len(events) == limit:
                    break
        return events

    def _rows(self, shard: int, state: State, most: int) -> Flow[list[ReadTransition]]:
        """What follows in a shard."""
        at, log = self.positions[shard], state.log
        if at.epoch != state.epoch:
            raise _gone("the queue was restored or made anew since, or it is another one's cursor")
        found: list[ReadTransition] = []
        while at.position < log.first and len(found) < most:
            root = root_of(self._queue, shard)
            rows = yield from event_objects.rows_behind(root, at.epoch, at.seq, at.position, log.first, most)
            if not rows and not found and self._since_ms is None:
                raise _gone(KEPT)
            if not rows:  # who asks for what is kept since a time goes on behind a gap
                if found:
                    return found
                at = self.positions[shard] = yield from self._oldest(shard, at.position)
            for born, row in rows:
                at = ShardPosition(at.epoch, born, at.position + 1)
                found.append(ReadTransition(row.at_ms, shard, at, row))
        if at.position >= log.first:
            for row in log.rows[at.position - log.first :]:
                at = ShardPosition(at.epoch, state.seq, at.position + 1)
                found.append(ReadTransition(row.at_ms, shard, at, row))
        return found


class NotRecorded(Conflict):
    """The transitions of a queue are not recorded, and their reader may not have them recorded."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"events are not recorded on queue {queue}, and this caller may only read. They are recorded for a day"
            " after each read by a caller that may change the queue: one with the role operate, or 'osqueue events'"
            " over the store."
        )


def _gone(why: str) -> Expired:
    return Expired(
        f"since: some of the events that follow are not there any more: {why}. Begin at a time, or with what comes from"
        " now on."
    )


def since_of(text: str | None) -> str | float | None:
    """The beginning that a query parameter or an argument names: a cursor, or a Unix time in seconds."""
    if text is not None and not text.startswith(PREFIX):
        try:
            return float(text)
        except ValueError:
            pass  # it is told what a cursor is
    return text
