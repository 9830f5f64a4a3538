"""Who may use what a folder's store creates: the user who created it alone, or also the group of the store's folder.

The mode of the store's folder decides, at each creation. If the folder's group may write there, new files, pipes and
folders get that group, and the group may read and write them, whatever the umask is. Otherwise their user alone may.
If the folder has a default access control list, the list that they inherit decides instead of the group.
All other users get nothing: leave to read a lock file would be leave to hold the lock, and leave to read a pipe would
be leave to take what others are to receive.

What a group shares has its mode before it has its name, so that no process of another user meets it closed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable

from ..clock import Machine

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
SHARED_FILE = 0o660
READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in the place of a file is not waited for
SHARED_FOLDER = 0o2770  # what is created inside gets the group


class FolderAccess:
    """The modes of what is created in the store at ``root``."""

    def __init__(self, root: str, machine: Machine) -> None:
        self._root = root
        self._machine = machine

    def share(self, file: int) -> None:
        """Let the store's group, if it has one, use an open file that this process has created."""
        group = self._group()
        if group is not None:
            _grant(file, group, SHARED_FILE)

    def create(self, path: str, make: Callable[[str], None]) -> None:
        """Create the file or pipe at ``path`` by ``make``, which gives it a private mode. Keep one that is there."""
        group = self._group()
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
        """Create the folder at ``path`` in the store, and those above it, where they are missing."""
        missing = []
        while path != self._root and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        os.makedirs(self._root, PRIVATE_FOLDER, exist_ok=True)
        for folder in reversed(missing):
            self._make_folder(folder)

    def _make_folder(self, path: str) -> None:
        group = self._group()
        if group is None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, PRIVATE_FOLDER)
            return
        unnamed = self.unnamed(path)
        os.mkdir(unnamed, PRIVATE_FOLDER)
        try:
            _grant(unnamed, group, SHARED_FOLDER)
            os.rename(
                unnamed, path
            )  # an empty folder that another process made just now may go: it has no content
        except OSError:
            os.rmdir(unnamed)
            if not os.path.isdir(path):
                raise

    def _group(self) -> int | None:
        """The group that may use the store; None where its folder lets no group write."""
        found = os.stat(self._root)
        return found.st_gid if found.st_mode & stat.S_IWGRP else None

    def unnamed(self, path: str) -> str:
        """A path beside ``path`` that no key and no other process uses."""
        return f"{os.path.dirname(path)}/.{self._machine.bits(64):016x}"


def _grant(file: int | str, group: int, mode: int) -> None:
    if os.stat(file).st_gid != group and not _has_acl(file):
        os.chown(file, -1, group)
    os.chmod(file, mode)  # with an access control list the group's part is the list's mask


def _has_acl(file: int | str) -> bool:
    """Return whether a file has an access control list, inherited from its folder's default."""
    if not hasattr(os, "getxattr"):
        return False
    try:
        return bool(os.getxattr(file, "system.posix_acl_access"))
    except OSError:
        return False
