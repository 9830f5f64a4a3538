"""A worker's word to the registry: when it comes, what it says, and that no trouble with it troubles the work."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Unavailable, limits
from osqueue.core.intents import publications_prefix
from osqueue.maintenance import removal
from osqueue.objects.layout import root_of
from osqueue.objects.worker_registry import folder_of
from osqueue.stores.base import Delete, Failed, Get, List, Put, PutIfMatch, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from osqueue.worker import loop, registration
from osqueue.worker.loop import Worker
from tests.support.at_work import Still, until, working
from tests.support.patience import PATIENCE

ROOT = root_of("emails", 0)
HEAD = ROOT + "head"
FOLDER = folder_of("emails")


@pytest.fixture
def machine() -> Still:
    return Still()


@pytest.fixture
def speaking(monkeypatch: pytest.MonkeyPatch, first_seconds: float) -> None:
    """Workers say their first word when they are to."""
    monkeypatch.setattr(registration, "FIRST_SECONDS", first_seconds)


@pytest.fixture
def store(machine: Still) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Still) -> Queue[Any]:
    return opened(store, machine)


def opened(store: Any, machine: Still) -> Queue[Any]:
    queue: Queue[Any] = Queue(store, "emails", machine=machine)
    queue.handler(lambda job: None)
    queue.configure(priority=5)  # now there is one
    return queue


def registered(store: Any) -> list[str]:
    return [key.removeprefix(FOLDER) for key in store.perform(List(FOLDER)).keys]


def passing(machine: Still, happened: Callable[[], object]) -> None:
    """Let time pass until something has happened."""

    def later() -> object:
        machine.advance(5)
        return happened()

    until(later)


def is_word(request: StoreRequest) -> bool:
    return isinstance(request, Put) and request.key.startswith(FOLDER)


class Stubborn(WrappedStore):
    """A store that refuses some requests, and counts them."""

    def __init__(self, inner: MemoryStore, refuses: Callable[[StoreRequest], bool]) -> None:
        super().__init__(inner)
        self.refuses = refuses
        self.refused = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        if self.refuses(request):
            self.refused += 1
            return Failed(Unavailable("no room for it"))
        return self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self.perform(request)


@pytest.mark.usefixtures("speaking")
def test_a_worker_says_how_it_is_again_and_again_and_when_it_ends_that_it_is_gone(
    q: Queue[Any], store: MemoryStore, machine: Still
) -> None:
    with working(q, name="mailer", concurrency=5):
        passing(machine, q.workers)
        (first,) = q.workers()
        assert (first.name, first.state, first.concurrency, first.busy) == ("mailer", "running", 5, 0)
        assert (first.host, first.pid, first.kinds) == (machine.host(), machine.process(), None)
        passing(machine, lambda: q.workers()[0].seen != first.seen)
        (later,) = q.workers()
        assert later.id == first.id
        assert first.since < first.seen < later.seen
    assert registered(store) == []


def test_a_run_that_is_over_at_once_says_nothing_and_asks_for_nothing_more(
    machine: Still, store: MemoryStore
) -> None:
    asked: list[StoreRequest] = []
    noting = Stubborn(store, lambda request: asked.append(request) is not None)
    q = opened(noting, machine)
    q.enqueue_many([{"payload": n} for n in range(5)])
    asked.clear()
    assert q.run(until_empty=True, signals=False).completed == 5
    assert {type(each) for each in asked} == {Get, PutIfMatch}
    keys = {each.key for each in asked if isinstance(each, Get | PutIfMatch)}
    assert {key for key in keys if not key.startswith(publications_prefix(ROOT))} == {HEAD}


@pytest.mark.usefixtures("speaking")
@pytest.mark.parametrize("in_hand", [["a job"], []])
def test_one_that_drains_says_so_at_once_if_it_has_jobs_in_hand(
    q: Queue[Any], store: MemoryStore, machine: Still, in_hand: list[str]
) -> None:
    async def call(flow: Any) -> Any:
        return q._run(flow)

    async def drained() -> list[str]:
        worker = registration.WorkerRegistration(q, "mailer", 1, in_hand, call)
        run = asyncio.create_task(worker.run())
        while not registered(store):
            machine.advance(1)
            await asyncio.sleep(0)
        worker.drain()
        for _ in range(10):  # and no time passes
            await asyncio.sleep(0)
        states = [each.state for each in q.workers()]
        worker.end()
        await run
        return states

    assert machine.run(drained()) == ["draining" if in_hand else "running"]
    assert registered(store) == []


@pytest.mark.usefixtures("speaking")
def test_two_workers_of_one_name_have_an_entry_each(
    q: Queue[Any], store: MemoryStore, machine: Still
) -> None:
    with working(q, name="twin"):
        passing(machine, lambda: len(registered(store)) == 1)
        with working(opened(store, machine), name="twin"):
            passing(machine, lambda: len(registered(store)) == 2)
            assert [each.name for each in q.workers()] == ["twin", "twin"]
        assert len(registered(store)) == 1
    assert registered(store) == []


@pytest.mark.usefixtures("speaking")
def test_an_async_worker_is_registered_as_well(store: MemoryStore, machine: Still) -> None:
    q: AsyncQueue[Any] = AsyncQueue(store, "emails", machine=machine)
    q.handler(lambda job: None, kind="a")
    q.handler(lambda job: None, kind="b")
    look = opened(store, machine)

    with working(q):
        passing(machine, look.workers)
        assert look.workers()[0].kinds == ["a", "b"]
    assert registered(store) == []


@pytest.mark.usefixtures("speaking")
def test_of_many_kinds_the_first_are_told(store: MemoryStore, machine: Still) -> None:
    q: Queue[Any] = Queue(store, "emails", machine=machine)
    for at in range(limits.WORKER_KINDS_TOLD_MAX + 1):
        q.handler(lambda job: None, kind=f"k{at:04}")
    q.configure(priority=5)
    with working(q):
        passing(machine, q.workers)
        assert len(q.workers()[0].kinds or ()) == limits.WORKER_KINDS_TOLD_MAX


@pytest.mark.usefixtures("speaking")
def test_a_queue_that_is_not_there_yet_has_no_entries_and_has_them_once_it_begins(
    store: MemoryStore, machine: Still
) -> None:
    q: Queue[Any] = Queue(store, "emails", machine=machine)
    q.handler(lambda job: None)
    with working(q):
        for _ in range(20):
            machine.advance(60)
            threading.Event().wait(0.01)
        assert store.perform(List("")).keys == ()  # type: ignore[union-attr]
        opened(store, machine)
        passing(machine, lambda: registered(store))
    assert registered(store) == []


@pytest.mark.usefixtures("speaking")
def test_a_worker_adds_nothing_to_a_queue_that_was_removed(
    q: Queue[Any], store: MemoryStore, machine: Still
) -> None:
    with working(q, poll=0.05):
        passing(machine, lambda: registered(store))
        found = q._run(removal.look("emails"))
        assert [key for group in found.keys.values() for key in group if key.startswith(FOLDER)]
        q._run(removal.remove(found, machine, True))
        for _ in range(20):
            machine.advance(60)
            threading.Event().wait(0.01)
        assert store.perform(List("")).keys == ()  # type: ignore[union-attr]
    assert store.perform(List("")).keys == ()  # type: ignore[union-attr]


# ── Trouble ──────────────────────────────────────────────────────────────────
@pytest.mark.usefixtures("speaking")
def test_a_store_that_takes_no_word_keeps_no_job_from_being_done_and_is_complained_of_once(
    store: MemoryStore, machine: Still, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn(store, is_word)
    q = opened(stubborn, machine)
    caplog.set_level(logging.INFO, "osqueue.worker")
    with working(q, poll=0.05):
        passing(machine, lambda: stubborn.refused >= 3)
        done = q.enqueue(1)
        until(lambda: q.status(str(done.job_id)).state == "completed")  # type: ignore[union-attr]
        complaints = [each.message for each in caplog.records if "cannot say" in each.message]
        assert len(complaints) == 1
        assert "no room for it" in complaints[0]
        stubborn.refuses = lambda request: False
        passing(machine, lambda: registered(store))
        until(lambda: "the worker can say again that it is there" in caplog.messages)
    assert registered(store) == []


@pytest.mark.usefixtures("speaking")
def test_an_entry_that_cannot_be_taken_away_lets_the_worker_end_all_the_same(
    store: MemoryStore, machine: Still, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn(store, lambda request: isinstance(request, Delete))
    q = opened(stubborn, machine)
    caplog.set_level(logging.INFO, "osqueue.worker")
    with working(q):
        passing(machine, lambda: registered(store))
    assert any("will be shown as lost" in each for each in caplog.messages)
    assert [each.state for each in q.workers()] == ["running"]
    machine.advance(181)
    assert [each.state for each in q.workers()] == ["lost"]


@pytest.mark.usefixtures("speaking")
@pytest.mark.parametrize("awaits", [False, True])
def test_a_word_without_an_answer_holds_up_no_worker_that_ends(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, awaits: bool
) -> None:
    monkeypatch.setattr(loop, "GIVE_BACK_SECONDS_MAX", 0.1)
    monkeypatch.setattr(registration, "FIRST_SECONDS", 0.0)
    asked, go_on = threading.Event(), threading.Event()

    class Silent(WrappedStore):
        def perform(self, request: StoreRequest) -> StoreReply:
            if is_word(request):
                asked.set()
                go_on.wait(PATIENCE)
            return self.inner.perform(request)

        async def perform_async(self, request: StoreRequest) -> StoreReply:
            if is_word(request):
                asked.set()
                await asyncio.Event().wait()
            return self.inner.perform(request)

    q: Any = (AsyncQueue if awaits else Queue)(Silent(store), "emails")
    q.handler(lambda job: None)
    opened(store, Still())
    worker = Worker(q, signals=False)
    thread = threading.Thread(target=lambda: asyncio.run(worker.serve()))
    thread.start()
    assert asked.wait(PATIENCE)
    worker.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    go_on.set()


@pytest.mark.usefixtures("speaking")
def test_a_worker_that_was_killed_leaves_its_entry_and_another_one_begins_its_own(
    q: Queue[Any], store: MemoryStore, machine: Still
) -> None:
    worker = Worker(q, name="mailer", signals=False)

    async def killed() -> None:
        run = asyncio.create_task(worker._registration.run())
        while not registered(store):
            machine.advance(5)
            await asyncio.sleep(0)
        run.cancel()  # nobody says that it ends

    machine.run(killed())
    assert len(registered(store)) == 1
    machine.advance(181)
    with working(q, name="mailer"):
        passing(machine, lambda: len(registered(store)) == 2)
        assert [each.state for each in q.workers()] == ["lost", "running"]
    assert len(registered(store)) == 1
