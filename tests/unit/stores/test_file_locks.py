"""Locks of a folder: who holds one for ever keeps others no longer than they like to wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from osqueue import Queue
from osqueue.errors import Timeout, Unavailable
from osqueue.stores.base import (
    Delete,
    Deleted,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Put,
    PutIfAbsent,
    PutIfMatch,
)
from osqueue.stores.file import FileStore
from osqueue.stores.file_locks import STRIPES, FileLock, LockDeadline, open_lock
from tests.support.machines import StoppedClock
from tests.support.replies import error_of, version_of


@contextlib.contextmanager
def frozen(store: FileStore, stripes: int = STRIPES) -> Iterator[None]:
    """Somebody stands still who holds locks."""
    holders = []
    for stripe in range(stripes):
        holders.append(os.open(f"{store.root}/.osqueue/locks/{stripe:02x}", os.O_RDONLY | os.O_CREAT, 0o600))
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


# ── Lock files that are removed under a running store ────────────────────────


class Interrupted(StoppedClock):
    """A machine on which something happens while a writer waits for a lock, once."""

    happens: Callable[[], None] | None = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.happens is not None:
            happens, self.happens = self.happens, None
            happens()


def locks_of(store: FileStore) -> Path:
    return Path(store.root, ".osqueue/locks")


def test_writers_of_an_object_exclude_each_other_although_the_locks_were_removed(tmp_path: Path) -> None:
    store, other = FileStore(tmp_path, machine=StoppedClock()), FileStore(tmp_path, machine=StoppedClock())
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    path, patience = store._path("q/head"), LockDeadline(None, StoppedClock())
    with store._locked(path, patience), store._stripes.object_locked(path, patience):
        shutil.rmtree(tmp_path / ".osqueue")
        for request in (PutIfMatch("q/head", b"two", version), Put("q/head", b"two"), Delete(("q/head",))):
            assert isinstance(error_of(other.perform(request)), Timeout), request
        assert isinstance(error_of(other.perform(DeleteIfMatch("q/head", version))), Timeout)
    version_of(other.perform(PutIfMatch("q/head", b"two", version)))


@pytest.mark.parametrize("removed", ["", "/locks"])
def test_a_lock_that_lost_its_name_while_a_writer_waited_is_taken_again(tmp_path: Path, removed: str) -> None:
    machine = Interrupted()
    store, other = FileStore(tmp_path, machine=machine), FileStore(tmp_path)
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    path = store._path("q/head")
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:

        def happens() -> None:
            """The lock file is removed and released, and another writer has the new one."""
            shutil.rmtree(f"{tmp_path}/.osqueue{removed}")
            first.close()
            other._prepare()
            renewed = open_lock(other._stripes._lock_path(path), other._access)
            second.callback(renewed.close)
            assert renewed.taken()

        first.enter_context(other._locked(path, LockDeadline(None, other._machine)))
        machine.happens = happens
        assert isinstance(error_of(store.perform(PutIfMatch("q/head", b"two", version))), Timeout)
    version_of(store.perform(PutIfMatch("q/head", b"two", version)))


def test_an_object_that_was_replaced_while_a_writer_waited_is_opened_again(tmp_path: Path) -> None:
    machine = Interrupted()
    store = FileStore(tmp_path, machine=machine)
    version_of(store.perform(PutIfAbsent("q/segment", b"one")))
    path = store._path("q/segment")
    holder = FileLock(path, os.O_RDWR)
    assert holder.taken()

    def happens() -> None:
        (tmp_path / "new").write_bytes(b"two")
        os.rename(tmp_path / "new", path)
        holder.close()

    machine.happens = happens
    with store._stripes.object_locked(path, LockDeadline(None, machine)) as file:
        assert file is not None
        assert os.pread(file.descriptor, 9, 0) == b"two"


def test_a_turn_is_held_by_a_lock_that_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path)
    store.perform(PutIfAbsent("q/head", b"one"))
    turns, taken = store._turns, FileLock.taken

    def removed_first(lock: FileLock) -> bool:
        monkeypatch.setattr(FileLock, "taken", taken)
        shutil.rmtree(turns.folder)
        return lock.taken()

    monkeypatch.setattr(FileLock, "taken", removed_first)
    held = turns._lock("q/head")
    assert held is not None
    assert held.lock.is_named()
    assert turns._lock("q/head") is None


def test_closing_a_lock_frees_it_although_another_process_has_the_file_open(tmp_path: Path) -> None:
    """A process that forked without Python's hooks shares the open file, as a duplicated descriptor does."""
    lock = FileLock(str(tmp_path / "lock"))
    assert lock.taken()
    shared = os.dup(lock.descriptor)
    lock.close()
    other = FileLock(str(tmp_path / "lock"))
    assert other.taken()
    other.close()
    os.close(shared)


def test_a_lock_that_two_threads_close_at_once_is_closed_by_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a closed file may stand for another one at the next moment: here for the lock of a third thread."""
    lock = FileLock(f"{tmp_path}/lock")
    assert lock.taken()
    third: list[FileLock] = []
    real = fcntl.flock

    def overtaken(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_UN and not third:
            third.append(FileLock(f"{tmp_path}/third"))
            lock.close()  # the other thread, which comes between this one's look and its call
            third.append(FileLock(f"{tmp_path}/fourth"))
            assert third[1].taken()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    lock.close()
    assert not FileLock(f"{tmp_path}/fourth").taken()
    assert FileLock(f"{tmp_path}/lock").taken()
