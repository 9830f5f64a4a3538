"""The short ways through a call: what they skip must not be missed."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from osqueue import AsyncQueue, Queue, Rejected
from osqueue.clock import Machine
from osqueue.stores.base import Found, Get, PutIfAbsent, PutIfMatch, Refused, Written
from osqueue.stores.file import QUICK_BYTES_MAX, FileStore
from osqueue.stores.file_locks import STRIPES
from osqueue.stores.memory import MemoryStore


# ── Arguments ────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("limit", [True, 1.0, "1", [1], None])
def test_a_limit_that_equals_a_good_one_is_still_refused(machine: Any, limit: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.claim(limit=1)
    with pytest.raises(Rejected, match="limit"):
        q.claim(limit=limit)


def test_a_wait_without_a_hash_is_refused_by_name(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    with pytest.raises(Rejected, match="wait"):
        q.claim(wait=[])  # type: ignore[arg-type]


def test_a_payload_is_decoded_once_and_is_the_same_at_every_look(machine: Any) -> None:
    q: Queue[Any] = Queue(MemoryStore(machine), "mail", machine=machine)
    q.enqueue({"n": 1})
    [lease] = q.claim()
    assert lease.payload is lease.payload


# ── Coroutines ───────────────────────────────────────────────────────────────
def test_a_coroutine_cancelled_when_its_answer_has_arrived_gives_its_leases_back(machine: Any) -> None:
    async def run() -> list[Any]:
        q: AsyncQueue[Any] = AsyncQueue(MemoryStore(machine), "mail", machine=machine)
        await q.enqueue("job")
        claiming = asyncio.create_task(q.claim())
        group = q._group(0)
        waiters: list[Any] = []
        board = group.board
        group.board = lambda *args: waiters.append(board(*args)) or waiters[-1]  # type: ignore[method-assign,func-returns-value]
        while not waiters or not waiters[0].wake.done():  # noqa: ASYNC110 - it takes as many turns as it takes
            await asyncio.sleep(0)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        return [lease.payload for lease in await q.claim()]

    assert asyncio.run(run()) == ["job"]


# ── Files without flushes, on an event loop ──────────────────────────────────
class Yielding(Machine):
    """Holds locks, and lets go of them when somebody sleeps until they are free."""

    def __init__(self) -> None:
        self.locks: list[int] = []

    def sleep(self, seconds: float) -> None:
        while self.locks:
            os.close(self.locks.pop())


class Watched(FileStore):
    """Tells on which thread each request was performed."""

    def get(self, request: Get) -> Any:
        self.last = threading.get_ident()
        return super().get(request)

    def _put_if_match(self, request: PutIfMatch, patience: Any) -> Any:
        self.last = threading.get_ident()
        return super()._put_if_match(request, patience)


def performed_here(store: Watched, request: Any) -> tuple[Any, bool]:
    reply = asyncio.run(store.perform_async(request))
    return reply, store.last == threading.get_ident()


def test_a_small_swap_needs_no_thread(tmp_path: Path) -> None:
    store = Watched(tmp_path, fsync=False)
    first = store.put_if_absent(PutIfAbsent("a/head", b"1"))
    assert isinstance(first, Written)
    swapped, _ = performed_here(store, PutIfMatch("a/head", b"2", first.version))
    assert isinstance(swapped, Written)
    again, here = performed_here(store, PutIfMatch("a/head", b"3", swapped.version))
    assert isinstance(again, Written)
    assert here
    assert performed_here(store, PutIfMatch("a/head", b"4", swapped.version)) == (Refused(), True)
    found, here = performed_here(store, Get("a/head"))
    assert isinstance(found, Found)
    assert (found.body, here) == (b"3", True)


def test_a_large_swap_and_one_behind_a_lock_leave_the_loop_alone(tmp_path: Path) -> None:
    machine = Yielding()
    store = Watched(tmp_path, fsync=False, machine=machine)
    first = store.put_if_absent(PutIfAbsent("a/head", b"1"))
    assert isinstance(first, Written)
    large, here = performed_here(store, PutIfMatch("a/head", b"x" * (QUICK_BYTES_MAX + 1), first.version))
    assert isinstance(large, Written)
    assert not here
    for at in range(STRIPES):
        lock = os.open(tmp_path / f".osqueue/locks/{at:02x}", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine.locks.append(lock)
    swapped, here = performed_here(store, PutIfMatch("a/head", b"2", large.version))
    assert machine.locks == []  # it waited for them
    assert isinstance(swapped, Written)
    assert not here


def test_with_flushes_every_request_goes_to_a_thread(tmp_path: Path) -> None:
    store = Watched(tmp_path, fsync=True)
    first = store.put_if_absent(PutIfAbsent("a/head", b"1"))
    assert isinstance(first, Written)
    swapped, here = performed_here(store, PutIfMatch("a/head", b"2", first.version))
    assert isinstance(swapped, Written)
    assert not here
