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
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet

from .errors import NESTED_CALL, Rejected

T = TypeVar("T")

RELEASE_TRIES_MAX = 100  # each ended by an interruption
_HELPERS = ("contextlib", "threading")  # whose frames enter a lock for their callers

_LOCKS: WeakSet[ForkLock] = WeakSet()
_FILES: WeakSet[OwnFile] = WeakSet()  # open files
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
    for each in _known(_LOCKS):
        each.reopen()
    for file in _known(_FILES):
        with suppress(OSError):
            file.forget()
    for begin in _BEGINNINGS:
        begin()


def _known(those: WeakSet[T]) -> list[T]:
    while True:
        with suppress(RuntimeError):  # another thread of the child adds one meanwhile
            return list(those)


_IDENTITY = ProcessIdentity(os.getpid, _begin_child)
process = _IDENTITY.id
"""Return the id of this process; different in a fork's child, however it was forked."""


def at_beginning(begin: Callable[[], None]) -> None:
    """Have ``begin`` called in each fork's child before it uses anything here. It must be safe to repeat."""
    _BEGINNINGS.append(begin)


class _Thread(threading.local):
    """What the current thread holds."""

    def __init__(self) -> None:
        # Each with the identity of its holder's frame. May end with locks that the thread has released since.
        self.held: list[tuple[OwnedLock, int]] = []


class OwnedLock(Protocol):
    """A lock that knows whether the current thread, which took it, still holds it."""

    def _is_owned(self) -> bool: ...

    def let_go(self) -> None:
        """Release the lock wherever its holder was interrupted. It can be repeated."""


_THREAD = _Thread()


def note_held(taken: OwnedLock) -> None:
    """Note that the current thread takes a lock. It releases its locks in the reverse order."""
    holder = sys._getframe(1)
    while holder.f_back is not None and holder.f_globals.get("__name__") in (taken.__module__, *_HELPERS):
        holder = holder.f_back
    _drop_leftovers(holder)
    _THREAD.held.append((taken, id(holder)))


def refuse_nested_call() -> None:
    """Raise Rejected if the current thread holds a lock: a signal handler or a finaliser interrupted its call.

    Such a call could wait for a lock that this very thread holds. A lock that an interrupted call left is released.
    """
    process()
    if _THREAD.held:
        _drop_leftovers(sys._getframe(1))
        if _THREAD.held:
            raise Rejected(NESTED_CALL)


def _drop_leftovers(inside: FrameType) -> None:
    """Release the locks that were taken last and whose holders are none of the frames that now run."""
    held = _THREAD.held
    while held:
        lock, holder = held[-1]
        if lock._is_owned() and _runs(holder, inside):
            return
        lock.let_go()
        held.pop()


def _runs(holder: int, inside: FrameType) -> bool:
    frame: FrameType | None = inside
    while frame is not None:
        if id(frame) == holder:
            return True
        frame = frame.f_back
    return False


def release_held() -> None:
    """Release every lock of the current thread, whose call was interrupted; again after another interruption.

    The end of a ``with`` cannot be relied on. An interruption before its first step leaves the lock held, and the
    traceback keeps a generator that holds one.
    """
    for _ in range(RELEASE_TRIES_MAX):
        try:
            process()
            held = _THREAD.held
            while held:
                held[-1][0].let_go()
                held.pop()
            return
        except BaseException:  # noqa: BLE001, S112 - the caller raises the first interruption
            continue


class ForkLock(threading._RLock if TYPE_CHECKING else type(threading.RLock())):  # type: ignore[misc]
    """A lock that is open in a fork's child even if a thread of the parent held it.

    A thread that holds it is refused at once: a second attempt would have no end. The end of a ``with`` is the base
    class's, in C, so that no signal arrives between its beginning and the release.
    """

    def __enter__(self) -> bool:
        process()
        if self._is_owned():
            _drop_leftovers(sys._getframe(1))
            if self._is_owned():
                raise Rejected(NESTED_CALL)
        try:
            note_held(self)
            self.acquire()
        except BaseException:  # a signal handler raised it, perhaps after the lock was taken
            if self._is_owned():
                self.release()
            raise
        return True

    def let_go(self) -> None:
        """Release the lock, if the current thread holds it."""
        while self._is_owned():
            self.release()

    def reopen(self) -> None:
        """Open the lock, as the standard library opens its own."""
        self._at_fork_reinit()


def lock() -> ForkLock:
    """Return a new lock that is open in a fork's child."""
    process()  # first: a child that has not begun reopens the locks that it knows
    made = ForkLock()
    _LOCKS.add(made)
    return made


class OwnFile:
    """An open file of this process alone: a fork's child closes its copy before it does anything else."""

    descriptor = -1  # until it is open, and once it is closed

    def __init__(self, path: str, flags: int) -> None:
        process()
        with _OPENING:
            self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
            _FILES.add(self)

    def __del__(self) -> None:
        if self.descriptor >= 0:  # an interruption prevented its close
            self.close()

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
