"""Calls that nobody waits for longer than they want to.

A store may hold on to a request for longer than a function lives. The call goes on on its thread, which is left to
itself; between calls the thread sleeps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

R = TypeVar("R")


class TimedCaller(Generic[R]):
    """Makes calls for any number of threads, each in the context of its caller. The calls raise nothing."""

    def __init__(self) -> None:
        self._idle: list[_CallThread[R]] = []

    def call(self, function: Callable[[], R], seconds: float) -> R | None:
        """The call's answer; None when there is none in time."""
        line = self._free()
        line.calls.put(partial(copy_context().run, function))
        try:
            answer = line.answers.get(timeout=seconds)
        except Empty:
            line.calls.put(None)  # the thread ends when the call does
            return None
        self._idle.append(line)
        return answer

    def _free(self) -> _CallThread[R]:
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread has taken the last one
                break
            if line.process == os.getpid():  # a fork has none of its parent's threads
                return line
        return _CallThread()


class _CallThread(Generic[R]):
    """A thread, what it has to call, and what came of it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.calls: SimpleQueue[Callable[[], R] | None] = SimpleQueue()
        self.answers: SimpleQueue[R] = SimpleQueue()
        threading.Thread(target=self._run, name="osqueue-call", daemon=True).start()

    def _run(self) -> None:
        while (function := self.calls.get()) is not None:
            self.answers.put(function())
