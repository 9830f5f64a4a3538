"""Forks while other threads are in the middle of something: neither parent nor child waits for the other for ever."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue, forks
from osqueue.clock import Machine
from osqueue.errors import Rejected
from osqueue.operations.admin import AdminFlows
from osqueue.stores.base import Delete, Deleted, DeleteIfMatch, Put, PutIfAbsent, PutIfMatch, StoreRequest
from osqueue.stores.file import FileStore
from osqueue.stores.file_locks import FileLock, LockDeadline, LockTimeout
from tests.support.replies import version_of
from tests.support.source import MODULES, dotted, names_used, parse

HANG_S = 60
# What a thread of the parent may hold, or be, for ever as seen by a fork's child.
HELD_FOR_EVER = {
    *(f"threading.{name}" for name in ("Lock", "RLock", "Condition", "Event", "Semaphore", "Barrier")),
    "concurrent.futures.ThreadPoolExecutor",
    "functools.cached_property",
    "os.register_at_fork",
}
# Modules that make new ones in a child, use them within one call, or are not used by a child.
MAKE_THEIR_OWN = {
    "osqueue.forks",
    *("osqueue.commit.group", "osqueue.commit.event_queue", "osqueue.election"),
    *("osqueue.queue.blocking", "osqueue.stores.valkey_news"),
    *("osqueue.maintenance.store_races", "osqueue.pipeline.engines.helpers", "osqueue.stores.forked"),
    *("osqueue.asgi.server", "osqueue.cli", "osqueue.devstack", "osqueue.testing", "osqueue.worker"),
}


class Hurried(Machine):
    """A machine on which waiting takes no time."""

    def __init__(self) -> None:
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@contextlib.contextmanager
def idle_child() -> Iterator[Callable[[], None]]:
    """Gives what forks a child that does nothing until the end; it has all that was open when it was made."""
    read, write = os.pipe()
    children: list[int] = []

    def fork() -> None:
        if children:
            return
        child = os.fork()
        if child == 0:
            signal.alarm(HANG_S)
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        children.append(child)

    try:
        yield fork
    finally:
        os.close(write)
        os.close(read)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0]


@pytest.mark.parametrize(
    ("call", "request_of"),
    [
        ("rename", lambda version: PutIfMatch("q/head", b"two", version)),
        ("rename", lambda version: Put("q/head", b"two")),
        ("unlink", lambda version: Delete(("q/head",))),
        ("unlink", lambda version: DeleteIfMatch("q/head", version)),
    ],
    ids=["swap", "put", "delete", "conditional delete"],
)
def test_a_child_forked_in_the_middle_of_a_write_does_not_keep_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, request_of: Callable[[str], StoreRequest]
) -> None:
    store, stranger = FileStore(tmp_path), FileStore(tmp_path, machine=Hurried())
    version = version_of(store.perform(PutIfAbsent("q/head", b"one")))
    real = getattr(os, call)
    with idle_child() as fork:

        def forking(*arguments: str) -> None:
            fork()
            real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, forking)
            done = store.perform(request_of(version))
        if done == Deleted():
            version_of(stranger.perform(PutIfAbsent("q/head", b"three")))
        assert stranger.perform(Delete(("q/head",))) == Deleted()


def test_a_child_that_leaves_a_write_of_its_parent_does_not_open_the_parents_lock(tmp_path: Path) -> None:
    store, stranger = FileStore(tmp_path), FileStore(tmp_path, machine=Hurried())
    store.perform(PutIfAbsent("q/head", b"one"))
    path = f"{tmp_path}/q/head"
    locks, others = store._stripes, stranger._stripes
    with locks.locked(path, LockDeadline(None, Hurried())):
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            with pytest.raises(LockTimeout), others.locked(path, LockDeadline(0.0, Hurried())):
                pass
    if not child:
        os._exit(0)  # it has left
    with others.locked(path, LockDeadline(0.0, Hurried())):
        pass


def test_a_child_keeps_no_lock_of_a_parent_that_is_killed(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    lock = FileLock(path)
    assert lock.taken()
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(HANG_S)
        os.write(ready[1], b"x")
        os.close(go[1])
        os.read(go[0], 1)
        os._exit(0 if lock.descriptor < 0 else 1)
    os.read(ready[0], 1)
    assert not FileLock(path).taken()
    lock.forget()  # as the system closes what a killed process had open
    assert FileLock(path).taken()
    os.close(go[1])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_waits_until_a_file_that_is_being_opened_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its child would not know what to close."""
    opened, go_on, forked = threading.Event(), threading.Event(), threading.Event()
    real = os.open

    def slow(*arguments: Any) -> int:
        descriptor = real(*arguments)
        opened.set()
        go_on.wait(HANG_S)
        return descriptor

    def fork() -> int:
        child = os.fork()
        if child == 0:
            os._exit(0 if not forks._FILES else 1)
        forked.set()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    monkeypatch.setattr(os, "open", slow)
    with ThreadPoolExecutor(2) as pool:
        opening = pool.submit(FileLock, f"{tmp_path}/lock")
        assert opened.wait(HANG_S)
        forking = pool.submit(fork)
        assert not forked.wait(0.05)
        go_on.set()
        assert forking.result(HANG_S) == 0
    opening.result().close()


def test_a_child_knows_that_it_is_another_process() -> None:
    machine = Machine()
    parent, name = machine.process(), machine.name()
    child = os.fork()
    if child == 0:
        other = machine.process() == os.getpid() and machine.name().endswith(f"-{os.getpid()}")
        os._exit(0 if other else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (machine.process(), machine.name()) == (parent, name)


def test_a_child_is_not_stopped_by_what_other_threads_held_when_it_was_forked(tmp_path: Path) -> None:
    q: Queue[int] = Queue(FileStore(tmp_path), "mail")
    new: Queue[int] = Queue(FileStore(tmp_path), "mail")  # it has yet to make its folders
    q.enqueue(1)
    with contextlib.ExitStack() as held:
        for lock in set(forks._LOCKS):
            held.enter_context(lock)
        child = os.fork()
        if child == 0:
            signal.alarm(HANG_S)  # it hangs: the lock is that of a thread which is not here
            try:
                told = (q.enqueue(2).status, new.enqueue(3).status)
                os._exit(0 if told == ("queued", "queued") else 1)
            finally:
                os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert q.stats()["queued"] == 3


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_lock_that_outlives_a_call_is_open_in_a_child(path: Path) -> None:
    if not any(f"{dotted(path)}.".startswith(f"{own}.") for own in MAKE_THEIR_OWN):
        assert HELD_FOR_EVER.isdisjoint(names_used(parse(path), path))


def test_a_child_computes_what_another_thread_was_computing_at_the_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    q: Queue[int] = Queue(FileStore(tmp_path), "mail")
    q.enqueue(1)
    computing, go_on = threading.Event(), threading.Event()
    real, calls = AdminFlows.__init__, itertools.count()

    def slow(*arguments: Any) -> None:
        if next(calls) == 0:
            computing.set()
            assert go_on.wait(HANG_S)
        real(*arguments)

    monkeypatch.setattr(AdminFlows, "__init__", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Queue[int](FileStore(tmp_path), "mail").stats)
        assert computing.wait(HANG_S)
        child = os.fork()
        if child == 0:
            signal.alarm(HANG_S)
            try:
                os._exit(0 if q.stats()["queued"] == 1 else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set()
        assert first.result(HANG_S)["queued"] == 1


class Fake:
    """A process id that changes when a test wants it to, and what was begun."""

    def __init__(self) -> None:
        self.pid = 1
        self.begun: list[int] = []
        self.process = forks.ProcessIdentity(lambda: self.pid, self.begin)

    def begin(self) -> None:
        self.begun.append(self.pid)
        assert self.process.id() == self.pid  # as the garbage collector may ask


def test_the_first_use_in_a_child_begins_it_once() -> None:
    fake = Fake()
    assert (fake.process.id(), fake.begun) == (1, [])
    fake.pid = 2
    assert [fake.process.id() for _ in range(3)] == [2] * 3
    fake.pid = 3
    assert fake.process.id() == 3
    assert fake.begun == [2, 3]


def test_threads_of_a_child_wait_until_it_has_begun() -> None:
    fake = Fake()
    beginning, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        beginning.set()
        assert go_on.wait(HANG_S)
        fake.begun.append(fake.pid)

    fake.process._begin = slow
    fake.pid = 2
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fake.process.id)
        assert beginning.wait(HANG_S)
        second = pool.submit(fake.process.id)
        go_on.set()
        assert (first.result(HANG_S), second.result(HANG_S), fake.begun) == (2, 2, [2])


def test_a_lock_refuses_the_thread_that_holds_it() -> None:
    lock = forks.lock()
    with lock, pytest.raises(Rejected, match="same thread"), lock:
        pass
    with lock:
        assert lock._is_owned()
    assert not lock._is_owned()


def test_an_interruption_right_after_a_lock_is_taken_releases_it() -> None:
    class Interrupted(forks.ForkLock):
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            super().acquire(blocking, timeout)
            raise KeyboardInterrupt

    lock = Interrupted()
    with pytest.raises(KeyboardInterrupt), lock:
        pass
    assert not lock._is_owned()
