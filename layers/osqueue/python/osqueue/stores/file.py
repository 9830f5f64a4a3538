"""A store in a folder: each object is one file whose content is the body, exactly.

**Reading** opens the file and asks the open file for its version; files never change in place, so that
content and version belong together and no reader ever waits.

**Writing** goes to a temporary file, flushed, then named in one step: ``link`` creates (it fails when the
name exists), ``rename`` replaces. A process killed anywhere leaves the old object or the new one, and the
folder is flushed before the answer, so that an answered write survives a power cut. A reader may see an
object a moment before that flush, unless it asks for what is ``flushed``. Deletions are not flushed: an
object that a power cut brings back is garbage, which its owner meets and deletes again.

**Locks and versions** are explained in ``file_locks``: what replaces or deletes holds a lock.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat as modes
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NoReturn

from .. import forks
from ..clock import MACHINE, Machine
from ..errors import OsqueueError, Rejected
from . import file_turns
from .base import (
    FILE_NAME_BYTES_MAX,
    LIST_KEYS_MAX,
    Answered,
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    List,
    Listed,
    LookPace,
    Missing,
    Passed,
    PassTurn,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Store,
    StoreReply,
    StoreRequest,
    TakeTurn,
    Turn,
    Unchanged,
    Written,
)
from .file_errors import FLUSH, dangling, explained, on_a_network, time_not_kept
from .file_locks import LockDeadline, LockTimeout, Stripes, time_after, version_of
from .file_swap import drop, replace_unflushed
from .file_system import network_type
from .file_turns import FolderTurns

LEFTOVER_MS_MAX = 3_600_000  # a temporary file older than this belongs to a process that died
QUICK_BYTES_MAX = 1 << 20  # a body that is written in about the time a thread takes to begin
SETTLED_FOLDERS_MAX = 4_096  # folders whose own existence this process knows to be flushed
FLUSHED_KEYS_MAX = 4_096  # keys of which it knows a version that is

_OWN = ".osqueue"  # locks and temporary files; keys cannot reach names that start with a dot
_NOT_TO_BE_FLUSHED = (
    errno.EACCES,
    errno.EPERM,
    errno.EINVAL,
    errno.EROFS,
)  # by those who made no folder there
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)


class FileStore(Store):
    """Objects as files under ``root``, safe among processes of one machine.

    ``fsync=False`` skips every flush: killed processes still lose nothing, a power cut may. ``network=True``
    takes a folder on a network file system, which is refused otherwise.
    """

    name_bytes_max = FILE_NAME_BYTES_MAX
    remote = False
    turns = file_turns.offered()
    look_pace = LookPace(0.005, 0.012)  # a look opens a file and asks for its state

    def __init__(
        self,
        root: str | os.PathLike[str],
        fsync: bool = True,
        machine: Machine = MACHINE,
        *,
        network: bool = False,
    ) -> None:
        self.root = os.path.abspath(root)  # a later chdir must not move the store
        self._given = os.fspath(root)
        if not network and (kind := network_type(self.root)) is not None:
            raise on_a_network(self._given, kind)
        self._fsync = self.flushes = fsync
        self._machine = machine
        self._temporary = os.path.join(self.root, _OWN, "tmp")
        self._stripes = Stripes(self.root, os.path.join(self.root, _OWN, "locks"), machine)
        # Names of temporary files: the pid tells forks apart, the token containers with equal pids.
        self._token = machine.bits(64)
        self._names = itertools.count()
        self._turns = FolderTurns(os.path.join(self.root, _OWN, "turns"), machine)
        self._settled: set[str] = set()
        self._flushed: dict[str, str | None] = {}  # versions that a power cut would leave, by key
        self._ready = False
        self._ready_lock = forks.lock()

    @property
    def place(self) -> object:
        return ("file", os.path.realpath(self.root))

    # ── The port ─────────────────────────────────────────────────────────────

    def get(self, request: Get) -> Found | Missing | Unchanged:
        reply = self._get(request)
        if request.flushed and self._fsync and not isinstance(reply, Missing):
            version = reply.version if isinstance(reply, Found) else request.unless
            if version != self._flushed.get(request.key):  # its writer may not have come to that yet
                self._settle_key(request.key, version)
        return reply

    def _get(self, request: Get) -> Found | Missing | Unchanged:
        try:
            descriptor = os.open(self._path(request.key), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if self._is_nothing(error):
                return Missing()
            self._fail("read", request.key, error)
        try:
            stat = os.fstat(descriptor)
            version = version_of(stat)
            if version == request.unless:
                return Unchanged()
            start = request.start or 0
            length = max(stat.st_size - start, 0)
            if request.length is not None:
                length = min(length, request.length)
            # A time that a version took after the machine's clock was ahead is in the future. No write is.
            modified_ms = min(stat.st_mtime_ns // 1_000_000, self.clock_ms())
            return Found(_read(descriptor, start, length), version, modified_ms)
        except OSError as error:
            if error.errno == errno.EISDIR:
                return Missing()
            self._fail("read", request.key, error)
        finally:
            os.close(descriptor)

    def put(self, request: Put) -> Written:
        return self._put(request, LockDeadline(None, self._machine))

    def _put(self, request: Put, patience: LockDeadline) -> Written:
        path = self._path(request.key)
        durable = self._fsync and request.durable
        try:
            written = None
            while written is None:  # again when it came to be, or went, since the look
                if _stat(path) is None:
                    written = self._create(path, request.body, durable)
                else:
                    written = self._overwrite(path, request.body, durable, patience)
            if durable:
                self._settle(os.path.dirname(path))
            return written
        except OSError as error:
            self._fail("write", request.key, error)

    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        path = self._path(request.key)
        try:
            if _stat(path) is not None:
                return Refused()  # before the body is written and flushed for nothing
            written = self._create(path, request.body, self._fsync)
            if written is None:
                return Refused()
            if self._fsync:
                self._settle_key(request.key, written.version)
            return written
        except OSError as error:
            self._fail("write", request.key, error)

    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        return self._put_if_match(request, LockDeadline(request.wait_seconds, self._machine))

    def _put_if_match(self, request: PutIfMatch, patience: LockDeadline) -> Written | Refused:
        path = self._path(request.key)
        try:
            if self._fsync and not _matches(request.version, _stat(path)):
                return Refused()  # without waiting for the winner's flush
            with self._locked(path, patience) as lock:
                current = _stat(path)
                if current is None or not _matches(request.version, current):
                    return Refused()
                written = self._replace(path, request.body, self._fsync, lock, current)
            if self._fsync:
                self._settle_key(request.key, written.version)  # the next writer need not wait for this
            return written
        except OSError as error:
            self._fail("write", request.key, error)

    def list(self, request: List) -> Listed:
        limit = min(request.limit, LIST_KEYS_MAX)
        folder = request.prefix.rpartition("/")[0]
        if folder:
            self._path(folder)
        keys = list(itertools.islice(self._walk(folder, request), limit + 1))
        return Listed(tuple(keys[:limit]), more=len(keys) > limit)

    def delete(self, request: Delete) -> Deleted:
        paths = [self._path(key) for key in request.keys]
        stripe_of = self._stripes.stripe_of
        paths.sort(key=stripe_of)  # one lock for all keys of a stripe: a combiner deletes hundreds at once
        path = self.root
        patience = LockDeadline(request.wait_seconds, self._machine)
        held: LockTimeout | None = None
        try:
            for _, group in itertools.groupby(paths, key=stripe_of):
                members = list(group)
                try:
                    with self._locked(members[0], patience) as lock:
                        for path in members:
                            self._remove(path, lock)
                except LockTimeout as error:
                    held = error  # the other stripes are somebody else's, if anybody's
        except OSError as error:
            self._fail("delete", os.path.relpath(path, self.root), error)
        if held is not None:
            raise held
        return Deleted()

    def _remove(self, path: str, lock: int) -> None:
        """Remove a file, if it is there, under its stripe's lock."""
        current = _stat(path)
        if current is not None:
            self._stripes.end(lock, current)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused:
        path = self._path(request.key)
        try:
            with self._locked(path, LockDeadline(None, self._machine)) as lock:
                current = _stat(path)
                if current is None or not _matches(request.version, current):
                    return Refused()
                self._stripes.end(lock, current)
                os.unlink(path)
            if self._fsync:
                self._flush(os.path.dirname(path))
        except OSError as error:
            self._fail("delete", request.key, error)
        return Deleted()

    def take_turn(self, request: TakeTurn) -> Turn | Answered | Refused:
        return self._turns.take(request)

    def pass_turn(self, request: PassTurn) -> Passed:
        return self._turns.pass_on(request)

    def close(self) -> None:
        self._turns.close()

    def clock_ms(self) -> int:
        return self._machine.now_ms()

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        """Without flushes, what most commits ask for is done sooner than a thread would have taken it over."""
        if isinstance(request, PassTurn):
            return self.pass_turn(request)
        if isinstance(request, TakeTurn) and (turn := self._turns.take_now(request.key)) is not None:
            return turn
        if self._ready and not self._fsync:
            if isinstance(request, Get):
                return self.perform(request)
            if isinstance(request, Put | PutIfMatch) and len(request.body) <= QUICK_BYTES_MAX:
                with contextlib.suppress(
                    LockTimeout
                ):  # a stopped process must not stop an event loop as well
                    return self._perform_at_once(request)
        return await super().perform_async(request)

    def _perform_at_once(self, request: Put | PutIfMatch) -> StoreReply:
        """Carry out a write without waiting for anybody. Raises Held when that cannot be."""
        at_once = LockDeadline(0.0, self._machine)
        try:
            if isinstance(request, Put):
                return self._put(request, at_once)
            return self._put_if_match(request, at_once)
        except LockTimeout:
            raise
        except OsqueueError as error:
            return Failed(error)

    # ── Writing ──────────────────────────────────────────────────────────────

    def _create(self, path: str, body: bytes, durable: bool) -> Written | None:
        """Write ``body`` under a name that must not exist yet; None when it does."""
        temporary, version = self._write_temporary(path, body, durable)
        try:
            try:
                os.link(temporary, path)
            except FileNotFoundError:  # the folder is missing
                folder = os.path.dirname(path)
                self._settled.discard(folder)
                os.makedirs(folder, exist_ok=True)
                os.link(temporary, path)
        except FileExistsError:
            if os.path.isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
            if os.path.islink(path) and _stat(path) is None:
                raise dangling(path) from None
            return None
        finally:
            drop(temporary)
        return Written(version)

    def _overwrite(self, path: str, body: bytes, durable: bool, patience: LockDeadline) -> Written | None:
        """Replace what is there, whatever its version; None when there is nothing."""
        with self._locked(path, patience) as lock:
            current = _stat(path)
            return None if current is None else self._replace(path, body, durable, lock, current)

    def _replace(self, path: str, body: bytes, durable: bool, lock: int, current: os.stat_result) -> Written:
        """Put ``body`` in place of ``current``, under the stripe's lock."""
        clock_ns = self._stripes.end(lock, current)
        temporary, version = self._write_temporary(path, body, durable, clock_ns)
        try:
            if self._fsync:
                os.rename(temporary, path)
            else:
                replace_unflushed(temporary, path)
        except OSError:
            drop(temporary)
            raise
        return Written(version)

    def _write_temporary(
        self, path: str, body: bytes, durable: bool, clock_ns: int | None = None
    ) -> tuple[str, str]:
        """Write and flush a file that no key names yet; its path and the version it will have.

        ``clock_ns`` is the clock of the path's stripe where the caller holds its lock, so that it stands still.
        """
        self._prepare()
        temporary = f"{self._temporary}/{os.getpid()}-{self._token:x}-{next(self._names)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            _write(descriptor, body)
            if clock_ns is None:
                # After the inode exists, as `file_locks` asks: what ended before is on the clock now.
                clock_ns = self._stripes.clock_ns(path)
            modified = time_after(clock_ns, self._machine.now_ms())
            os.utime(descriptor, ns=(modified, modified))
            if durable:
                os.fsync(descriptor)
            written = os.fstat(descriptor)
            if written.st_mtime_ns != modified:
                raise time_not_kept(self._given, modified, written.st_mtime_ns)
        except (OSError, Rejected):
            drop(temporary)
            raise
        finally:
            os.close(descriptor)
        return temporary, version_of(written)

    def _prepare(self) -> None:
        """Make the store's own folders, once, and drop what killed processes left there long ago."""
        if self._ready:
            return
        with self._ready_lock:
            os.makedirs(self._temporary, exist_ok=True)
            os.makedirs(self._stripes.folder, exist_ok=True)
            if self._fsync:
                self._flush_above()
            oldest = (self._machine.now_ms() - LEFTOVER_MS_MAX) * 1_000_000
            with os.scandir(self._temporary) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # somebody else tidies as well
                        if entry.stat().st_mtime_ns < oldest:
                            os.unlink(entry.path)
            self._ready = True

    def _flush_above(self) -> None:
        """Flush the folders above the root: this process has made some, or another that has yet to flush them."""
        above = self.root
        while above != os.path.dirname(above):
            above = os.path.dirname(above)
            try:
                _flush_folder(above)
            except OSError as error:
                if error.errno not in _NOT_TO_BE_FLUSHED:
                    raise

    def _settle_key(self, key: str, version: str | None) -> None:
        """Flush the folder of a key that has this version, or had it, and remember that."""
        self._settle(os.path.dirname(self._path(key)))
        if len(self._flushed) >= FLUSHED_KEYS_MAX:
            self._flushed.clear()
        self._flushed[key] = version

    def _settle(self, folder: str) -> None:
        """Flush a folder, and at first sight of it its ancestors up to the root: they may be as new."""
        self._flush(folder)
        if folder in self._settled:
            return
        above = folder
        while above != self.root:
            above = os.path.dirname(above)
            self._flush(above)
        if len(self._settled) >= SETTLED_FOLDERS_MAX:
            self._settled.clear()
        self._settled.add(folder)

    def _flush(self, folder: str) -> None:
        """Flush a folder in which something was changed: whatever goes wrong, it may be there."""
        try:
            _flush_folder(folder)
        except OSError as error:
            raise explained(FLUSH, folder, error) from error

    def _locked(self, path: str, patience: LockDeadline) -> AbstractContextManager[int]:
        self._prepare()
        return self._stripes.locked(path, patience)

    # ── Names ────────────────────────────────────────────────────────────────

    def _path(self, key: str) -> str:
        framed = f"/{key}/"
        if "//" in framed or "/." in framed or "\\" in framed or "\0" in framed:
            raise Rejected(
                f"the key {key!r} is not one: use parts joined by '/', none of them empty or starting "
                "with a dot, without backslashes",
                field="key",
            )
        return f"{self.root}/{key}"

    def _walk(self, folder: str, request: List) -> Iterator[str]:
        """Keys below ``folder`` that the request asks for, in byte order, as far as the caller reads."""
        prefix, after = request.prefix, request.after
        names: list[str] = []
        base = f"{folder}/" if folder else ""
        try:
            with os.scandir(f"{self.root}/{folder}") as entries:
                for entry in entries:
                    # With its slash a folder's name sorts where its keys do: "a-b" comes before "a/c".
                    name = base + entry.name + ("/" if entry.is_dir() else "")
                    if not entry.name.startswith(".") and _may_hold(name, prefix, after):
                        names.append(name)
        except OSError as error:
            if self._is_nothing(error):  # gone while we looked, or never there
                return
            self._fail("list", folder, error)
        names.sort()
        for name in names:
            if name.endswith("/"):
                yield from self._walk(name[:-1], request)
            else:
                yield name

    def _is_nothing(self, error: OSError) -> bool:
        """Does the error say that there is no such object or folder (in a store that is a folder)?"""
        if error.errno == errno.ENOTDIR and self._no_folder() is not None:
            return False
        return error.errno in _NOT_THERE

    def _no_folder(self) -> str | None:
        """The file that stands where the store's folder should be, or where one above it should."""
        place = self.root
        while not os.path.lexists(place) and place != os.path.dirname(place):
            place = os.path.dirname(place)
        if os.path.isdir(place) or not os.path.exists(place):
            return None
        return self._given if place == self.root else place

    def _fail(self, verb: str, key: str, error: OSError) -> NoReturn:
        if error.errno in (errno.ENOTDIR, errno.EEXIST) and (file := self._no_folder()) is not None:
            raise Rejected(
                f"{file!r} is not a folder. Name a folder in the address: file:///var/lib/jobs.",
                field="address",
            ) from error
        raise explained(verb, os.path.join(self.root, key), error) from error


# ── One system call each ─────────────────────────────────────────────────────


def _may_hold(name: str, prefix: str, after: str) -> bool:
    """Is this a key that the listing asks for, or (with a slash at its end) a folder of such keys?"""
    if name.endswith("/"):
        return (name > after or after.startswith(name)) and (
            name.startswith(prefix) or prefix.startswith(name)
        )
    return name > after and name.startswith(prefix)


def _matches(version: str, stat: os.stat_result | None) -> bool:
    return stat is not None and version_of(stat) == version


def _stat(path: str) -> os.stat_result | None:
    try:
        stat = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if modes.S_ISDIR(stat.st_mode) else stat


def _read(descriptor: int, start: int, length: int) -> bytes:
    body = os.pread(descriptor, length, start)
    while len(body) < length:  # one read brings at most 2 GB
        more = os.pread(descriptor, length - len(body), start + len(body))
        if not more:
            break
        body += more
    return body


def _write(descriptor: int, body: bytes) -> None:
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _flush_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
