"""Keep a fork's child away from what belongs to its parent: locks that were held, open lock files, threads.

A fork copies one thread, every lock and every open file. A lock that another thread held at that moment stays held in
the child, because the child has no copy of that thread. The state that such a lock guards must be usable even if it
was copied in the middle of a change. A file that is locked stays locked while any process has it open, so a child
would keep the lock of a parent that was killed.

Python runs the hooks of ``os.register_at_fork`` after its own forks only. A server that forks in C, such as uWSGI, runs
no hook. Therefore each use compares the process id, and the first use in a child does what the hook does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

_LOCKS: WeakSet[ForkLock] = WeakSet()
_FILES: set[OwnFile] = set()  # open files
_OPENING = threading.RLock()  # held while a file is opened and entered there, and during a fork
_BEGINNINGS: list[Callable[[], None]] = []


class ProcessIdentity:
    """The process whose memory this is, as far as the memory knows: a fork copies it."""

    def __init__(self, getpid: Callable[[], int], begin: Callable[[], None]) -> None:
        self._getpid = getpid
        self._begin = begin
        self._known = getpid()
        self._beginning: int | None = None  # the child whose begin runs
        self._turns: dict[int, Any] = {}  # by process id: which of its threads begins

    def id(self) -> int:
        """Return the id of this process. The first call in a fork's child begins the child."""
        now = self._getpid()
        if now != self._known:
            self.begin_child()
        return now

    def begin_child(self) -> None:
        """Begin this process, unless that is done. Other threads of it wait until that is done."""
        now = self._getpid()
        with self._turns.setdefault(now, threading.RLock()):
            # Not again if the garbage collector closes a file meanwhile, which asks for the id.
            if now in (self._known, self._beginning):
                return
            self._beginning = now
            try:
                self._begin()
                self._known = now
            finally:
                self._beginning = None


def _begin_child() -> None:
    """Let go of what the parent's threads held. Safe to repeat."""
    _OPENING._at_fork_reinit()  # type: ignore[attr-defined]
    for each in _LOCKS:
        each.reopen()
    for file in list(_FILES):
        with suppress(OSError):
            file.forget()
    for begin in _BEGINNINGS:
        begin()


_IDENTITY = ProcessIdentity(os.getpid, _begin_child)
process = _IDENTITY.id
"""Return the id of this process; different in a fork's child, however it was forked."""


def at_beginning(begin: Callable[[], None]) -> None:
    """Have ``begin`` called in each fork's child before it uses anything here. It must be safe to repeat."""
    _BEGINNINGS.append(begin)


class ForkLock:
    """A lock that is open in a fork's child even if a thread of the parent held it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        process()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def reopen(self) -> None:
        """Open the lock, as the standard library opens its own."""
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]


def lock() -> ForkLock:
    """Return a new lock that is open in a fork's child."""
    made = ForkLock()
    _LOCKS.add(made)
    return made


class OwnFile:
    """An open file of this process alone: a fork's child closes its copy before it does anything else."""

    def __init__(self, path: str, flags: int) -> None:
        process()
        with _OPENING:
            self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)  # -1 once it is closed
            _FILES.add(self)

    def close(self) -> None:
        """Close the file, if it is open in this process. Of several callers at once, one does it."""
        process()
        _FILES.discard(self)
        # In one step. A number that another thread closes may stand for another file at the next moment.
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            try:
                self.release(descriptor)
            finally:
                os.close(descriptor)

    def release(self, descriptor: int) -> None:
        """Give back what holds for the file as long as any process has it open."""

    def forget(self) -> None:
        """Close the descriptor of a fork's child and no more than that: a lock on the file is the parent's."""
        _FILES.discard(self)
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _before_fork() -> None:
    process()
    _OPENING.acquire()


os.register_at_fork(
    before=_before_fork, after_in_parent=_OPENING.release, after_in_child=_IDENTITY.begin_child
)
