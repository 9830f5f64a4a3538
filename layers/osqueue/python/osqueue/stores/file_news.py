"""Notifications of replaced objects in a folder: inotify of Linux, with one descriptor and one thread for each store.

Notifications make a listener faster, and it looks at the object now and then without them. The kernel reports only
changes of its own machine. On other systems, and beyond the limit of inotify instances, listeners only look.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import struct
import sys
import threading
import weakref
from contextlib import ExitStack, suppress

from .. import forks
from ..clock import Machine
from .base import Hinted, Store, Told, never_hinted

log = logging.getLogger("osqueue.waiting")

REST_SECONDS = 0.002  # after a notification: others of a busy queue are read together with it
READ_BYTES = 1 << 16
_MODIFY, _ATTRIBUTES, _MOVED_TO, _CREATED = 0x02, 0x04, 0x80, 0x100
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_MASK = _MODIFY | _ATTRIBUTES | _MOVED_TO | _CREATED
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name that follows


class FolderNews:
    """Watches over the folders of objects, and the listeners that each change notifies."""

    def __init__(self, machine: Machine) -> None:
        """Raises OSError or RuntimeError if the system has no notifications, descriptors or threads to give."""
        if not sys.platform.startswith("linux"):
            raise OSError("no inotify")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._machine = machine
        self._process = machine.process()
        self._lock = forks.lock()
        self._watches: dict[str, int] = {}  # by folder
        self._told: dict[tuple[str, bytes], list[Told]] = {}  # by folder and name
        self._over = False
        with ExitStack() as opened:  # closes the descriptors if a later step fails
            self._descriptor = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            opened.callback(os.close, self._descriptor)
            self._wake, self._woken = os.pipe()
            for descriptor in (self._wake, self._woken):
                opened.callback(os.close, descriptor)
            threading.Thread(target=self._run, name="osqueue-folder-news", daemon=True).start()
            self._opened = opened.pop_all()

    def _checked(self, result: int) -> int:
        """Return the result of a system call. Raises OSError if the call failed."""
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def add(self, path: str, told: Told) -> Hinted:
        """Call ``told`` on another thread whenever a file changes, until it returns False."""
        folder, name = os.path.split(path)
        with self._lock:
            self._told.setdefault((folder, os.fsencode(name)), []).append(told)
        return lambda: self._is_watched(folder)

    def _is_watched(self, folder: str) -> bool:
        """Return whether a folder is watched. Begin to watch it if it exists."""
        if folder in self._watches:
            return True
        with self._lock:
            if self._over:
                return False
            try:
                watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _MASK)
                self._watches[folder] = self._checked(watch)
            except OSError:
                return False
        return True

    def end(self) -> None:
        """End the thread, which closes the descriptors. In the child of a fork the thread is the parent's."""
        with self._lock:
            if self._over or self._machine.process() != self._process:
                return
            self._over = True
            self._watches = {}
            os.write(self._woken, b"\0")  # under the lock, since the thread closes the descriptors under it

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        rest = select.poll()  # until the store is closed
        for each in (poll, rest):
            each.register(self._wake, select.POLLIN)
        try:
            while not self._over:
                poll.poll()
                self._read()
                rest.poll(REST_SECONDS * 1000)
        except OSError as error:
            log.warning(
                "the system sends no more notifications of changes (%s); waiters look for them", error
            )
        finally:
            with self._lock:
                self._over = True
                self._watches = {}
                self._opened.close()

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        changed: set[tuple[str, bytes]] = set()
        with self._lock:
            folders = {watch: folder for folder, watch in self._watches.items()}
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    changed.update(self._told)
                elif mask & _IGNORED:  # the folder was removed
                    self._watches.pop(folders.get(watch, ""), None)
                elif watch in folders:
                    changed.add((folders[watch], name))
            asked = [(place, told) for place in changed for told in self._told.get(place, ())]
        gone = [(place, told) for place, told in asked if not told("")]
        if gone:
            with self._lock:
                for place, told in gone:
                    self._told[place].remove(told)
                    if not self._told[place]:
                        del self._told[place]


class StoreNews:
    """The notifications of one store, begun by its first listener in each process."""

    def __init__(self, store: Store, machine: Machine, network: bool) -> None:
        self._store = weakref.ref(store)
        self._machine = machine
        self._network = network  # other machines change files without notice
        self._lock = forks.lock()
        self._process = -1
        self._news: FolderNews | None = None

    def listen(self, path: str, told: Told) -> Hinted:
        """Call ``told`` whenever a file changes, where the system has notifications."""
        process = self._machine.process()
        with self._lock:
            if self._process != process and not self._network:
                self._process, self._news = process, None
                with suppress(OSError, RuntimeError):
                    self._news = FolderNews(self._machine)
                    # The thread ends with the process.
                    weakref.finalize(self._store(), self._news.end).atexit = False
            news = self._news
        return never_hinted if news is None else news.add(path, told)

    def end(self) -> None:
        """End the notifications of this process until the next listener comes."""
        with self._lock:
            news, self._news, self._process = self._news, None, -1
        if news is not None:
            news.end()
