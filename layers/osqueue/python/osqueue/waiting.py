"""Who in this process waits for which job: so that a waiter is woken by a commit made here, not only by looking.

Every head that any Queue object of this process reads or writes passes by the *board* of its shard, and whoever
waits for a job that is over in it is woken. Waiters of one shard also share their looks at it: how often the
process asks the store does not grow with their number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from .core.state import State

Wake = Callable[[], None]


class Board:
    """The waiters of one shard in this process, and the newest head they have seen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakes: dict[bytes, list[Wake]] = {}
        self._open = 0  # callers who wait, woken at this moment or not
        self.looked = float("-inf")  # monotonic seconds of the latest look at the store by any of them
        self.looks = (
            0  # how often the state below was found to be current; a waiter trusts what is seen after it came
        )
        self.state: State | None = None
        self.version: str | None = None  # of that state, where it is known

    @contextmanager
    def open(self) -> Iterator[None]:
        """While somebody waits. What was seen before the first came is worth nothing to the next."""
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if not self._open:
                    self.state = self.version = None

    @contextmanager
    def waking(self, key: bytes, wake: Wake) -> Iterator[None]:
        """Have ``wake`` called, from any thread, once the job is seen to be over."""
        with self._lock:
            self._wakes.setdefault(key, []).append(wake)
        try:
            yield
        finally:
            with self._lock:
                left = [each for each in self._wakes[key] if each is not wake]
                if left:
                    self._wakes[key] = left
                else:
                    del self._wakes[key]

    def see(self, state: State, version: str) -> None:
        """A head passes by; wake those whose jobs are over in it."""
        if not self._open:
            return
        over = {row.key for row in state.finished}
        over.update(job.key for job in (*state.dead.ready, *state.dead.tail))
        with self._lock:
            known = self.state
            if known is None or state.seq >= known.seq or state.epoch != known.epoch:
                self.state, self.version = state, version
                self.looks += 1
            wakes = [wake for key in self._wakes.keys() & over for wake in self._wakes[key]]
        for wake in wakes:
            wake()


_BOARDS: WeakValueDictionary[tuple[object, str], Board] = WeakValueDictionary()
_BOARDS_LOCK = threading.Lock()


def board_of(place: object, root: str) -> Board:
    """The board of one shard of one store, the same for every Queue object of the process."""
    with _BOARDS_LOCK:
        board = _BOARDS.get((place, root))
        if board is None:
            board = _BOARDS[place, root] = Board()
        return board
