"""A queue's events: who is told of what it commits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Rejected
from osqueue.events import CallbackSink, Event
from tests.support.patience import PATIENCE


def test_a_queue_tells_its_callbacks_and_sinks_and_counts() -> None:
    told: list[Event] = []
    sunk: list[Event] = []
    q: Queue[Any] = Queue.connect("memory://", "emails", sinks=[CallbackSink(sunk.append, "mine")])
    q.enqueue(1, id="order-7", kind="welcome")
    q.on_event(told.append)
    q.claim()
    assert [(each.name, each.id, each.kind) for each in sunk] == [
        ("queued", "order-7", "welcome"),
        ("processing", "order-7", "welcome"),
    ]
    assert [each.name for each in told] == ["processing"]
    assert q.deliveries["mine"].delivered == 2
    assert sum(each.delivered for each in q.deliveries.values()) == 3


def test_a_bulk_is_told_as_one_event() -> None:
    told: list[Event] = []
    q: Queue[Any] = Queue.connect("memory://", "emails")
    q.on_event(told.append)
    q.enqueue_many([{"payload": n} for n in range(1_500)])
    assert [(each.name, each.job_id, each.count) for each in told] == [("queued", None, 1_500)]


def test_a_commit_whose_answer_was_lost_is_told_all_the_same() -> None:
    told: list[Event] = []
    q: Queue[Any] = Queue.connect("memory://?lost_reply_rate=0.4&seed=3", "emails")
    q.on_event(told.append)
    jobs = [q.enqueue(n).job_id for n in range(40)]
    assert [each.job_id for each in told] == jobs


def test_a_slow_sink_is_told_off_the_event_loop_and_in_order() -> None:
    class Slow:
        name = "slow"
        slow = True

        def __init__(self) -> None:
            self.told: list[tuple[str, int]] = []
            self.all = asyncio.Event()
            self.loop = asyncio.get_running_loop()

        def send(self, events: Sequence[Event]) -> None:
            self.told.extend((each.name, threading.get_ident()) for each in events)
            if len(self.told) == 3:
                self.loop.call_soon_threadsafe(self.all.set)

    async def run() -> tuple[Slow, int]:
        sink = Slow()
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "emails", sinks=[sink])
        await q.enqueue(1)
        (lease,) = await q.claim()
        await lease.complete()
        await q.stats()
        async with asyncio.timeout(PATIENCE):
            await sink.all.wait()
        return sink, threading.get_ident()

    sink, loop = asyncio.run(run())
    assert [name for name, _ in sink.told] == ["queued", "processing", "completed"]
    assert loop not in {thread for _, thread in sink.told}


# ── Listeners that use the queue ─────────────────────────────────────────────
def test_a_callback_may_call_its_own_queue() -> None:
    told: list[tuple[str, str | None]] = []
    nested: list[str] = []
    q: Queue[Any] = Queue.connect("memory://", "emails", timeout=20)

    @q.on_event
    def follow(event: Event) -> None:
        told.append((event.name, event.id))
        if event.name == "queued" and (event.id or "").count("+") < 3:
            nested.append(q.enqueue(1, id=f"{event.id}+").status)

    assert q.enqueue(1, id="a").status == "queued"
    assert nested == ["queued"] * 3
    assert told == [("queued", "a" + "+" * count) for count in range(4)]
    assert not any(each.failed for each in q.deliveries.values())


def test_a_callback_may_wait_for_another_thread_that_uses_the_queue() -> None:
    told: list[str | None] = []
    q: Queue[Any] = Queue.connect("memory://", "emails", timeout=20)

    @q.on_event
    def follow(event: Event) -> None:
        told.append(event.id)
        if event.id == "a":
            thread = threading.Thread(target=q.enqueue, args=(1,), kwargs={"id": "b"})
            thread.start()
            thread.join()

    q.enqueue(1, id="a")
    assert told == ["a", "b"]


def test_a_slow_sink_may_call_its_own_async_queue() -> None:
    class Following:
        name = "following"
        slow = True

        def __init__(self) -> None:
            self.told: list[str | None] = []
            self.all = asyncio.Event()
            self.loop = asyncio.get_running_loop()

        def send(self, events: Sequence[Event]) -> None:
            self.told.extend(each.id for each in events)
            if events[0].id == "a":
                asyncio.run_coroutine_threadsafe(q.enqueue(1, id="b"), self.loop).result(PATIENCE)
            else:
                self.loop.call_soon_threadsafe(self.all.set)

    async def run() -> list[str | None]:
        nonlocal q
        sink = Following()
        q = AsyncQueue.connect("memory://", "emails", timeout=20, sinks=[sink])
        await q.enqueue(1, id="a")
        async with asyncio.timeout(PATIENCE):
            await sink.all.wait()
        assert q.deliveries["following"].failed == 0
        return sink.told

    q: AsyncQueue[Any]
    assert asyncio.run(run()) == ["a", "b"]


def test_threads_that_share_a_queue_have_their_events_told_in_the_order_of_the_commits() -> None:
    told: list[Event] = []
    q: Queue[Any] = Queue.connect("memory://", "emails")
    q.on_event(told.append)

    def work() -> None:
        for at in range(50):
            q.enqueue(at)
            for lease in q.claim():
                lease.complete()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps: dict[str | None, list[str]] = {}
    for event in told:
        steps.setdefault(event.job_id, []).append(event.name)
    assert len(steps) == 400
    assert all(each == ["queued", "processing", "completed"][: len(each)] for each in steps.values())
    assert sum(len(each) for each in steps.values()) == 400 + 2 * q.stats()["counters"]["completed"]


@pytest.mark.parametrize("sinks", [[5], "ab", [print]])
def test_what_is_no_sink_is_refused(sinks: Any) -> None:
    with pytest.raises(Rejected) as caught:
        Queue.connect("memory://", "mail", sinks=sinks)
    assert caught.value.field == "sinks"


class Later:
    async def __call__(self, event: Event) -> None: ...


@pytest.mark.parametrize("function", [None, "print", Later(), Later().__call__])
def test_what_cannot_be_told_of_events_is_refused(function: Any) -> None:
    q: Queue[Any] = Queue.connect("memory://", "mail")
    for add in (q.on_event, lambda each: q.add_sink(CallbackSink(each))):
        with pytest.raises(Rejected) as caught:
            add(function)
        assert caught.value.field == "function"
