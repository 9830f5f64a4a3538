"""What a fork's child must not take over as it is: locks that were held, and open files that stand for a lock.

A fork copies one thread, every lock and every open file. A lock that another thread held at that moment is held in
the child for ever, because nobody there will release it. What such a lock guards must bear to be found in the middle
of a change. A file that is locked stays locked as long as any process has it open: the child of a process that was
killed would keep its parent's lock.
"""

from __future__ import annotations

import functools
import os
import threading
from contextlib import suppress
from typing import Any
from weakref import WeakSet

_LOCKS: WeakSet[Any] = WeakSet()
_FILES: set[OwnFile] = set()  # that are open
_OPENING = threading.RLock()  # held while a file is opened and entered there, and during a fork


@functools.cache
def process() -> int:
    """Which process this is; different in a fork's child. Each call of a queue looks, so the system is asked once."""
    return os.getpid()


def lock() -> threading.Lock:
    """A lock that is open in a fork's child, whoever held it in the parent."""
    made = threading.Lock()
    _LOCKS.add(made)
    return made


class OwnFile:
    """An open file of this process alone: a fork's child closes its copy before it does anything else."""

    def __init__(self, path: str, flags: int) -> None:
        with _OPENING:
            self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)  # -1 once it is closed
            _FILES.add(self)

    def close(self) -> None:
        """Close it, if it is open here."""
        _FILES.discard(self)
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _begin_child() -> None:
    process.cache_clear()
    _OPENING._at_fork_reinit()  # type: ignore[attr-defined]
    for each in _LOCKS:
        each._at_fork_reinit()  # as the standard library opens its own
    for file in list(_FILES):
        with suppress(OSError):
            OwnFile.close(file)  # and no more than that: a lock on it is still the parent's


os.register_at_fork(before=_OPENING.acquire, after_in_parent=_OPENING.release, after_in_child=_begin_child)
