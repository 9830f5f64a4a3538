"""Waiting at the heads of a queue's shards, as flows: one look for all who wait, and a worker's rest between claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ..commit.effects import All, AwaitNews, QueueFlow
from ..commit.writer import HEAD
from ..core.claim_search import is_idle
from ..core.encoding import decode_head
from ..objects.layout import root_of
from ..stores.base import Failed, Found, Get, Unchanged
from .context import FlowContext
from .head_board import (
    JITTER_SHARE,
    NEVER,
    NEVER_BEFORE,
    OVERDUE_SECONDS,
    HeadListener,
    Pace,
    SeenHead,
    WorkWaiter,
    hint_of,
    pace_of,
)
from .waiters import CompletionBoard, board_of, news_board_of

if TYPE_CHECKING:  # loaded where a process waits
    from .news_board import NewsBoard

POLL_SECONDS = 1.0  # between two looks of one who waits, at most


class WaitFlows(FlowContext):
    """The flows of those who wait for something that a head will tell."""

    def board(self, shard: int) -> CompletionBoard:
        """Where those of this process meet who wait at the head of a shard."""
        return board_of(self.place, root_of(self.queue, shard))

    def hearing_board(self, shard: int) -> CompletionBoard:
        """The same for one who is about to wait: where the store can tell, it tells of new heads from now on."""
        board = self.board(shard)
        process = self.machine.process()  # a fork's child listens anew
        if self.listen is not None and self._hearing.get(board) != process:
            self._hearing[board] = process
            board.hinted = self.listen(board.root + HEAD, hint_of(board))
        return board

    def news_board(self, boards: Iterable[CompletionBoard]) -> NewsBoard | None:
        """Return where this process reads the news of the store for these boards; None: it looks at each head."""
        if self.news is None:
            return None
        news = news_board_of(self.place, self.news)
        for board in boards:
            if board.news is not news:
                news.add(board)
        return news if news.is_needed else None

    def pace(self, poll: float = POLL_SECONDS) -> Pace:
        """How often to look, at a store of this kind."""
        return pace_of(self.look_pace, poll)

    def look(self, boards: Sequence[CompletionBoard], pace: Pace) -> QueueFlow[None]:
        """Look at the heads of some shards, for all who wait there."""
        now = self.machine.monotonic()
        asked = []
        for board in boards:
            board.looking(pace, now, self.machine.uniform())
            # What a claim may find is no answer yet; what becomes of a job is.
            asked.append(Get(board.root + HEAD, unless=board.version, flushed=board.tells_of_jobs))
        replies: Sequence[Any]
        if len(asked) == 1:
            replies = ((yield asked[0]),)
        else:
            replies = yield All(tuple(asked))
        for board, get, reply in zip(boards, asked, replies, strict=True):
            if isinstance(reply, Failed):
                board.note_failure(reply.error)
            elif get.flushed or not board.tells_of_jobs:
                if isinstance(reply, Found):
                    if get.unless is not None:
                        board.found()
                    board.see(decode_head(reply.body), reply.version)
                elif isinstance(reply, Unchanged):
                    board.confirm(get.unless)
            board.after_look()

    # ── Workers ──────────────────────────────────────────────────────────────
    def work_waiter(self, kinds: Sequence[str] | None = None, poll: float = POLL_SECONDS) -> WorkWaiter:
        """One who claims jobs of these kinds, again and again."""
        return WorkWaiter(self.pace(poll), kinds)

    def known_idle(self, waiter: WorkWaiter) -> bool:
        """Have others who wait here seen just now that nothing is there to claim? Then nobody has to ask again.

        A head that they saw is as old as a look of this waiter's may be; by its own state nothing waits in it, and by
        the time nothing has become due.
        """
        now = self.machine.monotonic()
        count = self.shards_seen()
        for shard in range(count):
            board = self.board(shard)
            state = board.state
            longest = max(waiter.pace.slow, board.pause)
            believed = now - board.looked <= longest * (1 + JITTER_SHARE) + OVERDUE_SECONDS
            if state is None or board.silence is not None or not believed or not is_idle(state, waiter.kinds):
                return False
            if shard == 0 and state.settings.shards != count:  # a claim learns of the others
                return False
            if self._due_at(waiter, shard, board, now) <= now:
                return False
        return count > 0

    def rest(
        self, waiter: HeadListener, seconds: float = NEVER, heads: Mapping[int, SeenHead] | None = None
    ) -> QueueFlow[None]:
        """After an empty claim: wait until the next one may find something, so many seconds at most.

        That is when a head holds a job that can be claimed, when a lease ends or a job becomes due, and when the store
        refuses looks for good: the claim tells why. So for those who wait for anything else that heads tell.
        ``heads``: those of all shards that the one who waits has seen; else what this process has seen of them.
        """
        began = self.machine.monotonic()
        until = began + seconds
        waiter.ready = False
        with ExitStack() as stack:
            boards: dict[int, CompletionBoard] = {}
            for shard in range(len(heads or ()) or self.shards_seen() or 1):
                board = boards[shard] = self.hearing_board(shard)
                stack.enter_context(board.present(waiter, self.machine.monotonic()))
                head = self.writers[shard].head if heads is None else heads[shard]
                if head is not None and head.version is not None:
                    board.offer(waiter, head.state, head.version)
            news: NewsBoard | None = None
            while True:
                waiter.news = False
                now = self.machine.monotonic()
                if news is None:  # the process may wait at more heads since
                    news = self.news_board(boards.values())
                    if news is not None:
                        stack.enter_context(news.present(waiter, now))
                if news is not None and news.look_at(waiter, now) <= now:
                    yield from news.look(waiter.pace, now, self.machine.uniform())
                    now = self.machine.monotonic()
                closed = waiter.closed_until if isinstance(waiter, WorkWaiter) else NEVER_BEFORE
                late = [board for board in boards.values() if max(closed, board.look_at(waiter, now)) <= now]
                if late and not waiter.ready:
                    yield from self.look(late, waiter.pace)
                    now = self.machine.monotonic()
                at = until if news is None else min(until, news.look_at(waiter, now))
                for shard, board in boards.items():
                    if board.refused_since(began):
                        return
                    look_at = max(closed, board.look_at(waiter, now))
                    at = min(at, self._due_at(waiter, shard, board, now), look_at)
                first = boards[0].state
                grown = first is not None and first.settings.shards != len(boards)
                if (
                    isinstance(waiter, WorkWaiter) and waiter.again_at < NEVER
                ):  # a limiter said so, and no head
                    if now < min(closed, waiter.again_at):
                        waiter.ready = False
                    waiter.ready = waiter.ready or waiter.again_at <= now
                    at = min(at, waiter.again_at)
                if waiter.ready or waiter.stopped or self.closing or now >= until or grown:
                    return
                yield AwaitNews(waiter, max(0.0, at - now))

    def _due_at(self, waiter: HeadListener, shard: int, board: CompletionBoard, now: float) -> float:
        """When a claim at a shard may find what time has brought, and not sooner."""
        state = board.state
        if state is None or not isinstance(waiter, WorkWaiter):
            return NEVER
        timer = waiter.timer(board.root, state, now)
        if timer is None:
            now_ms = self.writers[shard].timers_ms(state)
            timer = waiter.set_timer(board.root, state, now_ms, now, self.machine.uniform())
        if timer.at <= now:
            waiter.try_due(timer, now)
        return timer.at
