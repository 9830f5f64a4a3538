"""Locks for files and clocks for their versions.

**Locks.** Whatever ends a version (a replacement, a deletion) holds the ``flock`` of the key's stripe, one of
a fixed set of lock files, so that locks neither show up in listings nor pile up. Creation needs no lock. Which
stripe it is depends on the key alone: processes may reach one folder by several paths (a link, another mount).
The writer also holds the ``flock`` of the object's own file. It keeps writers apart even if the lock files are removed
while a writer holds one of them. After a lock is taken, its path must still name the file that is locked: another
process may have removed or replaced that file meanwhile, and then the next writer locks another one.

**Versions** are the modification time and the inode number. To never repeat, each stripe keeps a clock, the
modification time of its lock file: before a version ends, its stripe's clock is brought up to that version's
time, and a new file reads the clock after its inode exists and takes a later time. Two versions that share
an inode number cannot overlap, hence the later one has the later time, even when the machine's clock stood
still or went back between them. Only the owner of a file may set its time, so a writer of another user first puts a
lock file of its own in the place of the stripe's. That holds where times are kept as they are set, to the nanosecond;
a write whose time was not kept names nothing. After a machine's clock was ahead, times go on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat as modes
import zlib
from collections.abc import Callable, Iterator

from ..clock import Machine
from ..errors import Timeout
from ..forks import OwnFile, note_held
from .file_access import PRIVATE_FILE, READING, FolderAccess

STRIPES = 64  # lock files; two keys share one with probability 1/64 and then only wait for each other
LOCK_WAIT_S_MAX = (
    10.0  # of one request. A holder is in the middle of one flush; longer means that it is frozen
)
LOCK_POLL_S_MIN = 0.000_2
LOCK_POLL_S_MAX = 0.005
OPEN_TRIES_MAX = 100  # of a lock file that other processes keep removing


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
    """A file, open, and the lock on it once it is taken. The kernel releases the lock when this process ends.

    It is opened for each use: threads would share one that is kept, and a ``flock`` does not exclude those who share
    it. For the same reason a fork's child keeps none.
    """

    def __init__(self, path: str, flags: int = os.O_RDWR | os.O_CREAT) -> None:
        super().__init__(path, flags)
        self.path = path
        self.writable = bool(flags & os.O_RDWR)

    def taken(self) -> bool:
        """Take the lock. Return False if another open file holds it."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_owned(self) -> bool:
        return self.descriptor >= 0

    def let_go(self) -> None:
        """Release the lock and close the file."""
        self.close()

    def is_named(self) -> bool:
        """Return whether the path still names this file. If not, the lock keeps no other process away."""
        try:
            named = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        own = os.fstat(self.descriptor)
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def release(self, descriptor: int) -> None:
        """Release the lock. Closing is not enough: a child that is being forked has the file open as well."""
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def open_lock(path: str, access: FolderAccess) -> FileLock:
    """Open a lock file of the store. Create it, and its folder, where it is missing."""
    for _ in range(OPEN_TRIES_MAX):
        with contextlib.suppress(FileNotFoundError):
            return FileLock(path, os.O_RDWR)
        with contextlib.suppress(FileNotFoundError):  # another process removes the folder just now
            access.make_folders(os.path.dirname(path))
            access.create(path, _create)
    return FileLock(path, os.O_RDWR)


def _create(path: str) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))


def _open_object(path: str) -> FileLock | None:
    """Open the file of an object; None where there is none."""
    try:
        try:
            return FileLock(path, os.O_RDWR)
        except PermissionError:  # another user's file, in a folder of ours: it can be replaced
            return FileLock(path, READING)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


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

    def __init__(self, root: str, folder: str, machine: Machine, access: FolderAccess) -> None:
        self.folder = folder
        self._key_starts = len(root) + 1
        self._machine = machine
        self._access = access

    def stripe_of(self, path: str) -> int:
        """Return which lock stands for the object at a path."""
        return zlib.crc32(os.fsencode(path[self._key_starts :])) % STRIPES

    @contextlib.contextmanager
    def locked(self, path: str, patience: LockDeadline) -> Iterator[FileLock]:
        """Hold the lock of the path's stripe. Raises LockTimeout when patience is at its end."""
        lock_path = self._lock_path(path)
        lock = self._taken(lambda: open_lock(lock_path, self._access), path, patience)
        assert lock is not None
        try:
            yield lock
        finally:
            lock.close()

    @contextlib.contextmanager
    def object_locked(self, path: str, patience: LockDeadline) -> Iterator[FileLock | None]:
        """Hold the lock of the object's own file, under its stripe's; None where there is no such file."""
        file = self._taken(lambda: _open_object(path), path, patience)
        try:
            yield file
        finally:
            if file is not None:
                file.close()

    def clock_ns(self, path: str) -> int:
        """Return the clock of the path's stripe."""
        try:
            return os.stat(self._lock_path(path)).st_mtime_ns
        except FileNotFoundError:
            return 0  # nothing of this stripe has ever ended

    def end(self, lock: FileLock, current: os.stat_result) -> int:
        """Bring the stripe's clock up to a version that is about to end. Return the clock."""
        clock_ns = os.stat(lock.descriptor).st_mtime_ns
        if clock_ns < current.st_mtime_ns:
            clock_ns = current.st_mtime_ns
            try:
                os.utime(lock.descriptor, ns=(clock_ns, clock_ns))
            except PermissionError:  # another user's file
                self._renew(lock, clock_ns)
        return clock_ns

    def delete(self, lock: FileLock, path: str, patience: LockDeadline) -> None:
        """Remove the object at ``path``, if there is one, under its stripe's lock and its own."""
        try:
            with self.object_locked(path, patience) as file:
                current = None if file is None else os.fstat(file.descriptor)
                self.remove(lock, path, current)
        except PermissionError:  # another user's private file, in a folder where this user may remove it
            self.remove(lock, path, stat_of(path))

    def remove(self, lock: FileLock, path: str, current: os.stat_result | None) -> None:
        """Remove a file, of which ``current`` is the last version, under its stripe's lock. None if there is none."""
        if current is not None:
            self.end(lock, current)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _renew(self, lock: FileLock, clock_ns: int) -> None:
        """Put a lock file of this user, locked and with this time, in the place of another user's."""
        renewal = FileLock(self._access.unnamed(lock.path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            note_held(renewal)
            self._access.share(renewal.descriptor)
            renewal.taken()
            os.utime(renewal.descriptor, ns=(clock_ns, clock_ns))
            os.rename(renewal.path, lock.path)
            lock.descriptor, renewal.descriptor = renewal.descriptor, lock.descriptor
        except OSError:
            os.unlink(renewal.path)
            raise
        finally:
            renewal.close()

    def _taken(
        self, opening: Callable[[], FileLock | None], path: str, patience: LockDeadline
    ) -> FileLock | None:
        """Open a file and take its lock, again where the file has lost its name meanwhile."""
        while (lock := opening()) is not None:
            try:
                note_held(lock)  # before it is taken: an interruption may come between
                self._wait_for(lock, path, patience)
                if lock.is_named():
                    return lock
            except BaseException:
                lock.close()
                raise
            lock.close()
        return None

    def _wait_for(self, lock: FileLock, path: str, patience: LockDeadline) -> None:
        pause = LOCK_POLL_S_MIN
        while not lock.taken():  # polling, because a blocking flock knows no time-out
            left = patience.left()
            if left <= 0:
                raise LockTimeout(
                    f"{lock.path!r} stayed locked by another process for as long as this request could wait. "
                    "Remedy: find the stopped process that holds it (`fuser`) and continue or end it."
                )
            self._machine.sleep(min(pause, left))
            pause = min(pause * 2, LOCK_POLL_S_MAX)

    def _lock_path(self, path: str) -> str:
        return f"{self.folder}/{self.stripe_of(path):02x}"
