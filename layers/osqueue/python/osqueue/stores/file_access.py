"""The access that other users get to what a folder's store creates: none, the folder's group, or an access list's.

The mode of the store's folder decides, at each creation. If the folder's group may write there and this process is in
that group, new files, pipes and folders get the group, and it may read and write them, whatever the umask is. If this
process is not in the group, it cannot give the group anything: its files are private. In a folder with an access list
(ACL) the group's bits of the mode are the list's mask, so the list's own entry for the group decides. Files that
inherit a default access list get its mask opened, and the list decides alone.

All other users get nothing. A user who may read a lock file may hold the lock, and a user who may read a pipe may take
what other processes are to receive.

A shared file gets its mode before its name. So a process of another user never finds a shared file still closed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Callable

from ..clock import Machine

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
SHARED_FILE = 0o660
READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in the place of a file is not waited for
SHARED_FOLDER = 0o2770  # what is created inside gets the group
BY_LIST = -1  # in place of a group: a default access list, if any

_ACCESS_LIST = "system.posix_acl_access"  # the attribute, as acl(5) and linux/posix_acl_xattr.h describe it
_VERSION_BYTES = 4
_ENTRY = struct.Struct("<HHI")  # tag, permissions, user or group id
_OWNING_GROUP = 0x04  # tag
_WRITE = 0o2


class FolderAccess:
    """The modes of what is created in the store at ``root``."""

    def __init__(self, root: str, machine: Machine) -> None:
        self._root = root
        self._machine = machine

    def share(self, file: int) -> None:
        """Give an open file, which this process has created, to the store's group or access list."""
        group = _group_of(self._root)
        if group is not None:
            _grant(file, group, SHARED_FILE)

    def create(self, path: str, make: Callable[[str], None]) -> None:
        """Create the file or pipe at ``path`` by ``make``, which gives it a private mode. Keep an existing one."""
        group = _group_of(self._root)
        if group is None:
            with contextlib.suppress(FileExistsError):
                make(path)
            return
        unnamed = self.unnamed(path)
        make(unnamed)
        try:
            _grant(unnamed, group, SHARED_FILE)
            with contextlib.suppress(FileExistsError):
                os.link(unnamed, path)
        finally:
            os.unlink(unnamed)

    def make_folders(self, path: str) -> None:
        """Create the folder at ``path`` in the store, and the folders above it, where they are missing."""
        missing = []
        while path != self._root and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        if not os.path.isdir(self._root):
            self._make_root()
        for folder in reversed(missing):
            self._make_folder(folder, _group_of(self._root))

    def _make_root(self) -> None:
        """Create the store's folder. It follows a folder above that has the setgid bit and lets its group write."""
        above = os.path.dirname(self._root)
        os.makedirs(above, exist_ok=True)
        if os.stat(above).st_mode & stat.S_ISGID:
            self._make_folder(self._root, _group_of(above))
        os.makedirs(self._root, PRIVATE_FOLDER, exist_ok=True)  # raises an error if a file has the name

    def _make_folder(self, path: str, group: int | None) -> None:
        if group is None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, PRIVATE_FOLDER)
            return
        unnamed = self.unnamed(path)
        os.mkdir(unnamed, PRIVATE_FOLDER)
        try:
            _grant(unnamed, group, SHARED_FOLDER)
            # It may replace a folder that another process has just made: that one is empty.
            os.rename(unnamed, path)
        except OSError:
            os.rmdir(unnamed)
            if not os.path.isdir(path):
                raise

    def unnamed(self, path: str) -> str:
        """Return a path beside ``path`` that no key and no other process uses."""
        return f"{os.path.dirname(path)}/.{self._machine.bits(64):016x}"


def _group_of(folder: str) -> int | None:
    """Return the group that gets what is created in ``folder``, or ``BY_LIST``. None if it is private."""
    status = os.stat(folder)
    if not status.st_mode & stat.S_IWGRP:
        return None
    entry = _group_entry(folder)
    if entry is not None and not entry & _WRITE:
        return BY_LIST
    group = status.st_gid
    # A file that inherits a group from a setgid folder needs this too: chmod by a stranger drops the setgid bit.
    may_give = group == os.getegid() or os.geteuid() == 0 or group in os.getgroups()
    return group if may_give else BY_LIST


def _grant(file: int | str, group: int, mode: int) -> None:
    """Give ``file`` to ``group`` with ``mode``. If that is not possible, open the mask of an inherited access list."""
    if group != BY_LIST and _give(file, group):
        os.chmod(file, mode)
    elif _group_entry(file) is not None:
        os.chmod(file, stat.S_IMODE(os.stat(file).st_mode) | mode & stat.S_IRWXG)


def _give(file: int | str, group: int) -> bool:
    """Set the group of ``file``. Return False if the system refuses it."""
    try:
        if os.stat(file).st_gid != group:
            os.chown(file, -1, group)
    except OSError as error:
        # A container's root may lack the capability, or its user namespace the group.
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise
        return False
    return True


def _group_entry(file: int | str) -> int | None:
    """Return what the access list of ``file`` permits its group. None if it has no list but its mode."""
    if not hasattr(os, "getxattr"):  # macOS, where a list does not change the meaning of the mode
        return None
    try:
        entries = os.getxattr(file, _ACCESS_LIST)[_VERSION_BYTES:]
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOTSUP):
            raise
        return None
    return next((permits for tag, permits, _ in _ENTRY.iter_unpack(entries) if tag == _OWNING_GROUP), None)
