"""How many calls of one handler may run at once in this process, whatever the number of its workers."""

from __future__ import annotations

import threading
from collections.abc import Callable


class HandlerPlaces:
    """The places of a handler. Whoever takes some gives them back; those who wait for one are told."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], object]] = []

    @property
    def free(self) -> int:
        """How many there are just now."""
        return self._free

    def take(self, wished: int) -> int:
        """Take up to so many; answers how many there were."""
        with self._lock:
            taken = min(wished, self._free)
            self._free -= taken
        return taken

    def give(self, count: int) -> None:
        """Give some back, from any thread."""
        with self._lock:
            self._free += count
            waiting = list(self._waiting) if count else []
        for tell in waiting:
            tell()

    def tell(self, wake: Callable[[], object]) -> None:
        """Have ``wake`` called whenever there are more, from any thread."""
        with self._lock:
            self._waiting.append(wake)

    def forget(self, wake: Callable[[], object]) -> None:
        """Call it no more."""
        with self._lock:
            self._waiting.remove(wake)
