"""A store in a folder: each object is one file, whose content is the body, or which has slots for two of them.

**Reading** opens the file. A plain one never changes in place, so that its content and its version, which the open
file tells, belong together. How a hot one is read while it changes is explained in ``file_hot``. No reader waits.

**Writing** goes to a temporary file, flushed, then named in one step: ``link`` creates (it fails when the
name exists), ``rename`` replaces. A process killed anywhere leaves the old object or the new one, and the
folder is flushed before the answer, so that an answered write survives a power cut. A hot object is replaced in the
slot that is free: one write and one flush. A reader may see an object a moment before that flush, unless it asks for
what is ``flushed``. Deletions are not flushed: an object that a power cut brings back is garbage, which its owner
meets and deletes again.

**Locks and versions** are explained in ``file_locks``: what replaces or deletes holds a lock.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from contextlib import AbstractContextManager
from typing import Any, NoReturn

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
    Hinted,
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
    Told,
    Turn,
    Unchanged,
    Written,
)
from .file_access import PRIVATE_FILE, READING, FolderAccess
from .file_errors import FLUSH, dangling, explained, on_a_network, time_not_kept
from .file_flushes import Flushes
from .file_hot import Current, Slots, flush_again, opened, read_all, write_all
from .file_listing import walk
from .file_locks import FileLock, LockDeadline, LockTimeout, Stripes, stat_of, time_after, version_of
from .file_slots import new_slots, plain, plain_start, version_of_slot
from .file_swap import drop, drop_older, replace_unflushed
from .file_system import network_type
from .file_turns import FolderTurns

LEFTOVER_MS_MAX = 3_600_000  # a temporary file older than this belongs to a process that died
QUICK_BYTES_MAX = 1 << 20  # a body that is written in about the time a thread takes to begin

_OWN = ".osqueue"  # locks and temporary files; keys cannot reach names that start with a dot
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)


class FileStore(Store):
    """Objects as files under ``root``, safe among processes of one machine.

    ``fsync=False`` skips every flush: killed processes still lose nothing, a power cut may. ``network=True``
    takes a folder on a network file system, which is refused otherwise.
    """

    name_bytes_max = FILE_NAME_BYTES_MAX
    remote = False
    turns = file_turns.offered()
    look_pace = LookPace(0.005, 0.012, spread=0.002, free=True)  # opening a file and reading its state

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
        self._fsync, self.flushes, self._network = fsync, fsync, network
        self._machine = machine
        self._temporary = os.path.join(self.root, _OWN, "tmp")
        self._access = FolderAccess(self.root, machine)
        self._stripes = Stripes(self.root, os.path.join(self.root, _OWN, "locks"), machine, self._access)
        # Names of temporary files: the pid tells forks apart, the token containers with equal pids.
        self._token = machine.bits(64)
        self._names = itertools.count()
        self._turns = FolderTurns(os.path.join(self.root, _OWN, "turns"), machine, self._access, fsync)
        self._flushes = Flushes(self.root)
        self._own = self._stripes.object_locked
        self._ready = False
        self._ready_lock = forks.lock()
        self._news: Any = None  # a StoreNews, once there is a listener

    @property
    def place(self) -> object:
        return ("file", os.path.realpath(self.root))

    # ── The port ─────────────────────────────────────────────────────────────

    def get(self, request: Get) -> Found | Missing | Unchanged:
        return self._get(request, locked=False)

    def _get(self, request: Get, locked: bool) -> Found | Missing | Unchanged:
        path = self._path(request.key)
        try:
            descriptor = os.open(path, READING)
        except OSError as error:
            if self._is_nothing(error):
                return Missing()
            self._fail("read", request.key, error)
        flushed = request.flushed and self._fsync
        try:
            begin, slots = opened(descriptor)
            current = None if slots is None else slots.read(request.unless, once=locked)
            if slots is not None and current is None and not locked:  # overtaken by writers, or damaged
                patience = LockDeadline(None, self._machine)
                with self._locked(path, patience), self._own(path, patience):
                    current = slots.look(request.unless)
            if slots is None or current is None:
                reply, version = self._get_plain(request, descriptor, begin)
            else:
                reply, version = self._get_slot(request, current)
                if flushed and not self._is_flushed(request.key, slots, current):
                    self._flush_current(path, slots)
        except OSError as error:
            if error.errno == errno.EISDIR:
                return Missing()
            self._fail("read", request.key, error)
        finally:
            os.close(descriptor)
        if flushed and not self._flushes.knows(request.key, version):
            self._flushes.settle_key(request.key, version)
        return reply

    def _get_plain(self, request: Get, descriptor: int, begin: bytes) -> tuple[Found | Unchanged, str]:
        """An object whose file holds its body and nothing else, and its version."""
        stat = os.fstat(descriptor)
        version = version_of(stat)
        if version == request.unless:
            return Unchanged(), version
        start = plain_start(begin) + (request.start or 0)
        length = max(stat.st_size - start, 0)
        if request.length is not None:
            length = min(length, request.length)
        inside = start + length <= len(begin)
        body = begin[start : start + length] if inside else read_all(descriptor, start, length)
        return Found(body, version, self._not_ahead(stat.st_mtime_ns // 1_000_000)), version

    def _get_slot(self, request: Get, current: Current) -> tuple[Found | Unchanged, str]:
        """An object that is in a slot, and its version."""
        if current.version == request.unless or current.body is None:
            return Unchanged(), current.version
        start = request.start or 0
        end = None if request.length is None else start + request.length
        modified_ms = self._not_ahead(current.header.modified_ms)
        return Found(current.body[start:end], current.version, modified_ms), current.version

    def _not_ahead(self, modified_ms: int) -> int:
        """A time that a version took after the machine's clock was ahead is in the future. No write is."""
        return min(modified_ms, self.clock_ms())

    def _may_write(self, key: str, slots: Slots, current: Current) -> bool:
        """May the other slot be overwritten? Until this one is flushed, it may be all that a power cut would leave."""
        return not self._fsync or self._is_flushed(key, slots, current)

    def _is_flushed(self, key: str, slots: Slots, current: Current) -> bool:
        """Is it known that a power cut would leave this version's slot?"""
        return self._flushes.knows(key, current.version) or slots.is_marked(current.header)

    def put(self, request: Put) -> Written:
        return self._put(request, LockDeadline(None, self._machine))

    def _put(self, request: Put, patience: LockDeadline) -> Written:
        path = self._path(request.key)
        durable = self._fsync and request.durable
        try:
            written = None
            while written is None:  # again when it came to be, or went, since the look
                if stat_of(path) is None:
                    written = self._create(path, request.body, durable)
                else:
                    written = self._swap(request, durable, patience)
            if durable:
                self._flushes.settle_key(request.key, written.version)
            return written
        except OSError as error:
            self._fail("write", request.key, error)

    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        path = self._path(request.key)
        try:
            if stat_of(path) is not None:
                return Refused()  # before the body is written and flushed for nothing
            written = self._create(path, request.body, self._fsync, request.hot)
            if written is not None and self._fsync:
                self._flushes.settle_key(request.key, written.version)
            return written or Refused()
        except OSError as error:
            self._fail("write", request.key, error)

    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        return self._put_if_match(request, LockDeadline(request.wait_seconds, self._machine))

    def _put_if_match(self, request: PutIfMatch, patience: LockDeadline) -> Written | Refused:
        if request.yields and self._turns.is_taken(request.key):
            return Refused()
        if self._fsync and not isinstance(self.get(Get(request.key, request.version, length=0)), Unchanged):
            return Refused()  # without waiting for the winner's flush
        try:
            written = self._swap(request, self._fsync, patience, request.hot)
            if written is not None and self._fsync:
                self._flushes.settle_key(request.key, written.version)
            return written or Refused()
        except OSError as error:
            self._fail("write", request.key, error)

    def list(self, request: List) -> Listed:
        limit = request.page(LIST_KEYS_MAX)
        folder = request.prefix.rpartition("/")[0]
        if folder:
            self._path(folder)
        try:
            keys = list(itertools.islice(walk(self.root, folder, request, self._is_nothing), limit + 1))
        except OSError as error:
            self._fail("list", os.path.relpath(error.filename or folder, self.root), error)
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
                            self._stripes.delete(lock, path, patience)
                except LockTimeout as error:
                    held = error  # the other stripes are somebody else's, if anybody's
        except OSError as error:
            self._fail("delete", os.path.relpath(path, self.root), error)
        if held is not None:
            raise held
        return Deleted()

    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused:
        path = self._path(request.key)
        try:
            patience = LockDeadline(None, self._machine)
            with self._locked(path, patience) as lock, self._own(path, patience) as file:
                if not isinstance(
                    self._get(Get(request.key, request.version, length=0), locked=True), Unchanged
                ):
                    return Refused()
                self._stripes.remove(lock, path, None if file is None else os.fstat(file.descriptor))
            if self._fsync:
                self._flushes.flush(os.path.dirname(path))
        except OSError as error:
            self._fail("delete", request.key, error)
        return Deleted()

    def take_turn(self, request: TakeTurn) -> Turn | Answered | Refused:
        return self._turns.take(request)

    def pass_turn(self, request: PassTurn) -> Passed:
        return self._turns.pass_on(request)

    def close(self) -> None:
        self._turns.close()
        if self._news is not None:
            self._news.end()

    def listen(self, key: str, told: Told) -> Hinted:
        from .file_news import StoreNews  # here, because most processes wait for nothing

        with self._ready_lock:
            self._news = self._news or StoreNews(self, self._machine, self._network)
        return self._news.listen(self._path(key), told)  # type: ignore[no-any-return]

    def clock_ms(self) -> int:
        return self._machine.now_ms()

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        """Without flushes, what most commits ask for is done sooner than a thread would have taken it over."""
        if isinstance(request, PassTurn | TakeTurn):
            return await self._turns.perform_async(request)
        if self._ready and not self._fsync:
            if isinstance(request, Get):
                return self.perform(request)
            if isinstance(request, Put | PutIfMatch) and len(request.body) <= QUICK_BYTES_MAX:
                with contextlib.suppress(LockTimeout):  # a stopped process must not stop a loop as well
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

    def _create(self, path: str, body: bytes, durable: bool, hot: bool = False) -> Written | None:
        """Write ``body`` under a name that must not exist yet; None when it does."""
        temporary, version = self._write_temporary(path, body, durable, hot=hot)
        try:
            try:
                os.link(temporary, path)
            except FileNotFoundError:  # the folder is missing
                folder = os.path.dirname(path)
                self._flushes.forget(folder)
                self._access.make_folders(folder)
                os.link(temporary, path)
        except FileExistsError:
            if os.path.isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
            if os.path.islink(path) and stat_of(path) is None:
                raise dangling(path) from None
            return None
        finally:
            drop(temporary)
        return Written(version)

    def _swap(
        self, request: Put | PutIfMatch, durable: bool, patience: LockDeadline, hot: bool = False
    ) -> Written | None:
        """Replace what is there, under its locks; None if there is nothing, or not the version expected."""
        path, body = self._path(request.key), request.body
        expected = request.version if isinstance(request, PutIfMatch) else None
        with self._locked(path, patience) as lock, self._own(path, patience) as file:
            if file is None:
                return None
            _, slots = opened(file.descriptor)
            current = None if slots is None else slots.read(expected, once=True)
            if slots is not None and current is not None:
                if expected not in (None, current.version):
                    return None
                if (
                    file.writable
                    and len(body) <= slots.layout.room
                    and self._may_write(request.key, slots, current)
                ):
                    return self._write_slot(path, slots, current, body, durable)
            stat = os.fstat(file.descriptor)
            if current is None and expected not in (None, version_of(stat)):
                return None
            return self._replace(path, body, durable, lock, stat, hot or slots is not None)

    def _write_slot(self, path: str, slots: Slots, current: Current, body: bytes, durable: bool) -> Written:
        """Write the next version of a hot object where it is."""
        try:
            header = slots.write(current, body, self._machine.now_ms())
        except OSError as error:
            raise explained(FLUSH, path, error) from error
        if durable:
            self._flush_slots(path, slots)
            with contextlib.suppress(OSError):  # unmarked, nobody relies on it
                slots.mark(header)
        return Written(version_of_slot(slots.layout, header))

    def _flush_current(self, path: str, slots: Slots) -> None:
        """Flush a version of which no flush is known: its writer is at it, or died, or its flush failed."""
        try:
            at_once = LockDeadline(0.0, self._machine)
            with self._locked(path, at_once), self._own(path, at_once) as file:
                if file is not None and file.writable:
                    flush_again(file.descriptor)
                else:
                    self._flush_slots(path, slots)
        except (LockTimeout, PermissionError):  # a reader who may not write does what it can
            self._flush_slots(path, slots)
        except OSError as error:
            raise explained(FLUSH, path, error) from error

    def _flush_slots(self, path: str, slots: Slots) -> None:
        """Flush a file that was changed in place: whatever goes wrong, the change may be there."""
        try:
            slots.flush()
        except OSError as error:
            raise explained(FLUSH, path, error) from error

    def _replace(
        self, path: str, body: bytes, durable: bool, lock: FileLock, current: os.stat_result, hot: bool
    ) -> Written:
        """Put a new file in place of ``current``, under the stripe's lock."""
        clock_ns = self._stripes.end(lock, current)
        temporary, version = self._write_temporary(path, body, durable, clock_ns, hot)
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
        self, path: str, body: bytes, durable: bool, clock_ns: int | None = None, hot: bool = False
    ) -> tuple[str, str]:
        """Write and flush a file that no key names yet; its path and the version it will have.

        ``clock_ns`` is the clock of the path's stripe where the caller holds its lock, so that it stands still.
        """
        self._prepare()
        content, version, mark_ns = plain(body), "", None
        if hot:
            content, version, mark_ns = new_slots(self._machine.bits(64), body, self._machine.now_ms())
        temporary = f"{self._temporary}/{os.getpid()}-{self._token:x}-{next(self._names)}"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        except FileNotFoundError:  # somebody has removed the folder, if not the whole store
            self._ready, self._flushes = False, Flushes(self.root)
            return self._write_temporary(path, body, durable, clock_ns, hot)
        try:
            self._access.share(descriptor)
            write_all(lambda data, at: os.write(descriptor, data), content, 0)
            if clock_ns is None:
                # After the inode exists, as `file_locks` asks: what ended before is on the clock now.
                clock_ns = self._stripes.clock_ns(path)
            modified = time_after(clock_ns, self._machine.now_ms())
            if durable and mark_ns is not None:
                modified = mark_ns  # before it can be seen, it is flushed
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
        return temporary, version or version_of(written)

    def _prepare(self) -> None:
        """Make the store's own folders, once, and drop what killed processes left there long ago."""
        if self._ready:
            return
        with self._ready_lock:
            self._access.make_folders(self._temporary)
            self._access.make_folders(self._stripes.folder)
            if self._fsync:
                self._flushes.flush_above()
            drop_older(self._temporary, (self._machine.now_ms() - LEFTOVER_MS_MAX) * 1_000_000)
            self._ready = True

    def _locked(self, path: str, patience: LockDeadline) -> AbstractContextManager[FileLock]:
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
