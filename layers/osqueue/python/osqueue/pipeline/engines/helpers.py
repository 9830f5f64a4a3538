"""Pieces of work that this process shares with others on the cores that it leaves idle.

How much a piece holds nobody knows before it is read. So this process begins alone, and is joined by the others once
it has worked for about as long as it takes them to start. What is small never starts one; what is large waits for none.
A piece that was begun is not given to another process: who repeats a run finds what is done and goes on from there.
"""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

from ... import child_process, forks
from ...errors import Unavailable

ALONE_SECONDS = 0.5  # about what a process takes to start
T = TypeVar("T")
R = TypeVar("R")


class HelperProcess:
    """A process that does one piece at a time, and ends at once with whoever started it."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._process = child_process.start(serve)
        self._answers = child_process.answers_of(self._process)

    def ask(self, function: Callable[[T], R], piece: T) -> R:
        """What a function of a module answers to a piece. Raises what it raises, and Unavailable."""
        order = pickle.dumps((function, piece))
        try:
            child_process.send(self._process, order)
            told = pickle.load(self._answers)  # noqa: S301 - of a process of our own
        except (OSError, EOFError, pickle.UnpicklingError) as lost:
            raise Unavailable(
                f"a process that did a part of the work is lost (exit code {self._process.wait()}). What is done "
                "stays. Run it again; where memory was short, on fewer cores, such as by taskset."
            ) from lost
        answer, error = pickle.loads(told)  # noqa: S301
        if error is not None:
            raise error
        found: R = answer
        return found

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """The same, and leave nothing of it."""
        self.kill()
        with self._process:  # which waits for its end
            self._answers.close()


class Helpers:
    """So many processes at most, which stay from one share of work to the next."""

    def __init__(self, count: int) -> None:
        self._running: list[HelperProcess | None] = [None] * count
        self._lock = forks.lock()

    def share(self, function: Callable[[T], R], pieces: Sequence[T]) -> list[R]:
        """Apply a function of a module to each of several pieces. Raises what it raises, and Unavailable."""
        left, answers = deque(enumerate(pieces)), dict[int, R]()
        over = threading.Event()  # nothing more is to be begun

        def work(act: Callable[[T], R]) -> None:
            while not over.is_set():
                try:
                    at, piece = left.popleft()
                except IndexError:
                    return
                answers[at] = act(piece)

        def wait_for(place: int) -> None:  # in a thread of its own
            try:
                if (helper := self._started(place, over)) is not None:
                    work(lambda piece: helper.ask(function, piece))
            except BaseException:
                over.set()
                raise

        count = min(len(self._running), len(pieces) - 1)
        try:
            with ThreadPoolExecutor(count) as threads:
                try:
                    helping = [threads.submit(wait_for, place) for place in range(count)]
                    work(function)
                    over.set()
                    for each in as_completed(helping):
                        each.result()
                except BaseException:  # Ctrl-C, too
                    with self._lock:
                        over.set()
                        for helper in filter(None, self._running):
                            helper.kill()  # so that no thread waits for it
                    raise
        except BaseException:
            self.close()
            raise
        return [answers[at] for at in range(len(pieces))]

    def _started(self, place: int, over: threading.Event) -> HelperProcess | None:
        """The process of a place; None: there is none, or the work was over before one was worth starting."""
        if self._running[place] is None and not over.wait(ALONE_SECONDS):
            with self._lock:
                if not over.is_set():
                    with suppress(OSError):  # there is no room for one more: it goes on without
                        self._running[place] = HelperProcess()
        return self._running[place]

    def close(self) -> None:
        """End all of them."""
        for helper in filter(None, self._running):
            helper.close()
        self._running = [None] * len(self._running)


# ── In such a process ────────────────────────────────────────────────────────
def serve() -> None:
    """Do what comes on the standard input, one piece after the other."""
    orders, answers = child_process.pipes()
    waiting: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_hear, args=(orders, waiting), daemon=True).start()
    try:
        while True:
            pickle.dump(_answer(waiting.get()), answers)
            answers.flush()
    finally:
        os._exit(1)  # nobody takes the answer; the other thread would be waited for


def _hear(orders: BinaryIO, waiting: SimpleQueue[Any]) -> None:
    """Pass on what comes; once nothing can come any more, end the process in the middle of its work."""
    try:
        while True:
            waiting.put(pickle.load(orders))  # noqa: S301 - of the process that started this one
    finally:
        os._exit(0)


def _answer(order: bytes) -> bytes:
    """What the function answered, or what it raised."""
    try:
        function, piece = pickle.loads(order)  # noqa: S301
        return pickle.dumps((function(piece), None))
    except BaseException as error:  # noqa: BLE001 - it is raised again by whoever asked
        error.add_note(f"In another process: {traceback.format_exc()}")
        return _told(error)


def _told(error: BaseException) -> bytes:
    """The error itself, or one that tells of it, where it does not survive the way."""
    try:
        told = pickle.dumps((None, error))
        pickle.loads(told)  # noqa: S301
    except Exception:  # noqa: BLE001 - whatever kept it from being one
        words = f"a part of the work failed in another process: {error!r}"
        other = Unavailable(f"{words}. What is done stays.")
        for note in error.__notes__:
            other.add_note(note)
        return pickle.dumps((None, other))
    return told
