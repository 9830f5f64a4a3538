"""The reaper and the registry of workers: what lost workers left is removed, once an hour."""

from __future__ import annotations

from typing import Any

import pytest

from osqueue import Queue, Unavailable
from osqueue.model.worker import WorkerEntry
from osqueue.objects import backups
from osqueue.objects.worker_registry import folder_of
from osqueue.stores.base import Failed, List, StoreReply, StoreRequest
from osqueue.stores.memory import MemoryStore
from osqueue.stores.wrapped import WrappedStore
from tests.support.scene import HOUR, done, names, told

FOLDER = folder_of("mail")


@pytest.fixture
def store(machine: Any) -> MemoryStore:
    return MemoryStore(machine)


@pytest.fixture
def q(store: MemoryStore, machine: Any) -> Queue[Any]:
    return Queue(store, "mail", machine=machine)


def at_hour(machine: Any, seconds: float) -> None:
    """Let time pass up to this many seconds after the next full hour."""
    machine.advance((-machine.time_ms % (HOUR * 1000)) / 1000 + seconds)


def test_what_lost_workers_left_is_removed_with_the_first_backup_of_an_hour(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    def say(worker_id: str) -> None:
        assert q._run(q._flows.put_worker(worker_id, WorkerEntry(name="mailer")))

    q.enqueue(1)
    at_hour(machine, 10)
    say("lost")
    q.reap()
    at_hour(machine, 5)
    say("alive")
    q.reap()  # it was heard of within an hour
    assert names(store, FOLDER) == [f"{FOLDER}alive", f"{FOLDER}lost"]
    for _ in range(59):
        machine.advance(60)
        say("alive")
        lists = q.requests["list"]
        q.reap()
        assert q.requests["list"] - lists == 1  # for announcements: nobody looks for workers
    at_hour(machine, 5)
    q.reap()
    assert names(store, FOLDER) == [f"{FOLDER}alive"]


def test_a_queue_whose_workers_cannot_be_looked_at_is_reaped_all_the_same(
    q: Queue[Any], store: MemoryStore, machine: Any
) -> None:
    class Blind(WrappedStore):
        def perform(self, request: StoreRequest) -> StoreReply:
            if isinstance(request, List) and request.prefix == FOLDER:
                return Failed(Unavailable("not this one"))
            return self.inner.perform(request)

        async def perform_async(self, request: StoreRequest) -> StoreReply:
            return self.perform(request)

    done(q, 3)
    reaper: Queue[Any] = Queue(Blind(store), "mail", machine=machine)
    with pytest.raises(Unavailable, match="not this one"):
        reaper.reap()
    assert len(told(store)) == 3
    assert names(store, backups.FOLDER)
