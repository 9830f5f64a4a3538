"""Requests that outlast the time of their call: the call ends, whatever its store does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Timeout, Unavailable
from osqueue.clock import MACHINE
from osqueue.commit.async_group import AsyncDriver
from osqueue.commit.deadline import Deadline
from osqueue.commit.driver import REQUEST_SECONDS_MIN, BlockingDriver, seconds_left
from osqueue.commit.effects import All
from osqueue.commit.retry import RetryPolicy, ask, ask_all
from osqueue.commit.writer import ShardWriter
from osqueue.stores.base import Failed, Get, Missing, PutIfMatch, StoreReply, StoreRequest, TakeTurn
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from osqueue.threads import LATE_MAX, TimedCaller
from tests.support.patience import PATIENCE

CALL_SECONDS = 0.6  # a call with a request that hangs lasts as long


class HangingStore(WrappedStore):
    """Replies to requests of one kind when it is released."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.remote = True
        self.reply_s_max = PATIENCE
        self.hangs: tuple[type, ...] = ()
        self.released = threading.Event()
        self.threads: list[str] = []  # that carried a request

    def perform(self, request: StoreRequest) -> StoreReply:
        self.threads.append(threading.current_thread().name)
        if isinstance(request, self.hangs):
            self.released.wait(PATIENCE)
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, self.hangs):
            await asyncio.Event().wait()
        return self.inner.perform(request)


@pytest.fixture
def store() -> Iterator[HangingStore]:
    store = HangingStore()
    yield store
    store.released.set()


@pytest.mark.parametrize("hangs", [Get, PutIfMatch])
def test_a_call_ends_with_its_timeout_while_a_request_of_its_commit_hangs(
    store: HangingStore, hangs: type
) -> None:
    Queue(store, "mail").enqueue("first")
    q = Queue(store, "mail", timeout=CALL_SECONDS)
    store.hangs = (hangs,)
    with pytest.raises((Unavailable, Timeout)) as caught:
        q.enqueue("second")
    assert not store.released.is_set()
    assert ("It may still be applied" in caught.value.message) is (hangs is PutIfMatch)


def test_a_call_that_only_reads_ends_with_its_timeout(store: HangingStore) -> None:
    q = Queue(store, "mail", timeout=CALL_SECONDS)
    store.hangs = (Get,)
    with pytest.raises((Unavailable, Timeout)):
        q.stats()
    assert not store.released.is_set()


@pytest.mark.parametrize("hangs", [Get, PutIfMatch])
def test_a_call_of_a_coroutine_ends_with_its_timeout(store: HangingStore, hangs: type) -> None:
    Queue(store, "mail").enqueue("first")
    store.hangs = (hangs,)

    async def main() -> None:
        async with AsyncQueue(store, "mail", timeout=CALL_SECONDS) as q:
            with pytest.raises((Unavailable, Timeout)):
                await q.enqueue("second")

    asyncio.run(main())
    assert not store.released.is_set()


ENDS = RetryPolicy(2, 0.0)


def finished(flow: Any, replies: Sequence[Failed]) -> Any:
    """Run a flow whose requests get these replies, until it returns."""
    left, reply = list(replies), None
    while True:
        try:
            effect = flow.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = None
        if isinstance(effect, All):
            reply = (left.pop(0),)
        elif isinstance(effect, Get):
            reply = left.pop(0)
        elif len(replies) == 1:
            reply = False


def performed(store: HangingStore, effect: Any, deadline: float, form: str) -> Any:
    if form == "async":
        return asyncio.run(AsyncDriver(store, MACHINE).perform(effect, deadline))
    return BlockingDriver(store, MACHINE).perform(effect, deadline)


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_of_several_requests_those_that_hang_fail_alone(store: HangingStore, form: str) -> None:
    store.hangs = (Get,)
    effect = All((Get("a"), PutIfMatch("b", b"", "v"), Get("c")))
    replies = performed(store, effect, MACHINE.monotonic() + CALL_SECONDS, form)
    assert [isinstance(reply, Failed) for reply in replies] == [True, False, True]


@pytest.mark.parametrize("form", ["blocking", "async"])
def test_a_request_of_a_call_without_time_is_not_sent(store: HangingStore, form: str) -> None:
    reply = performed(store, Get("a"), MACHINE.monotonic() - 1, form)
    assert isinstance(reply, Failed)
    assert reply.late
    assert "in the 0 s that the call had left" in reply.error.message
    assert store.threads == []


def test_a_request_of_a_call_with_little_time_has_a_moment(store: HangingStore, machine: Any) -> None:
    now = machine.monotonic()
    assert seconds_left(store, machine, Get("a"), now + 0.001) == REQUEST_SECONDS_MIN


LATE = Failed(Timeout("late"), late=True)
BUSY = Failed(Unavailable("503 SlowDown"))


@pytest.mark.parametrize(("replies", "final"), [((BUSY, LATE), BUSY), ((LATE,), LATE), ((BUSY, BUSY), BUSY)])
def test_the_end_of_a_calls_time_does_not_hide_the_cause(replies: Sequence[Failed], final: Failed) -> None:
    for flow in (ask(Get("a"), ENDS), ask_all((Get("a"),), ENDS)):
        assert finished(flow, replies) in (final, [final])


def test_the_end_of_a_commits_time_does_not_hide_the_cause(store: HangingStore) -> None:
    deadline = Deadline(ShardWriter("q/", "q", MACHINE), 0.0)
    for reply in (BUSY, LATE):
        deadline.complain(reply)
    assert deadline.failure is BUSY.error


def test_a_request_moves_to_another_thread_only_if_it_may_outlast_its_call(store: HangingStore) -> None:
    here = threading.current_thread().name
    now = MACHINE.monotonic()
    assert performed(store, Get("a"), now + 2 * PATIENCE, "blocking") == Missing()
    assert store.threads == [here]
    assert performed(store, Get("a"), now + PATIENCE / 2, "blocking") == Missing()
    assert store.threads[1] != here
    store.reply_s_max = 0.0
    assert performed(store, Get("a"), now - 1, "blocking") == Missing()
    assert store.threads[2:] == [here]


def test_a_wait_for_a_turn_has_its_own_end(store: HangingStore) -> None:
    assert seconds_left(store, MACHINE, TakeTurn("head", b"", 1.0), MACHINE.monotonic() - 1) is None


def test_calls_that_are_late_are_limited_in_number() -> None:
    caller: TimedCaller[int] = TimedCaller()
    released = threading.Event()
    made = list[int]()
    for _ in range(LATE_MAX):
        assert caller.call(lambda: released.wait(PATIENCE) and 1, 0) is None
    assert caller.call(lambda: made.append(1) or 1, PATIENCE) is None  # type: ignore[func-returns-value]
    assert made == []
    released.set()
    for each in caller._late:
        each.thread.join(PATIENCE)
    assert caller.call(lambda: 2, PATIENCE) == 2


class InterruptedWait(SimpleQueue[Any]):
    """Results of a thread whose caller is interrupted while it waits."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        raise KeyboardInterrupt


def test_an_interruption_of_a_timed_call_leaves_no_thread_behind() -> None:
    caller: TimedCaller[int] = TimedCaller()
    assert caller.call(lambda: 1, PATIENCE) == 1
    (line,) = caller._idle
    line.answers = InterruptedWait()
    with pytest.raises(KeyboardInterrupt):
        caller.call(lambda: 1, PATIENCE)
    line.thread.join(PATIENCE)
    assert not line.thread.is_alive()
    assert caller.call(lambda: 2, PATIENCE) == 2


def test_an_error_of_a_timed_call_is_raised_in_its_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        TimedCaller[float]().call(lambda: 1 / 0, PATIENCE)
