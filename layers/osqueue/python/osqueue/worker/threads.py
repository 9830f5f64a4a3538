"""Daemon threads: a handler that never returns must not keep its process from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

PendingCall = tuple["Future[Any]", Callable[[], Any]]


class DaemonThreads:
    """Up to ``most`` threads, started as they are needed."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self._calls: SimpleQueue[PendingCall | None] = SimpleQueue()
        self._started = 0
        self._busy = 0  # calls given and not finished
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call on one of the threads."""
        future: Future[Any] = Future()
        with self._lock:
            self._busy += 1
            start = self._busy > self._started and self._started < self.most
            self._started += start
            name = f"{self.name}-{self._started}"
        if start:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._calls.put((future, call))
        return future

    def _work(self) -> None:
        while (given := self._calls.get()) is not None:
            future, call = given
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it goes to the caller that waits for the future
                self._finish(future, error=error)
            else:
                self._finish(future, result)

    def _finish(self, future: Future[Any], result: Any = None, error: BaseException | None = None) -> None:
        with self._lock:
            self._busy -= 1
        if not future.set_running_or_notify_cancel():
            return  # nobody waits for it any more
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def close(self) -> None:
        """Let idle threads end, and busy ones after their call."""
        with self._lock:
            for _ in range(self._started):
                self._calls.put(None)
