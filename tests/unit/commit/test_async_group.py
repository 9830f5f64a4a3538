"""Tasks that share commits: exceptions of other code, cancellations, and event loops that come and go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from osqueue import AsyncQueue, Rejected
from osqueue.commit import steps
from osqueue.commit.async_group import RESUMES_MAX
from osqueue.election import AsyncElection
from osqueue.errors import Unavailable
from osqueue.pacer import AsyncPacer
from osqueue.stores.base import PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from tests.support.patience import PATIENCE


class TimeLimit(Exception):
    """As signal handlers raise it."""


class Limited(MemoryStore):
    """A store whose swaps of a head are interrupted some times."""

    times = 0

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if isinstance(request, PutIfMatch) and self.times:
            self.times -= 1
            raise TimeLimit
        return await super().perform_async(request)


def three_calls(store: MemoryStore, before: Callable[[], None]) -> tuple[list[Any], list[Any]]:
    """Return what three calls of one batch return or raise, and what the event loop's exception handler receives."""

    async def run() -> list[Any]:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context["exception"])
        )
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", window=0.05)
        await q.enqueue("first")
        before()
        results = await asyncio.gather(*map(q.enqueue, "abc"), return_exceptions=True)
        assert (await q.enqueue("next")).status == "queued"
        return results

    reported: list[Any] = []
    return asyncio.run(run()), reported


def test_an_exception_of_other_code_reaches_no_task() -> None:
    store = Limited()
    results, reported = three_calls(store, lambda: setattr(store, "times", 1))
    assert [each.status for each in results] == ["queued"] * 3
    assert [type(each) for each in reported] == [TimeLimit]


def test_an_exception_of_other_code_that_comes_again_ends_each_call_as_unavailable() -> None:
    store = Limited()
    results, reported = three_calls(store, lambda: setattr(store, "times", RESUMES_MAX + 1))
    assert [type(each) for each in results] == [Unavailable] * 3
    assert {type(each.__cause__) for each in results} == {TimeLimit}
    assert len(reported) == RESUMES_MAX + 1


class Gone(MemoryStore):
    """A store that raises an error of its own where it would reply."""

    error: Exception | None = None
    asked = 0

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        if self.error is None:
            return await super().perform_async(request)
        self.asked += 1
        raise self.error


@pytest.mark.parametrize("error", [Unavailable("bucket gone", permanent=True), Rejected("no", field="x")])
def test_an_error_that_a_store_raises_reaches_the_caller_as_it_is(error: Exception) -> None:
    async def run() -> None:
        store = Gone()
        q: AsyncQueue[Any] = AsyncQueue(store, "mail")
        await q.enqueue("first")
        store.error = error
        with pytest.raises(type(error)) as caught:
            await q.enqueue("second")
        assert (repr(caught.value), caught.value.permanent) == (repr(error), True)
        assert store.asked == 1
        store.error = None
        assert (await q.enqueue("third")).status == "queued"

    asyncio.run(run())


def test_the_error_of_an_interrupted_commit_names_its_cause() -> None:
    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        store = Gone()
        q: AsyncQueue[Any] = AsyncQueue(store, "mail")
        await q.enqueue("first")
        store.error = TypeError("a bug")
        with pytest.raises(Unavailable, match=r"TypeError\('a bug'\)") as caught:
            await q.enqueue("second")
        assert caught.value.__cause__ is store.error

    asyncio.run(run())


def test_an_exception_of_other_code_inside_the_protocol_ends_each_call_as_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limited(*_: Any, **__: Any) -> Any:
        monkeypatch.undo()
        raise TimeLimit

    results, reported = three_calls(MemoryStore(), lambda: monkeypatch.setattr(steps, "reduce", limited))
    assert [type(each) for each in results] == [Unavailable] * 3
    assert [type(each) for each in reported] == [TimeLimit]


def test_a_cancelled_task_cancels_no_other() -> None:
    async def run() -> list[Any]:
        q: AsyncQueue[Any] = AsyncQueue(MemoryStore(), "mail")
        calls = [asyncio.create_task(q.enqueue(name)) for name in "abc"]
        await asyncio.sleep(0)  # all of them wait for the first batch
        calls[0].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    first, *others = asyncio.run(run())
    assert isinstance(first, asyncio.CancelledError)
    assert [each.status for each in others] == ["queued"] * 2


# ── Event loops ──────────────────────────────────────────────────────────────
def queue_call() -> Callable[[], Awaitable[Any]]:
    q: AsyncQueue[Any] = AsyncQueue(MemoryStore(), "mail")
    return lambda: q.enqueue("job")


def election_call() -> Callable[[], Awaitable[Any]]:
    return AsyncElection(MemoryStore(), "reports").campaign


def pacer_call() -> Callable[[], Awaitable[Any]]:
    pacer = AsyncPacer(MemoryStore(), "mail")
    return lambda: pacer.create(0.001)


@pytest.mark.parametrize("make", [queue_call, election_call, pacer_call])
def test_an_object_for_coroutines_refuses_a_second_running_loop_at_once(
    make: Callable[[], Callable[[], Awaitable[Any]]],
) -> None:
    async def first() -> None:
        try:
            await call()
        finally:
            with_loop.set()
        await asyncio.to_thread(over.wait, PATIENCE)

    async def second() -> None:
        await call()

    call = make()
    with_loop, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=asyncio.run, args=(first(),))
    thread.start()
    try:
        assert with_loop.wait(PATIENCE)
        with pytest.raises(Rejected, match="one object for each event loop"):
            asyncio.run(second())
    finally:
        over.set()
        thread.join()
    asyncio.run(second())  # the other loop is closed now


def test_a_queue_goes_on_after_its_loop_was_closed_during_a_commit() -> None:
    class Hanging(MemoryStore):
        async def perform_async(self, request: StoreRequest) -> StoreReply:
            if isinstance(request, PutIfMatch) and hangs:
                reached.set()
                await asyncio.Event().wait()
            return await super().perform_async(request)

    async def begin() -> None:
        await q.enqueue("first")
        hangs.append(True)
        calls.append(asyncio.create_task(q.enqueue("second")))
        await reached.wait()

    q: AsyncQueue[Any] = AsyncQueue(Hanging(), "mail", timeout=5)
    hangs: list[bool] = []
    calls: list[Any] = []
    reached = asyncio.Event()
    stopped = asyncio.new_event_loop()
    stopped.run_until_complete(begin())
    hangs.clear()

    async def go_on() -> str:
        return (await q.enqueue("third")).status

    with pytest.raises(Rejected):
        asyncio.run(go_on())  # the stopped loop may go on with its commit
    stopped.close()
    assert asyncio.run(go_on()) == "queued"
