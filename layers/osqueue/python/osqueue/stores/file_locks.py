"""Locks for files and clocks for their versions.

**Locks.** Whatever ends a version (a replacement, a deletion) holds the ``flock`` of the key's stripe, one of
a fixed set of lock files, so that locks neither show up in listings nor pile up. Creation needs no lock. Which
stripe it is depends on the key alone: processes may reach one folder by several paths (a link, another mount).

**Versions** are the modification time and the inode number. To never repeat, each stripe keeps a clock, the
modification time of its lock file: before a version ends, its stripe's clock is brought up to that version's
time, and a new file reads the clock after its inode exists and takes a later time. Two versions that share
an inode number cannot overlap, hence the later one has the later time, even when the machine's clock stood
still or went back between them. That holds where times are kept as they are set, to the nanosecond; a write
whose time was not kept names nothing. After a machine's clock was ahead, times go on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat as modes
import zlib
from collections.abc import Iterator

from ..clock import Machine
from ..errors import Timeout
from ..forks import OwnFile, process

STRIPES = 64  # lock files; two keys share one with probability 1/64 and then only wait for each other
LOCK_WAIT_S_MAX = (
    10.0  # of one request. A holder is in the middle of one flush; longer means that it is frozen
)
LOCK_POLL_S_MIN = 0.000_2
LOCK_POLL_S_MAX = 0.005


class LockTimeout(Timeout):
    """Somebody else held the lock for as long as there was patience."""


def version_of(stat: os.stat_result) -> str:
    """The version token of a file."""
    return f"{stat.st_mtime_ns:x}-{stat.st_ino:x}"


def stat_of(path: str) -> os.stat_result | None:
    """What is known of a file; None where there is none."""
    try:
        stat = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if modes.S_ISDIR(stat.st_mode) else stat


def time_after(clock_ns: int, now_ms: int) -> int:
    """The time of a new version: the machine's, if that is later than its stripe's clock.

    An odd count of nanoseconds, so that no file system with a coarser time keeps it, not even by chance.
    """
    return max(now_ms * 1_000_000, clock_ns + 1) | 1


class FileLock(OwnFile):
    """A lock file, open, and the lock on it once it is taken. The kernel gives that back when this process ends.

    Opened again each time: a kept one would be shared by threads, and a ``flock`` does not exclude those who share
    one. For the same reason a fork's child keeps none.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, os.O_RDWR | os.O_CREAT)

    def taken(self) -> bool:
        """Take the lock, if nobody has it."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Give the lock back. Closing is not enough: a child that is being forked has the file open as well."""
        process()  # a fork's child has closed its copy then, and leaves the parent's lock alone
        if self.descriptor >= 0:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        super().close()


class LockDeadline:
    """How long one request waits for locks, all in all. Its time runs from the first lock that others hold."""

    def __init__(self, seconds: float | None, machine: Machine) -> None:
        self.seconds = LOCK_WAIT_S_MAX if seconds is None else min(seconds, LOCK_WAIT_S_MAX)
        self._machine = machine
        self._end: float | None = None  # on the monotonic clock

    def left(self) -> float:
        """Seconds that a request may still wait."""
        now = self._machine.monotonic()
        if self._end is None:
            self._end = now + self.seconds
        return self._end - now


class Stripes:
    """The lock files of the store at ``root``, in ``folder``. Paths begin with the root as it is given here."""

    def __init__(self, root: str, folder: str, machine: Machine) -> None:
        self.folder = folder
        self._key_starts = len(root) + 1
        self._machine = machine

    def stripe_of(self, path: str) -> int:
        """Which lock stands for the object at a path."""
        return zlib.crc32(os.fsencode(path[self._key_starts :])) % STRIPES

    @contextlib.contextmanager
    def locked(self, path: str, patience: LockDeadline) -> Iterator[int]:
        """Hold the lock of the path's stripe; gives its descriptor. Raises LockTimeout when patience is at its end."""
        try:
            lock = FileLock(self._lock_path(path))
        except FileNotFoundError:  # somebody has removed the folder
            os.makedirs(self.folder, exist_ok=True)
            lock = FileLock(self._lock_path(path))
        try:
            self._wait_for(lock, path, patience)
            yield lock.descriptor
        finally:
            lock.close()

    def clock_ns(self, path: str) -> int:
        """The clock of the path's stripe."""
        try:
            return os.stat(self._lock_path(path)).st_mtime_ns
        except FileNotFoundError:
            return 0  # nothing of this stripe has ever ended

    def end(self, lock: int, current: os.stat_result) -> int:
        """Bring the stripe's clock up to a version that is about to end; answers the clock."""
        clock_ns = os.stat(lock).st_mtime_ns
        if clock_ns < current.st_mtime_ns:
            clock_ns = current.st_mtime_ns
            os.utime(lock, ns=(clock_ns, clock_ns))
        return clock_ns

    def _wait_for(self, lock: FileLock, path: str, patience: LockDeadline) -> None:
        pause = LOCK_POLL_S_MIN
        while not lock.taken():  # polling, because a blocking flock knows no time-out
            left = patience.left()
            if left <= 0:
                raise LockTimeout(
                    f"{self._lock_path(path)!r} stayed locked for {patience.seconds:.1f} s. "
                    "Remedy: find the stopped process that holds it (`fuser`) and continue or end it."
                )
            self._machine.sleep(min(pause, left))
            pause = min(pause * 2, LOCK_POLL_S_MAX)

    def _lock_path(self, path: str) -> str:
        return f"{self.folder}/{self.stripe_of(path):02x}"
