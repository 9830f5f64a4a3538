"""A store that refuses everything for a while: each entry works again with its next call after the store allows it."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osqueue import AsyncPacer, AsyncQueue, Pacer, Queue, Unavailable
from osqueue.clock import Machine
from osqueue.election.blocking import Election
from osqueue.limits import BORN_AGE_MAX_MS
from osqueue.stores.memory import MemoryStore
from osqueue.worker.loop import Worker
from tests.support.at_work import until
from tests.support.patience import PATIENCE
from tests.support.refusing import RefusingStore, Which, clock_requests, every_request, head_reads

Call = Callable[[], Any]
Entry = Callable[[RefusingStore, Machine, asyncio.Runner], Call]


class FarStore(MemoryStore):
    """A store whose clock has to be measured."""

    def clock_ms(self) -> int | None:
        return None


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def _queue(store: RefusingStore, machine: Machine, runner: asyncio.Runner) -> Call:
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    return lambda: q.enqueue(1).status


def _bulk(store: RefusingStore, machine: Machine, runner: asyncio.Runner) -> Call:
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    return lambda: len(q.enqueue_many([{"payload": n} for n in range(1_001)]))


def _claim(store: RefusingStore, machine: Machine, runner: asyncio.Runner) -> Call:
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    return lambda: len(q.claim())


def _async_queue(store: RefusingStore, machine: Machine, runner: asyncio.Runner) -> Call:
    q: AsyncQueue[Any] = AsyncQueue(store, "mail", machine=machine)
    return lambda: runner.run(q.enqueue(1)).status


def _pacer(store: RefusingStore, machine: Machine, runner: asyncio.Runner) -> Call:
    pacer = Pacer(store, "slots", machine=machine)
    return lambda: pacer.create(1).interval


def _async_pacer(store: RefusingStore, machine: Machine, runner: asyncio.Runner) -> Call:
    pacer = AsyncPacer(store, "slots", machine=machine)
    return lambda: runner.run(pacer.create(1)).interval


def _election(store: RefusingStore, machine: Machine, runner: asyncio.Runner) -> Call:
    election = Election(store, "leader", machine=machine)
    return lambda: election.campaign() in ("elected", "already_leader")


def _reap(store: RefusingStore, machine: Machine, runner: asyncio.Runner) -> Call:
    q: Queue[Any] = Queue(store, "mail", machine=machine)
    return lambda: q.reap().expired + 1


ENTRIES: dict[str, Entry] = {
    "queue": _queue,
    "bulk": _bulk,
    "claim": _claim,
    "async queue": _async_queue,
    "pacer": _pacer,
    "async pacer": _async_pacer,
    "election": _election,
    "reap": _reap,
}


def _at_first(call: Call, store: RefusingStore, machine: Any) -> None:
    """Do nothing: the object has not read a head yet."""


def _after_a_rest(call: Call, store: RefusingStore, machine: Any) -> None:
    """Use the object, then let the head that it knows grow too old."""
    call()
    machine.advance(BORN_AGE_MAX_MS / 1000 + 1)


def _after_others(call: Call, store: RefusingStore, machine: Any) -> None:
    """Use the object, then commit with another writer."""
    call()
    Queue[Any](store, "mail", machine=machine).enqueue("another")


@pytest.mark.parametrize("before", [_at_first, _after_a_rest, _after_others])
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_a_refusal_is_raised_by_each_call_and_ends_with_it(
    machine: Any, runner: asyncio.Runner, entry: Entry, before: Callable[..., None]
) -> None:
    store = RefusingStore(MemoryStore(machine))
    Queue[Any](store, "mail", machine=machine).enqueue_many([{"payload": n} for n in range(9)])
    call = entry(store, machine, runner)
    before(call, store, machine)
    errors = []
    for _ in range(3):
        store.refuses, asked = True, store.asked
        with pytest.raises(Unavailable, match="403") as caught:
            call()
        assert store.asked > asked, "the error was raised without a request"
        assert caught.value.permanent
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == len(errors)
    _, *later = [len(traceback.extract_tb(error.__traceback__)) for error in errors]
    assert later == [later[0]] * len(later), "the traceback grows with each call"
    store.refuses = False
    assert call()


@pytest.mark.parametrize("which", [head_reads, clock_requests])
@pytest.mark.parametrize("entry", [_queue, _bulk, _claim, _async_queue])
def test_a_refusal_of_some_requests_ends_with_its_call(
    machine: Any, runner: asyncio.Runner, entry: Entry, which: Which
) -> None:
    store = RefusingStore(FarStore(machine), which)
    Queue[Any](store, "mail", machine=machine).enqueue_many([{"payload": n} for n in range(9)])
    call = entry(store, machine, runner)
    store.refuses = True
    with pytest.raises(Unavailable, match="403"):
        call()
    store.refuses = False
    assert call()


def test_a_worker_goes_on_once_its_store_allows_it() -> None:
    store = RefusingStore(MemoryStore(), every_request)
    producer: Queue[Any] = Queue(store.inner, "mail")
    done = threading.Event()
    q: Queue[Any] = Queue(store, "mail")
    q.handler(lambda job: done.set())
    store.refuses = True
    worker = Worker(q, signals=False)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    until(lambda: store.asked > 1)
    store.refuses = False
    producer.enqueue(1)
    assert done.wait(PATIENCE)
    worker.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
