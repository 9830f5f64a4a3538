"""Faults of the operating system under a store in a folder: the calls that its modules make, some of which fail."""

from __future__ import annotations

import errno
import os
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import osqueue.stores
from osqueue import forks
from osqueue.stores import file_locks
from tests.support.fault_switch import FaultSwitch

PATHS = ("open", "makedirs", "link", "rename", "unlink", "scandir", "stat", "utime", "mkfifo", "truncate")
DATA = ("read", "pread", "write", "pwrite", "fsync", "fdatasync")
GROWING = ("open", "makedirs", "link", "mkfifo", "write", "pwrite")  # what takes room on the disk
# By fault: what the system reports, and the calls that report it.
ERRORS: dict[str, tuple[int, tuple[str, ...]]] = {
    "refused": (errno.EACCES, PATHS),
    "throttled": (errno.ENFILE, ("open", "scandir")),
    "cut": (errno.EIO, DATA),
    "gone": (errno.ESTALE, (*PATHS, *DATA)),
    "full": (errno.ENOSPC, GROWING),
}


class FaultyOs:
    """The module ``os`` as the store sees it."""

    def __init__(self, switch: FaultSwitch) -> None:
        self._switch = switch
        for name in (*PATHS, *DATA):
            setattr(self, name, self._faulty(name, getattr(os, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _faulty(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            fault = self._switch.draw() if self._is_hit(name, args) else None
            if fault is None or name not in ERRORS.get(fault, (0, ()))[1]:
                return real(*args, **options)
            if fault == "cut" and name in ("write", "pwrite"):  # half of it gets there
                real(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
            number = ERRORS[fault][0]
            raise OSError(number, os.strerror(number))

        return call

    def _is_hit(self, name: str, args: tuple[Any, ...]) -> bool:
        """A file that is opened to be read takes no room: a full disk lets it pass."""
        if self._switch.fault != "full" or name != "open":
            return True
        return bool(args[1] & os.O_CREAT) and not os.path.exists(args[0])


def _hold_locks(switch: FaultSwitch, patch: pytest.MonkeyPatch) -> None:
    """Let a stopped process hold the lock of every object, while a request hangs."""
    real = file_locks.Stripes._wait_for

    def wait_for(self: Any, lock: Any, path: str, patience: Any) -> None:
        if switch.draw() == "hung":
            lock.taken = lambda: False
        real(self, lock, path, patience)

    patch.setattr(file_locks.Stripes, "_wait_for", wait_for)


def install(switch: FaultSwitch, patch: pytest.MonkeyPatch) -> None:
    """Put them under every module of stores in folders."""
    for module in modules():
        if hasattr(module, "os"):
            patch.setattr(module, "os", FaultyOs(switch))
    _hold_locks(switch, patch)


def modules() -> list[Any]:
    """The modules that a store in a folder consists of."""
    names = [each.name for each in pkgutil.iter_modules(osqueue.stores.__path__)]
    return [forks, *(import_module(f"osqueue.stores.{name}") for name in names if name.startswith("file"))]
