"""Group commit within one process, with one check removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from osqueue.commit import async_group, coalesce, group
from osqueue.commit.async_group import AsyncGroup
from osqueue.commit.effects import All, Effect
from osqueue.commit.group import BlockingGroup, CommitBatch, CommitWaiter
from osqueue.commit.writer import ShardWriter
from osqueue.core.ops import Outcome
from osqueue.forks import ProcessIdentity
from osqueue.queue import asynchronous
from osqueue.stores.base import Written

from .control import Control, in_runs, patched


def keep_what_nobody_heard() -> AbstractContextManager[None]:
    """Leases granted to a caller that has left stay with it."""

    def nothing(answer: Any) -> list[Any]:
        return []

    return patched(*((home, "give_back", nothing) for home in (group, async_group, asynchronous)))


def cancelled_unheard() -> AbstractContextManager[None]:
    """A cancelled coroutine leaves, and its group does not hear of it."""
    return patched((AsyncGroup, "leave", lambda self, waiter: None))


def torn_flown_on() -> AbstractContextManager[None]:
    """A batch that was interrupted inside the protocol is resumed like any other."""

    real = CommitBatch.run

    def run(self: Any, perform: Callable[[Effect], Any]) -> Any:
        try:
            return real(self, perform)
        finally:
            self.torn = False

    return patched((CommitBatch, "run", run))


def lost_is_done() -> AbstractContextManager[None]:
    """A write that was interrupted counts as done."""
    real = group._lost

    def lost(effect: Any) -> Any:
        if isinstance(effect, All):
            return tuple(map(lost, effect.requests))
        return Written("as it seems") if hasattr(effect, "body") else real(effect)

    return patched((group, "_lost", lost))


def shares_mixed_up() -> AbstractContextManager[None]:
    """The first caller is given what the last one asked for."""
    real = coalesce.split_outcomes

    def shares(run: Any, answer: Outcome) -> Sequence[Outcome]:
        return real(list(reversed(run)), answer)[::-1]

    return patched((group, "split_outcomes", shares))


def everybody_flies() -> AbstractContextManager[None]:
    """Each caller leads at once, although another one leads."""
    real = BlockingGroup._board

    def board(self: Any, waiter: CommitWaiter) -> None:
        real(self, waiter)
        self._leader = waiter

    return patched((BlockingGroup, "_board", board))


def nobody_inherits() -> AbstractContextManager[None]:
    """A batch whose thread was interrupted is forgotten, and its waiters are not told."""
    real = BlockingGroup._pass_on

    def pass_on(self: Any, waiters: Sequence[CommitWaiter] = ()) -> None:
        self._interrupted = None
        real(self)

    return patched((BlockingGroup, "_pass_on", pass_on))


def boards_too_early() -> AbstractContextManager[None]:
    """Waiters wait no more before their batch stands."""
    real = group.next_batch

    def boarding(waiting: list[CommitWaiter]) -> tuple[list[CommitWaiter], list[CommitWaiter]]:
        waiters, left = real(waiting)
        waiting[:] = left
        return waiters, left

    return patched((group, "next_batch", boarding))


def forked_writer() -> AbstractContextManager[None]:
    """A fork's child speaks with its parent's voice."""
    return patched((ShardWriter, "check_process", lambda self: None))


def identity_by_hooks() -> AbstractContextManager[None]:
    """A fork's child learns from hooks alone that it is another process."""
    return patched((ProcessIdentity, "id", lambda self: self._known))


def forked_threads() -> AbstractContextManager[None]:
    """A fork's child waits for the batch that its parent runs."""
    real = BlockingGroup.submit

    def submit(self: Any, *args: Any) -> Any:
        self._process = self.driver.machine.process()
        return real(self, *args)

    return patched((BlockingGroup, "submit", submit))


def forked_tasks() -> AbstractContextManager[None]:
    """The same with coroutines."""
    real = AsyncGroup.board

    def board(self: Any, *args: Any) -> Any:
        self._process = self.driver.machine.process()
        return real(self, *args)

    return patched((AsyncGroup, "board", board))


CONTROLS: tuple[Control, ...] = (
    Control("leases of those who left", keep_what_nobody_heard, (in_runs("shared", "not given back"),)),
    Control("cancelled callers", cancelled_unheard, (in_runs("shared", "not given back"),)),
    Control("torn batches", torn_flown_on, (in_runs("shared", "was told AssertionError", seed=20),)),
    Control(
        "a lost effect is not done",
        lost_is_done,
        (in_runs("shared", "invariant 5|answered without a commit|does not exist"),),
    ),
    Control("each its own share", shares_mixed_up, (in_runs("shared", "committed was"),)),
    Control("one batch at a time", everybody_flies, (in_runs("shared", "although nothing fails"),)),
    Control("waiters inherit a batch", nobody_inherits, (in_runs("shared", "although nothing fails"),)),
    Control(
        "waiters wait until they lead",
        boards_too_early,
        (in_runs("shared", "although nothing fails", seed=3),),
    ),
    Control("a child's own voice", forked_writer, (in_runs("forked", "it is not known any more"),)),
    Control(
        "a child of a fork without hooks",
        identity_by_hooks,
        (in_runs("forked", "it is not known any more|was never answered|although nothing fails"),),
    ),
    Control("a child's own batches", forked_threads, (in_runs("forked", "although nothing fails"),)),
    Control("a child's own loop", forked_tasks, (in_runs("forked", "was never answered"),)),
)
