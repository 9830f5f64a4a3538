"""Calls by a signal handler or a finaliser while their thread holds a lock that they could wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue, forks
from osqueue.clock import Machine
from osqueue.errors import Rejected
from osqueue.objects.layout import root_of
from osqueue.stores.base import Store
from osqueue.stores.file import FileStore
from osqueue.stores.file_locks import LockDeadline
from osqueue.stores.memory import MemoryStore
from osqueue.stores.valkey import _pool_class
from tests.support.patience import PATIENCE

CALLS: dict[str, Callable[[Queue[Any]], Any]] = {
    "enqueue": lambda q: q.enqueue("nested"),
    "claim": lambda q: q.claim(),
    "stats": lambda q: q.stats(),
    "status": lambda q: q.status("00000000000000000000000000"),
}


def memory_lock(store: Any) -> AbstractContextManager[Any]:
    lock: AbstractContextManager[Any] = store._lock
    return lock


def stripe_lock(store: Any) -> AbstractContextManager[Any]:
    head = f"{store.root}/{root_of('mail', 0)}head"
    lock: AbstractContextManager[Any] = store._stripes.locked(head, LockDeadline(None, Machine()))
    return lock


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_a_call_of_another_queue_while_its_thread_holds_a_lock_of_the_store_is_refused(
    tmp_path: Path, kind: str, call: str
) -> None:
    folder = kind == "folder"
    store: Store = FileStore(tmp_path, fsync=False) if folder else MemoryStore()
    q: Queue[Any] = Queue(FileStore(tmp_path, fsync=False) if folder else store, "mail")
    q.enqueue("first")
    with (
        (stripe_lock if folder else memory_lock)(store),
        pytest.raises(Rejected, match="nothing was enqueued"),
    ):
        CALLS[call](q)
    assert q.stats()["queued"] == 1


def test_a_call_while_its_thread_holds_any_lock_is_refused() -> None:
    q: Queue[Any] = Queue(MemoryStore(), "mail")
    q.enqueue("first")
    locks: list[AbstractContextManager[Any]] = [*forks._LOCKS, q._event_queue._changed]
    for lock in locks:
        with lock, pytest.raises(Rejected):
            q.stats()
    with ExitStack() as outer:
        outer.enter_context(forks.lock())
        with forks.lock():
            pass
        with pytest.raises(Rejected):
            q.enqueue("inside the outer lock")
    assert q.stats()["queued"] == 1


def test_a_refused_call_reaches_no_other_thread() -> None:
    store = MemoryStore()
    q: Queue[Any] = Queue(store, "mail")
    q.enqueue("first")
    with ThreadPoolExecutor(2) as pool:
        with store._lock:
            others = [pool.submit(q.enqueue, name) for name in "ab"]
            while not q._group(0)._leader:
                threading.Event().wait(0.001)
            with pytest.raises(Rejected):
                q.enqueue("nested")
        assert [each.result(PATIENCE).status for each in others] == ["queued"] * 2
    assert q.stats()["queued"] == 3


def test_a_listener_may_call_its_own_queue() -> None:
    class Listener:
        name = "listener"

        def send(self, events: Any) -> None:
            depths.append(q.stats()["queued"])

    depths: list[int] = []
    q: Queue[Any] = Queue(MemoryStore(), "mail", sinks=[Listener()])
    q.enqueue("first")
    q.close()
    assert depths == [1]


def test_the_pool_of_connections_refuses_a_nested_call() -> None:
    pool = _pool_class()()
    with pool._lock, pytest.raises(Rejected):
        pool.get_connection("PING")
