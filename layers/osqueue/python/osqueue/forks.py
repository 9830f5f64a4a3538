"""Locks that a fork's child finds open.

A fork copies one thread and every lock. A lock that another thread held at that moment is held in the child for
ever, because nobody there will release it. What such a lock guards must bear to be found in the middle of a change.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

_LOCKS: WeakSet[Any] = WeakSet()


def lock() -> threading.Lock:
    """A lock that is open in a fork's child, whoever held it in the parent."""
    made = threading.Lock()
    _LOCKS.add(made)
    return made


def _open_all() -> None:
    for each in _LOCKS:
        each._at_fork_reinit()  # as the standard library opens its own


os.register_at_fork(after_in_child=_open_all)
