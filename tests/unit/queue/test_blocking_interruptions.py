"""Calls on a folder that are interrupted once, wherever Python lets a signal handler run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from osqueue import Queue, forks
from osqueue.clock import Machine
from osqueue.commit import event_queue
from osqueue.core.reduce import Told
from osqueue.objects.layout import root_of
from osqueue.stores import file, file_locks
from osqueue.stores.file import FileStore
from osqueue.stores.file_locks import LockDeadline

SHORT_S = 0.5
FILES = {module.__file__ for module in (forks, file, file_locks, event_queue)}


class TimeLimit(Exception):
    """As signal handlers raise it."""


class Interrupting:
    """Raises TimeLimit at one of the points where Python runs signal handlers: a call's beginning, and a C call's end.

    A line is no such point. Python 3.14 has one more, after the beginning of a ``with``.
    """

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back.f_code.co_filename if frame.f_back is not None else ""
        if event not in ("call", "c_return") or FILES.isdisjoint((frame.f_code.co_filename, caller)):
            return
        self.left -= 1
        if self.left < 0:
            sys.setprofile(None)
            raise TimeLimit

    def run(self, work: Callable[[], Any]) -> None:
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted inside __del__
@pytest.mark.parametrize("call", ["enqueue", "claim"])
def test_an_interruption_at_any_point_leaves_no_lock_of_a_folder(tmp_path: Path, call: str) -> None:
    """Neither for a call of the same thread while the traceback exists nor for another process."""
    store = FileStore(tmp_path, fsync=False)
    q: Queue[Any] = Queue(store, "mail", timeout=SHORT_S)
    stripes, head = store._stripes, f"{store.root}/{root_of('mail', 0)}head"
    told: list[Told] = []
    q._observe(told.extend)
    q.enqueue("first")
    point, there = 0, True
    while there:
        try:
            Interrupting(point).run(lambda: q.claim(1) if call == "claim" else q.enqueue("x"))
            there = False
        except TimeLimit:
            assert q.enqueue("inside except").status == "queued", point
            with stripes.locked(
                head, LockDeadline(0.0, Machine())
            ):  # another open file, as of another process
                pass
            assert not any(lock._is_owned() for lock, _ in forks._THREAD.held), point
        q.enqueue("next")
        assert q._event_queue._teller is None, point
        assert not q._event_queue._events, point
        point += 1
    assert point > 50


def test_a_lock_that_an_interrupted_call_left_is_released(tmp_path: Path) -> None:
    """By the next one that takes a lock in the thread: a store may be used without a queue."""
    lock, other = forks.lock(), forks.lock()
    q: Queue[Any] = Queue(FileStore(tmp_path, fsync=False), "mail", timeout=SHORT_S)

    def leave() -> None:
        lock.__enter__()

    for release in (lambda: q.enqueue("x"), lock.__enter__, other.__enter__):
        leave()
        assert lock._is_owned()
        release()
        assert lock._is_owned() is (release == lock.__enter__)
        for each in (lock, other):
            each.let_go()
