"""Listening: callbacks by name, for functions and coroutines, and a queue object that waits for others' commits."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Rejected
from osqueue.events import Event
from osqueue.stores.memory import MemoryStore
from tests.support.patience import PATIENCE


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def finish(q: Queue[Any]) -> None:
    q.enqueue(1, id="one")
    q.claim()[0].complete()


def test_callbacks_hear_of_the_events_they_name(q: Queue[Any]) -> None:
    told: dict[str, list[str]] = {"over": [], "all": []}

    @q.on("completed", "failed")
    def over(event: Event) -> None:
        told["over"].append(event.name)

    q.on()(lambda event: told["all"].append(event.name))
    cursor = q.listen(wait=0)
    finish(q)
    assert told == {"over": [], "all": []}
    cursor = q.listen(cursor, wait=0)
    assert told == {"over": ["completed"], "all": ["queued", "processing", "completed"]}
    q.listen(cursor, wait=0)
    assert len(told["all"]) == 3


def test_a_callback_that_raises_is_logged_and_keeps_no_other_from_its_event(
    q: Queue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    @q.on("queued")
    def broken(event: Event) -> None:
        raise ConnectionError("nobody there")

    q.on("queued")(lambda event: told.append(event.name))
    cursor = q.listen(wait=0)
    q.enqueue(1)
    q.enqueue(2)
    q.listen(cursor, wait=0)
    assert told == ["queued", "queued"]
    assert caplog.text.count("a callback of queue mail failed at queued of job ") == 2
    assert "nobody there" in caplog.text


def test_what_a_callback_does_to_the_queue_is_heard_as_well(q: Queue[Any]) -> None:
    told: list[str | None] = []

    @q.on("completed")
    def follow_up(event: Event) -> None:
        told.append(event.id)
        if event.id == "one":
            q.enqueue(2, id="two")
            q.claim()[0].complete()

    cursor = q.listen(wait=0)
    finish(q)
    q.listen(cursor, wait=0)
    assert told == ["one", "two"]


def test_coroutine_functions_are_awaited_in_order(store: MemoryStore, machine: Any) -> None:
    told: list[str] = []

    async def run() -> None:
        q: AsyncQueue[Any] = AsyncQueue(store, "mail", machine=machine)

        @q.on("queued")
        async def slow(event: Event) -> None:
            await asyncio.sleep(0)
            told.append(f"slow {event.id}")

        q.on("queued")(lambda event: told.append(f"plain {event.id}"))
        cursor = await q.listen(wait=0)
        await q.enqueue(1, id="one")
        await q.enqueue(2, id="two")
        again = await q.listen(cursor, wait=0)
        assert again != cursor
        assert await q.listen(again, wait=0) == again

    asyncio.run(run())
    assert told == ["slow one", "plain one", "slow two", "plain two"]


def test_whoever_waits_is_woken_by_a_commit_of_its_own_process(q: Queue[Any], store: MemoryStore) -> None:
    events = q.events(poll=3600)
    found: list[Event] = []
    thread = threading.Thread(target=lambda: found.append(next(events)))
    thread.start()
    q.enqueue("hello", id="one")
    thread.join(PATIENCE)
    assert [each.id for each in found] == ["one"]


def test_a_blocking_queue_takes_no_coroutine_function(q: Queue[Any]) -> None:
    async def later(event: Event) -> None: ...

    with pytest.raises(Rejected, match="needs an AsyncQueue") as caught:
        q.on("queued")(later)
    assert caught.value.field == "function"
    with pytest.raises(Rejected, match="cannot be called"):
        q.on("queued")(7)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("names", "hint"),
    [(("complete",), "'complete' is no event. They are queued, "), ((print,), r"Write @q\.on\(\) for all")],
)
def test_an_unknown_name_is_refused_with_those_there_are(q: Queue[Any], names: Any, hint: str) -> None:
    with pytest.raises(Rejected, match=hint) as caught:
        q.on(*names)
    assert caught.value.field == "names"


def test_to_listen_without_a_callback_is_refused(q: Queue[Any]) -> None:
    with pytest.raises(Rejected, match=r"Register a function with @q\.on"):
        q.listen(wait=0)
