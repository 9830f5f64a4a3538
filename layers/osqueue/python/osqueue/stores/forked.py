"""The child of a fork asks through a process of its own making, since obstore's threads stayed behind in the parent.

That process opens the same store, with the same environment, and carries out whatever it reads, several requests at
a time. It ends with whoever started it: then there is nothing more to read.
"""

from __future__ import annotations

import pickle
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .. import child_process, forks
from ..errors import Unavailable
from .base import Failed, Store, StoreReply, StoreRequest

THREADS = 32  # requests at a time; more than that wait

Opening = tuple[type[Store], tuple[Any, ...]]


class ForkedStore:
    """Performs requests in a process that is started with the first one, and again where it was lost."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._lock = forks.lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._of = 0  # whose process it is: a fork's child starts its own
        self._asked: dict[int, Future[StoreReply]] = {}  # what it has not answered yet
        self._count = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        """Carry out one request."""
        answer: Future[StoreReply] = Future()
        try:
            with self._lock:
                if self._process is None or self._of != forks.process():
                    self._start()
                assert self._process is not None
                self._count += 1
                self._asked[self._count] = answer
                child_process.send(self._process, (self._count, request))
        except OSError as error:  # it cannot be started, or has just ended
            return Failed(_lost(type(error).__name__))
        return answer.result()

    def close(self) -> None:
        """End the process once it has answered."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None and self._of == forks.process():
                assert process.stdin is not None
                process.stdin.close()

    def _start(self) -> None:
        self._asked = {}
        process = child_process.start(serve)
        child_process.send(process, self._opening)
        threading.Thread(target=self._hear, args=(process, self._asked), daemon=True).start()
        self._process, self._of = process, forks.process()

    def _hear(self, process: subprocess.Popen[bytes], asked: dict[int, Future[StoreReply]]) -> None:
        answers = child_process.answers_of(process)
        try:
            while True:
                number, reply = pickle.load(answers)  # noqa: S301 - of a process of our own
                asked.pop(number).set_result(reply)
        except (EOFError, OSError, pickle.UnpicklingError):
            process.wait()
        finally:
            answers.close()
        with self._lock:
            if self._process is process:
                self._process = None
        for answer in list(asked.values()):
            answer.set_result(Failed(_lost(f"exit code {process.returncode}")))


def _lost(how: str) -> Unavailable:
    return Unavailable(
        f"the process that asks the store for this forked child is lost ({how}). "
        "Remedy: try again; or open the queue after the fork, not before it."
    )


def serve() -> None:
    """Carry out what comes on the standard input, until it ends."""
    requests, answers = child_process.pipes()
    kind, arguments = pickle.load(requests)  # noqa: S301 - of the process that started this one
    store = kind(*arguments)
    lock = forks.lock()

    def carry_out(number: int, request: StoreRequest) -> None:
        reply = store.perform(request)
        with lock:
            pickle.dump((number, reply), answers)
            answers.flush()

    with ThreadPoolExecutor(THREADS) as pool:
        while True:
            try:
                number, request = pickle.load(requests)  # noqa: S301
            except EOFError:
                return
            pool.submit(carry_out, number, request)
