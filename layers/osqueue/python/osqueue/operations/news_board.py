"""News of an address, read once for all who wait in this process, so that idle heads are looked at in turn.

Where a process waits at more than HEADS_WITHOUT_NEWS heads of a store, one of its waiters looks at the object ``news``
in each ``poll``, and the board of a head that a new notice names looks at once (``commit.news`` has what writes them).
A head is *at rest* once it has not changed for REST_SECONDS under continuous news. Each head at rest is looked at once
in as many pauses as there are heads. So an idle process sends two GETs in each ``poll``, however many heads it has.

The bound of a lost notice: a commit on a head at rest is found after ``heads * poll * (1 + JITTER_SHARE)`` seconds at
the latest, 50 s with 40 heads and a ``poll`` of 1 s. Commits that follow it write no notice, and are found with it.

Why no other commit is late: a head counts as at rest only if looks confirmed for REST_SECONDS that it is the same, and
a commit on a head that is REST_MS old writes a notice. REST_SECONDS is the longer time, by more than clocks differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakSet

from ..commit.effects import QueueFlow
from ..commit.news import NEWS, News, encoded, place_in_news, place_of
from ..commit.retry import is_refusal
from ..stores.base import Found, Missing, PutIfAbsent, StoreReply, Unchanged
from .head_board import JITTER_SHARE, NEVER, NEVER_BEFORE, OVERDUE_SECONDS, HeadBoard, HeadWaiter, Pace

HEADS_WITHOUT_NEWS = 2  # as many looks as the news and one head at rest take
PAUSES_TRUSTED = 2  # without a look at the news that succeeded; then heads are not at rest


class NewsBoard(HeadBoard):
    """The waiters of this process that read a store's news, and the boards that the news are for."""

    def __init__(self, news: News) -> None:
        self.read = news
        super().__init__("")

    def start_afresh(self) -> None:
        self.boards: WeakSet[HeadBoard] = WeakSet()
        super().start_afresh()

    def _forget(self) -> None:
        super()._forget()
        self._last: str | None = None  # the latest notice that was read; without one, the object's version
        self.since = NEVER  # monotonic seconds; from then on no notice was missed
        self._read_at = NEVER_BEFORE  # monotonic seconds of the latest look that succeeded
        self._may_create = True  # unless the store has refused it

    @contextmanager
    def present(self, waiter: HeadWaiter, now: float, quick: bool = False) -> Iterator[None]:
        try:
            with super().present(waiter, now, quick):
                yield
        finally:
            if not self._present:
                self._rouse(self._all())

    def add(self, board: HeadBoard) -> None:
        """Let a board have the news of its head."""
        with self._lock:
            self.boards.add(board)
        board.news = self

    def _all(self) -> list[HeadBoard]:
        with self._lock:
            return list(self.boards)

    @property
    def heads(self) -> int:
        """The number of heads at which this process waits."""
        return sum(1 for board in self._all() if board.is_awaited)

    @property
    def is_needed(self) -> bool:
        """Whether this process waits at so many heads that looks in turn and the news cost less."""
        return self.heads > HEADS_WITHOUT_NEWS

    def covers(self, since: float, now: float) -> bool:
        """Return whether every notice from a moment until now was read, or will be by the next look."""
        late = PAUSES_TRUSTED * self.pause * (1 + JITTER_SHARE) + OVERDUE_SECONDS
        return self.since <= since and now - self._read_at <= late

    # ── Looks ────────────────────────────────────────────────────────────────
    def look(self, pace: Pace, now: float, chance: float) -> QueueFlow[None]:
        """Read the news for all who wait, and create them if there are none."""
        self.looking(pace, now, chance)
        get = self.read.look()
        reply = yield get
        if isinstance(reply, Missing) and self._may_create:
            self._may_create = not is_refusal((yield PutIfAbsent(NEWS, encoded(()))))
        self.read.see((get,), (reply,), now)
        self._rouse(self._take_in(reply, now))

    def _take_in(self, reply: StoreReply, now: float) -> Sequence[HeadBoard]:
        """Return the boards that have to look after this reply."""
        known = self.read.known
        with self._lock:
            if not isinstance(reply, Found | Unchanged) or known is None or known.version is None:
                return ()
            self._read_at = now
            began, self.since = self.since == NEVER, min(self.since, now)
            last, self._last = self._last, known.notices[-1] if known.notices else known.version
            if began or last == self._last:
                return ()
            boards = list(self.boards)
        if last not in known.notices:
            return boards
        places = {place_of(each) for each in known.notices[known.notices.index(last) + 1 :]}
        return [board for board in boards if place_in_news(board.root) in places]

    @staticmethod
    def _rouse(boards: Sequence[HeadBoard]) -> None:
        for board in boards:
            board.rouse()
