"""Events between a commit and those who want to know of it: in order, by one thread at a time, and never for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from osqueue import AsyncQueue, Rejected
from osqueue.commit import async_group, event_queue
from osqueue.commit.async_group import AsyncEventQueue
from osqueue.commit.event_queue import EventQueue
from osqueue.worker import loop
from tests.support.patience import PATIENCE


class Slow:
    """A listener that takes its time until the test lets it go on."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.tellers: list[int] = []
        self.busy = threading.Event()
        self.go_on = threading.Event()

    def tell(self, events: Sequence[Any]) -> None:
        self.told.extend(events)
        self.tellers.append(threading.get_ident())
        self.busy.set()
        assert self.go_on.wait(PATIENCE)


def deliver(box: EventQueue) -> threading.Thread:
    thread = threading.Thread(target=box.deliver)
    thread.start()
    return thread


def test_what_is_added_meanwhile_is_told_by_who_is_telling(machine: Any) -> None:
    slow = Slow()
    box = EventQueue(slow.tell, machine)
    box.put([1])  # type: ignore[list-item]
    teller = deliver(box)
    assert slow.busy.wait(PATIENCE)
    for at in range(2, 6):
        box.put([at])  # type: ignore[list-item]
        box.deliver()  # returns at once
    assert slow.told == [1]
    slow.go_on.set()
    teller.join(PATIENCE)
    assert slow.told == [1, 2, 3, 4, 5]
    assert len(set(slow.tellers)) == 1


def test_whoever_adds_too_much_waits_for_the_listener_and_takes_over(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "ROOM_SECONDS", PATIENCE)
    slow = Slow()
    box = EventQueue(slow.tell, machine)
    box.put([0])  # type: ignore[list-item]
    first = deliver(box)
    assert slow.busy.wait(PATIENCE)
    for at in range(event_queue.WAITING_MAX + 1):
        box.put([at + 1])  # type: ignore[list-item]
    second = deliver(box)
    while not box._standing:
        time.sleep(0.001)
    slow.go_on.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert slow.told == list(range(event_queue.WAITING_MAX + 2))
    assert len(set(slow.tellers)) == 2


def test_a_listener_that_never_ends_holds_up_nobody_for_ever(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "ROOM_SECONDS", 0.001)
    slow = Slow()
    box = EventQueue(slow.tell, machine)
    box.put([0])  # type: ignore[list-item]
    first = deliver(box)
    assert slow.busy.wait(PATIENCE)
    for at in range(event_queue.WAITING_MAX + 1):
        box.put([at])  # type: ignore[list-item]
        box.deliver()
    assert slow.told == [0]
    slow.go_on.set()
    first.join(PATIENCE)


def test_whoever_gives_up_waiting_as_the_listener_ends_tells_the_rest(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who told went away, because somebody stood there to take over."""
    monkeypatch.setattr(event_queue, "ROOM_SECONDS", 0.05)
    monkeypatch.setattr(event_queue, "WAITING_MAX", 1)
    slow = Slow()
    box = EventQueue(slow.tell, machine)
    box.put([0])  # type: ignore[list-item]
    threads = [deliver(box)]
    assert slow.busy.wait(PATIENCE)
    for at in range(1, 4):
        box.put([at])  # type: ignore[list-item]
    threads.append(deliver(box))
    while box._standing == 0 and threads[1].is_alive():
        time.sleep(0.001)
    with box._changed:  # the listener's end comes to it first, and then who stands there, whose time is up
        slow.go_on.set()
        time.sleep(2 * event_queue.ROOM_SECONDS)
    for thread in threads:
        thread.join(PATIENCE)
    assert slow.told == [0, 1, 2, 3]


def test_a_listener_that_is_interrupted_receives_the_events_again(machine: Any) -> None:
    told: list[Any] = []

    def tell(events: Sequence[Any]) -> None:
        told.extend(events)
        if told == [1]:
            raise KeyboardInterrupt

    box = EventQueue(tell, machine)
    box.put([1])  # type: ignore[list-item]
    box.put([2])  # type: ignore[list-item]
    with pytest.raises(KeyboardInterrupt):
        box.deliver()
    box.deliver()
    assert told == [1, 1, 2]


def test_a_forks_child_does_not_tell_what_the_parent_tells(machine: Any) -> None:
    told: list[Any] = []
    box = EventQueue(told.extend, machine)
    box.put([1])  # type: ignore[list-item]
    with box._changed:  # another thread of the parent
        machine.pid += 1
        box.put([2])  # type: ignore[list-item]
        box.deliver()
    assert told == [2]
    box._teller, box._standing = 1, 0  # what the parent's threads were about stays with the parent
    box.put([3])  # type: ignore[list-item]
    machine.pid += 1
    box.deliver()
    assert (told, box._teller) == ([2], None)


def test_a_forks_child_with_coroutines_does_not_wait_for_the_parents_listener(machine: Any) -> None:
    async def run() -> None:
        told: list[Any] = []

        def tell(events: Sequence[Any]) -> Any:
            told.extend(events)
            return asyncio.get_running_loop().create_future()

        box = AsyncEventQueue(tell, machine)
        for at in range(2):
            box.put([at])  # type: ignore[list-item]
        machine.pid += 1
        box.put([2])  # type: ignore[list-item]
        assert told == [0, 2]

    asyncio.run(run())


def test_tasks_wait_a_moment_for_a_listener_that_is_slower_than_they(
    monkeypatch: pytest.MonkeyPatch, machine: Any
) -> None:
    monkeypatch.setattr(async_group, "WAITING_MAX", 3)
    monkeypatch.setattr(async_group, "ROOM_SECONDS", 0.001)
    told: list[Any] = []

    async def run() -> None:
        go_on = asyncio.Event()

        def tell(events: Sequence[Any]) -> Any:
            async def slowly() -> None:
                await go_on.wait()
                told.extend(events)

            return asyncio.ensure_future(slowly())

        box = AsyncEventQueue(tell, machine)
        for at in range(6):
            box.put([at])  # type: ignore[list-item]
            await box.room()
        assert told == []
        go_on.set()
        monkeypatch.setattr(async_group, "ROOM_SECONDS", PATIENCE)
        await box.room()

    asyncio.run(run())
    assert told == [0, 1, 2, 3, 4, 5]


class SlowSink:
    """A sink that waits for another machine."""

    name = "bus"
    slow = True

    def __init__(self, go_on: threading.Event | None = None) -> None:
        self.told: list[str] = []
        self.go_on = go_on

    def send(self, events: Sequence[Any]) -> None:
        if self.go_on is None:
            time.sleep(0.01)
        else:
            self.go_on.wait(PATIENCE)
        self.told += [event.name for event in events]


def test_a_queue_that_is_closed_has_told_its_slow_sinks_everything() -> None:
    sink = SlowSink()

    async def run() -> None:
        async with AsyncQueue.connect("memory://", "mail", sinks=[sink]) as q:
            for at in range(5):
                await q.enqueue(at)

    asyncio.run(run())
    assert sink.told == ["queued"] * 5


def test_what_a_sink_was_too_slow_to_be_told_is_counted() -> None:
    go_on = threading.Event()
    sink = SlowSink(go_on)

    async def run() -> Any:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "mail", sinks=[sink])
        for at in range(5):
            await q.enqueue(at)
        q.timeout = 0.01  # for the sink; the calls before had their time
        await q.close()
        told = q.deliveries["bus"]
        go_on.set()
        return told

    delivery = asyncio.run(run())
    assert (delivery.delivered, delivery.failed) == (
        0,
        4,
    )  # the first is under way, and counted when it is over
    assert "4 events were not sent" in delivery.last_error


def test_a_workers_end_has_told_its_slow_sinks_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "GIVE_BACK_SECONDS_MAX", PATIENCE)
    sink = SlowSink()
    q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "mail", sinks=[sink])
    q.handler(lambda job: None)

    async def run() -> None:
        for at in range(5):
            await q.enqueue(at)
        await q.run(until_empty=True, signals=False)

    asyncio.run(run())
    assert sorted(sink.told) == ["completed"] * 5 + ["processing"] * 5 + ["queued"] * 5


class Gated:
    """A slow sink that lets nothing pass until it may, and sees whether it is called twice at once."""

    name = "bus"
    slow = True

    def __init__(self) -> None:
        self.told: list[str] = []
        self.go_on = threading.Event()
        self.at_once = [0, 0]  # now, and at most

    def send(self, events: Sequence[Any]) -> None:
        now, most = self.at_once
        self.at_once = [now + 1, max(most, now + 1)]
        assert self.go_on.wait(PATIENCE)
        self.told += [event.name for event in events]
        self.at_once[0] -= 1


def test_what_a_sink_has_not_heard_at_a_workers_end_it_hears_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "GIVE_BACK_SECONDS_MAX", 0.01)
    sink = Gated()

    async def run() -> Any:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "mail", sinks=[sink])
        q.handler(lambda job: None)
        for at in range(5):
            await q.enqueue(at)
        await q.run(until_empty=True, signals=False)
        assert sink.told == []
        await q.enqueue(5)
        sink.go_on.set()
        await q.close()
        return q.deliveries["bus"]

    delivery = asyncio.run(run())
    assert (delivery.delivered, delivery.failed) == (16, 0)
    assert sink.told[:5] == ["queued"] * 5
    assert sink.told[-1] == "queued"
    assert sink.at_once == [0, 1]


def test_a_queue_that_is_used_again_after_its_close_calls_no_sink_twice_at_once() -> None:
    sink = Gated()

    async def run() -> None:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "mail", sinks=[sink])
        await q.enqueue(0)
        q.timeout, patience = 0.01, q.timeout
        await q.close()
        q.timeout = patience
        await q.enqueue(1)
        await asyncio.sleep(0.05)  # for a second thread, which must not come
        sink.go_on.set()
        await q.close()

    asyncio.run(run())
    assert sink.told == ["queued"] * 2
    assert sink.at_once == [0, 1]


def test_a_program_that_ends_under_its_worker_calls_no_sink_twice_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its loop cancels every task, and then the worker gives its job back, which is told as well."""
    monkeypatch.setattr(loop, "GIVE_BACK_SECONDS_MAX", PATIENCE)
    sink = Gated()

    async def run() -> None:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "mail", sinks=[sink])
        started = asyncio.Event()

        @q.handler
        async def send(job: Any) -> None:
            started.set()
            await asyncio.sleep(PATIENCE)

        await q.enqueue(0)
        work = asyncio.create_task(q.run(signals=False))
        await started.wait()
        assert not work.done()
        threading.Timer(0.2, sink.go_on.set).start()

    asyncio.run(run())
    assert sink.told == ["queued", "processing", "queued"]
    assert sink.at_once == [0, 1]


def test_whoever_waits_for_the_listeners_waits_for_what_is_there_already(machine: Any) -> None:
    async def run() -> None:
        told: list[asyncio.Future[None]] = []

        def tell(events: Sequence[Any]) -> asyncio.Future[None]:
            told.append(asyncio.get_running_loop().create_future())
            return told[-1]

        box = AsyncEventQueue(tell, machine)
        box.put([0])  # type: ignore[list-item]
        box.put([1])  # type: ignore[list-item]
        waiting = asyncio.create_task(box.told(PATIENCE))
        for at in range(2):
            await asyncio.sleep(0)
            assert not waiting.done()
            box.put([2])  # type: ignore[list-item]
            told[at].set_result(None)
        assert await waiting
        assert not told[2].done()
        assert await box.drain(0.01) == 1
        assert not await box.told(0.01)  # one is still being told

    asyncio.run(run())


def test_what_is_left_untold_when_the_loop_ends_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "GIVE_BACK_SECONDS_MAX", 0.01)
    sink = Gated()
    q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "mail", sinks=[sink])
    q.handler(lambda job: None)

    async def run() -> None:
        for at in range(5):
            await q.enqueue(at)
        await q.run(until_empty=True, signals=False)
        threading.Timer(0.2, sink.go_on.set).start()

    asyncio.run(run())
    delivery = q.deliveries["bus"]
    assert delivery.failed > 0
    assert (delivery.delivered, delivery.delivered + delivery.failed) == (len(sink.told), 15)
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_what_is_no_exception_goes_through_from_a_slow_sink_and_the_next_are_told() -> None:
    class Leaving:
        name = "bus"
        slow = True
        told = 0
        go_on = threading.Event()

        def send(self, events: Sequence[Any]) -> None:
            self.told += 1
            assert self.go_on.wait(PATIENCE)
            if self.told == 1:
                raise SystemExit(3)

    sink = Leaving()

    async def run() -> None:
        q: AsyncQueue[Any] = AsyncQueue.connect("memory://", "mail", sinks=[sink])
        for at in range(2):
            await q.enqueue(at)
        sink.go_on.set()
        await asyncio.sleep(PATIENCE)

    with pytest.raises(SystemExit, match="3"):
        asyncio.run(run())
    assert sink.told == 2


def test_a_coroutine_function_cannot_be_told_of_events() -> None:
    async def tell(event: Any) -> None: ...

    with pytest.raises(Rejected, match="create a task"):
        AsyncQueue.connect("memory://", "mail").on_event(tell)
