"""Locks of a folder: who holds one for ever keeps others no longer than they like to wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from osqueue import Queue
from osqueue.errors import Timeout, Unavailable
from osqueue.stores.base import Delete, Deleted, Found, Get, List, Put, PutIfAbsent, PutIfMatch
from osqueue.stores.file import FileStore
from osqueue.stores.file_locks import STRIPES
from tests.support.machines import StoppedClock
from tests.support.replies import error_of, version_of


@contextlib.contextmanager
def frozen(store: FileStore, stripes: int = STRIPES) -> Iterator[None]:
    """Somebody stands still who holds locks."""
    holders = []
    for stripe in range(stripes):
        holders.append(os.open(f"{store.root}/.osqueue/locks/{stripe:02x}", os.O_RDONLY | os.O_CREAT, 0o644))
        fcntl.flock(holders[-1], fcntl.LOCK_EX)
    yield
    for holder in holders:
        os.close(holder)


def test_a_frozen_lock_holder_is_a_timeout_and_not_a_hang(tmp_path: Path) -> None:
    store = FileStore(tmp_path, machine=StoppedClock())
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    version = version_of(store.perform(PutIfMatch("q/head", b"two", version)))
    with frozen(store):
        error = error_of(store.perform(PutIfMatch("q/head", b"three", version)))
        assert isinstance(error, Timeout)
        assert "locked" in error.message
        # Who needs no lock goes on.
        assert isinstance(store.perform(Get("q/head")), Found)
        version_of(store.perform(PutIfAbsent("q/segment", b"x")))
        version_of(store.perform(Put("q/intents/1", b"x", durable=False)))
    version_of(store.perform(PutIfMatch("q/head", b"three", version)))


@pytest.mark.parametrize(("wait_seconds", "waited"), [(None, 10), (99, 10), (2.5, 2.5), (0, 0), (-1, 0)])
def test_a_request_waits_for_locks_as_long_as_it_says_and_the_store_allows(
    tmp_path: Path, wait_seconds: float | None, waited: float
) -> None:
    machine = StoppedClock()
    store = FileStore(tmp_path, machine=machine)
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    keys = tuple(f"q/intents/{number}" for number in range(300))
    for key in keys:
        version_of(store.perform(Put(key, b"x", durable=False)))
    for request in (PutIfMatch("q/head", b"two", version, wait_seconds), Delete(keys, wait_seconds)):
        machine.slept = 0.0
        with frozen(store):
            assert isinstance(error_of(store.perform(request)), Timeout)
        assert machine.slept == pytest.approx(waited)


def test_what_a_lock_keeps_does_not_keep_other_objects(tmp_path: Path) -> None:
    store = FileStore(tmp_path, machine=StoppedClock())
    keys = tuple(f"q/intents/{number}" for number in range(300))
    for key in keys:
        version_of(store.perform(Put(key, b"x", durable=False)))
    with frozen(store, stripes=1):
        assert isinstance(error_of(store.perform(Delete(keys, 0))), Timeout)
    left = store.list(List("")).keys
    assert 0 < len(left) < 30
    assert store.perform(Delete(left, 0)) == Deleted()


@pytest.mark.parametrize("seconds", [0.5, 12.0, 30.0])
def test_a_call_ends_by_its_deadline_whoever_holds_a_lock(tmp_path: Path, seconds: float) -> None:
    machine = StoppedClock()
    store = FileStore(tmp_path, machine=machine)
    q: Queue[int] = Queue(store, "mail", timeout=seconds, machine=machine)
    q.enqueue(1)
    machine.slept = 0.0
    with frozen(store), pytest.raises(Unavailable, match=r"may still be applied.*stayed locked"):
        q.enqueue(2)
    assert seconds / 2 <= machine.slept <= seconds
    assert q.enqueue(3).status == "queued"
