"""The system calls of a folder's store, on the model of a disk, one after the other.

What stands here takes the place of the modules ``os`` and ``fcntl`` in the store's own. Whoever calls gives others a
turn first, so that any of them may come between any two calls.
"""

from __future__ import annotations

import errno
import fcntl
import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from osqueue import forks
from osqueue.stores import file, file_access, file_flushes, file_hot, file_listing, file_locks, file_swap

from .disk import Disk, File, Folder, mode_of

FIRST_DESCRIPTOR = 1_000
DEVICE = 1
PROCESS = 1


class Stat(Struct, frozen=True):
    """What ``stat`` tells, as far as the store asks."""

    st_mode: int
    st_dev: int
    st_ino: int
    st_size: int
    st_mtime_ns: int


class DirEntry(Struct, frozen=True):
    """A name in a folder, as ``scandir`` gives it."""

    name: str
    path: str
    node: Any

    def is_dir(self) -> bool:
        """Is it a folder?"""
        return isinstance(self.node, Folder)

    def is_file(self) -> bool:
        """Return whether it is a file. The model has no pipes."""
        return isinstance(self.node, File)

    def stat(self) -> Stat:
        """What is known of it."""
        return _stat(self.node)


class Posix:
    """One machine's kernel: its disk, its open files, its locks."""

    def __init__(self, disk: Disk, now_ns: Callable[[], int]) -> None:
        self.disk = disk
        self.turn: Callable[[str], None] = lambda call: None  # called before each call: others may come first
        self.before_flush: Callable[[File | Folder], None] = lambda node: None
        self.written: Callable[[File], None] = lambda file: None  # told of what was changed in place
        self.owner: Callable[[], object] = lambda: None  # which process calls
        self.named: Callable[[str, File | None], None] = lambda path, node: (
            None
        )  # told of what a path stands for now
        self._now_ns = now_ns
        self._open: dict[int, File | Folder] = {}
        self._owners: dict[int, object] = {}  # of open files
        self._pieces = 0
        self._next = FIRST_DESCRIPTOR
        self._locks: dict[int, int] = {}  # inode: the descriptor that holds it
        looks = SimpleNamespace(
            exists=self.exists,
            lexists=self.exists,
            isdir=lambda path: self.exists(path) and isinstance(self.disk.find(path), Folder),
            islink=lambda path: False,
            realpath=posixpath.abspath,
        )
        self.path = _Over(looks, posixpath)

    # ── Looking ──────────────────────────────────────────────────────────────
    def exists(self, path: str) -> bool:
        """Is there anything?"""
        try:
            self.disk.find(path)
        except OSError:
            return False
        return True

    def stat(self, path: str | int) -> Stat:
        """What is known of a path, or of an open file."""
        self.turn("stat")
        return _stat(self._open[path] if isinstance(path, int) else self.disk.find(path))

    def fstat(self, descriptor: int) -> Stat:
        """What is known of an open file."""
        return self.stat(descriptor)

    @contextmanager
    def scandir(self, path: str) -> Iterator[list[DirEntry]]:
        """What is in a folder."""
        self.turn("scandir")
        folder = self.disk.find(path)
        if not isinstance(folder, Folder):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        yield [DirEntry(name, posixpath.join(path, name), node) for name, node in folder.names.items()]

    # ── Files ────────────────────────────────────────────────────────────────
    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """Open a file or a folder."""
        self.turn("open")
        if flags & os.O_CREAT and (flags & os.O_EXCL or not self.exists(path)):
            node: File | Folder = self.disk.create(path, self._now_ns())
        else:
            node = self.disk.find(path)
        if isinstance(node, File):
            node.opened += 1
        self._next += 1
        self._open[self._next] = node
        self._owners[self._next] = self.owner()
        return self._next

    def close(self, descriptor: int) -> None:
        """Close it; its lock is free."""
        node = self._open.pop(descriptor)
        del self._owners[descriptor]
        self._unlock(descriptor)
        if isinstance(node, File):
            self.disk.close(node)

    def end(self, owner: object) -> None:
        """A process has ended: what it had open is closed."""
        for descriptor in [each for each, by in self._owners.items() if by is owner]:
            self.close(descriptor)

    def pread(self, descriptor: int, length: int, start: int) -> bytes:
        """Read a part. Whoever writes in place may come in the middle of it."""
        self.turn("read")
        middle, end = start + length // 2, start + length
        first = self._file(descriptor).data[start:middle]
        self.turn("read on")
        return first + self._file(descriptor).data[middle:end]

    def pwrite(self, descriptor: int, data: Any, start: int) -> int:
        """Write a part in place. A write may take less than it was given: a few bytes, half of them, or all."""
        self.turn("write in place")
        self._pieces += 1
        taken = bytes(data[: (20, max(1, len(data) // 2), len(data))[self._pieces % 3]])
        file = self._file(descriptor)
        file.overwrite(start, taken)
        file.mtime_ns = self._now_ns()
        self.written(file)
        return len(taken)

    def write(self, descriptor: int, data: Any) -> int:
        """Add to the end, which is where the store writes. A write may take less than it was given."""
        self.turn("write")
        taken = bytes(data[: max(1, (len(data) + 1) // 2)])
        self._file(descriptor).data += taken
        return len(taken)

    def utime(self, where: str | int, ns: tuple[int, int]) -> None:
        """Set the time of a file."""
        self.turn("utime")
        node = self._file(where) if isinstance(where, int) else self.disk.find(where)
        assert isinstance(node, File)
        node.mtime_ns = ns[1]

    def fsync(self, descriptor: int) -> None:
        """Flush a file or a folder."""
        self.turn("fsync")
        node = self._open[descriptor]
        self.before_flush(node)
        node.flush()

    def fdatasync(self, descriptor: int) -> None:
        """Flush what a file holds."""
        self.turn("flush in place")
        file = self._file(descriptor)
        self.before_flush(file)
        file.flush_data()

    def _file(self, descriptor: int) -> File:
        node = self._open[descriptor]
        if isinstance(node, Folder):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        return node

    # ── Names ────────────────────────────────────────────────────────────────
    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Create a folder."""
        self.turn("mkdir")
        self.disk.make_folder(path)

    def makedirs(self, path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Create a folder and those above it."""
        for end in [at for at, sign in enumerate(path) if sign == "/" and at] + [len(path)]:
            self.turn("mkdir")
            if not self.exists(path[:end]):
                self.disk.make_folder(path[:end])
        self.disk.place(path + "/.")  # a file that stands there is an error

    def link(self, source: str, target: str) -> None:
        """Another name for a file."""
        self.turn("link")
        self.disk.link(source, target)
        self._tell(target)

    def rename(self, source: str, target: str) -> None:
        """Another name instead."""
        self.turn("rename")
        self.disk.rename(source, target)
        self._tell(target)

    def unlink(self, path: str) -> None:
        """A name less."""
        self.turn("unlink")
        self.disk.unlink(path)
        self.named(path, None)

    def _tell(self, path: str) -> None:
        node = self.disk.find(path)
        assert isinstance(node, File)
        self.named(path, node)

    # ── Locks ────────────────────────────────────────────────────────────────
    def flock(self, descriptor: int, operation: int) -> None:
        """Take a lock without waiting for it, or give it back."""
        self.turn("flock")
        if operation == fcntl.LOCK_UN:
            self._unlock(descriptor)
            return
        assert operation == fcntl.LOCK_EX | fcntl.LOCK_NB
        if self._locks.setdefault(self._open[descriptor].number, descriptor) != descriptor:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _unlock(self, descriptor: int) -> None:
        self._locks = {number: holder for number, holder in self._locks.items() if holder != descriptor}

    def getpid(self) -> int:
        """Which process asks. All are told the same, as in containers that share a folder."""
        return PROCESS


class _Over:
    """Names of one thing, and where it has none those of another."""

    def __init__(self, first: Any, then: Any) -> None:
        self._first = first
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first, name) if hasattr(self._first, name) else getattr(self._then, name)


# What computes, or is a number, is that of the real system.
_REAL = frozenset({"fsencode", "fspath", "strerror", "stat_result", "PathLike"})


class _Constants:
    def __getattr__(self, name: str) -> Any:
        if name not in _REAL and not name.startswith("O_"):
            raise AttributeError(f"the model has no os.{name}")
        return getattr(os, name)


@contextmanager
def running(posix: Posix) -> Iterator[None]:
    """Let the folder's store call this kernel."""
    system = _Over(posix, _Constants())
    locks = _Over(posix, fcntl)
    callers = (forks, file, file_access, file_flushes, file_hot, file_listing, file_locks, file_swap)
    changes: list[tuple[Any, str, Any]] = [(each, "os", system) for each in callers]
    changes.append((file_locks, "fcntl", locks))
    changes.append((forks, "_OPENING", nullcontext()))  # nobody forks here, and many open files at once
    before = [(home, name, getattr(home, name)) for home, name, _ in changes]
    for home, name, value in changes:
        setattr(home, name, value)
    try:
        yield
    finally:
        for home, name, value in before:
            setattr(home, name, value)


def _stat(node: File | Folder) -> Stat:
    if isinstance(node, Folder):
        return Stat(mode_of(node), DEVICE, node.number, 0, 0)
    return Stat(mode_of(node), DEVICE, node.number, len(node.data), node.mtime_ns)
