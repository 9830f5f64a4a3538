"""Flushes of a store's folders, and what a process knows to be flushed already.

A name outlasts a power cut once its folder was flushed after it was given, and every folder above it likewise. The
versions of a file of slots share a name: for the second one nothing need be done about folders.
"""

from __future__ import annotations

import errno
import os

from .file_errors import FLUSH, explained
from .file_slots import file_of, is_slot

SETTLED_FOLDERS_MAX = 4_096  # folders whose own existence this process knows to be flushed
FLUSHED_KEYS_MAX = 4_096  # keys of which it knows a version that is

_NOT_TO_BE_FLUSHED = (
    errno.EACCES,
    errno.EPERM,
    errno.EINVAL,
    errno.EROFS,
)  # by those who made no folder there


class Flushes:
    """What of the store at ``root`` a power cut would leave, as far as this process knows."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._settled: set[str] = set()
        self._versions: dict[str, str | None] = {}  # that a power cut would leave, by key

    def knows(self, key: str, version: str | None) -> bool:
        """Is this version of a key known to be flushed?"""
        return self._versions.get(key) == version

    def settle_key(self, key: str, version: str | None) -> None:
        """Flush the folder of a key that has this version, or had it, and remember that."""
        if not self._knows_name(key, version):
            self.settle(os.path.dirname(f"{self._root}/{key}"))
        if len(self._versions) >= FLUSHED_KEYS_MAX:
            self._versions.clear()
        self._versions[key] = version

    def _knows_name(self, key: str, version: str | None) -> bool:
        """Was the folder flushed since this file has that name?"""
        known = self._versions.get(key)
        return bool(version and known and is_slot(version) and file_of(version) == file_of(known))

    def settle(self, folder: str) -> None:
        """Flush a folder, and at first sight of it its ancestors up to the root: they may be as new."""
        self.flush(folder)
        if folder in self._settled:
            return
        above = folder
        while above != self._root:
            above = os.path.dirname(above)
            self.flush(above)
        if len(self._settled) >= SETTLED_FOLDERS_MAX:
            self._settled.clear()
        self._settled.add(folder)

    def forget(self, folder: str) -> None:
        """The folder is gone: when it comes back, its name is as new."""
        self._settled.discard(folder)

    def flush(self, folder: str) -> None:
        """Flush a folder in which something was changed: whatever goes wrong, it may be there."""
        try:
            flush_folder(folder)
        except OSError as error:
            raise explained(FLUSH, folder, error) from error

    def flush_above(self) -> None:
        """Flush the folders above the root: this process has made some, or another that has yet to flush them."""
        above = self._root
        while above != os.path.dirname(above):
            above = os.path.dirname(above)
            try:
                flush_folder(above)
            except OSError as error:
                if error.errno not in _NOT_TO_BE_FLUSHED:
                    raise


def flush_folder(folder: str) -> None:
    """Flush one folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
