"""Descriptors of the folder's store: each is closed once, and is not used after that.

A number that is closed twice may stand for another file at the second time. Here no number is used again, so a second
close, or a use after the close, fails at once, whatever other threads open meanwhile.
"""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EBADF
from pathlib import Path
from typing import Any

import pytest

from osqueue import Queue
from osqueue.errors import OsqueueError
from osqueue.stores.base import PassTurn, TakeTurn, Turn
from osqueue.stores.file import FileStore
from tests.support.patience import PATIENCE

CALLERS = 4
ROUNDS = 6  # of each caller
FORKS = 2
INTERRUPTED_EVERY = 43  # uses of a descriptor by one thread
FIRST_NUMBER = 1_000
USES = ((os, "fstat"), (os, "read"), (os, "write"), (os, "pread"), (os, "pwrite"), (fcntl, "flock"))


class Numbers:
    """Descriptors whose numbers are not used again, and each use of one that is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.misuses: list[str] = []
        self.endings: set[str] = set()  # of the paths that were opened
        self._numbers = itertools.count(FIRST_NUMBER)
        self._thread = threading.local()
        monkeypatch.setattr(os, "open", self._opening(os.open, os.close))
        monkeypatch.setattr(os, "close", self._watched(os.close))
        for home, name in USES:
            monkeypatch.setattr(home, name, self._interrupted(self._watched(getattr(home, name))))

    def interrupt(self) -> None:
        """Interrupt the current thread now and then, as a signal does."""
        self._thread.uses = 1

    def _opening(self, opening: Callable[..., int], closing: Callable[[int], None]) -> Callable[..., int]:
        def opened(path: Any, *args: Any, **options: Any) -> int:
            first = opening(path, *args, **options)
            number = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, next(self._numbers))
            closing(first)
            self.endings.add(os.path.splitext(str(path))[1])
            return number

        return opened

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def watched(descriptor: int, *args: Any) -> Any:
            try:
                return real(descriptor, *args)
            except OSError as error:
                if error.errno == EBADF:
                    self.misuses.append("".join(traceback.format_stack(limit=8)))
                raise

        return watched

    def _interrupted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(descriptor: int, *args: Any) -> Any:
            uses = getattr(self._thread, "uses", 0)
            if uses:
                self._thread.uses = uses + 1
                if uses % INTERRUPTED_EVERY == 0:
                    raise KeyboardInterrupt
            return call(descriptor, *args)

        return interrupted


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Numbers:
    return Numbers(monkeypatch)


def test_a_second_close_is_seen_although_another_file_is_opened_meanwhile(
    tmp_path: Path, numbers: Numbers
) -> None:
    first = os.open(tmp_path, os.O_RDONLY)
    os.close(first)
    second = os.open(tmp_path, os.O_RDONLY)
    assert numbers.misuses == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(first)
    os.close(second)
    assert len(numbers.misuses) == 1


def test_a_descriptor_is_closed_once_whatever_interrupts_or_forks(tmp_path: Path, numbers: Numbers) -> None:
    """Callers of two stores take turns, are interrupted, close a store, and fork."""
    queues = [Queue[Any](FileStore(tmp_path, fsync=False), "mail", timeout=PATIENCE) for _ in range(2)]
    queues[0].enqueue("first")

    def call(number: int) -> None:
        q = queues[number % 2]
        numbers.interrupt()
        for _ in range(ROUNDS):
            with suppress(KeyboardInterrupt, OsqueueError):
                q._group(0).writer.shared = True  # it takes turns
                q.enqueue(number)
                for lease in q.claim():
                    lease.complete()
            q.store.close()
            gc.collect(0)

    def fork() -> None:
        """Fork in the middle of a turn, which the child passes on as well."""
        store = queues[0].store
        turn = store.perform(TakeTurn("another/head", b"", PATIENCE))
        assert isinstance(turn, Turn)
        child = os.fork()
        if not child:
            try:
                store.perform(PassTurn(turn))
                queues[0].enqueue("of a child")
            finally:
                os._exit(len(numbers.misuses))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.perform(PassTurn(turn))

    with ThreadPoolExecutor(CALLERS) as pool:
        calls = [pool.submit(call, number) for number in range(CALLERS)]
        for _ in range(FORKS):
            fork()
        for each in calls:
            each.result(PATIENCE)
    queues.clear()
    gc.collect()
    assert numbers.misuses == []
    assert numbers.endings >= {".box", ".lock"}
