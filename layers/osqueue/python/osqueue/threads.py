"""Threads that carry calls and keep no process from ending.

They are daemon threads. Python joins all other threads when a process ends, and a child of a fork that ran no hooks
would wait for ever for those of its parent.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from . import forks

if TYPE_CHECKING:
    from concurrent.futures import Future

    PendingCall = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]

R = TypeVar("R")

LATE_MAX = 256  # abandoned calls of one caller that have not returned

_AWAITED: WeakSet[DaemonThreads] = WeakSet()


class _Crew:
    """The threads of one process, and what they share. None of them keeps the ``DaemonThreads`` alive."""

    def __init__(self) -> None:
        self.process = forks.process()
        self.lock = forks.lock()
        self.calls: SimpleQueue[PendingCall | None] = SimpleQueue()  # None: a thread ends
        self.threads: list[threading.Thread] = []
        self.busy = 0  # calls given and not finished
        self.closed = False  # no more calls

    def take(self, pending: PendingCall, owner: DaemonThreads) -> bool:
        """Have a thread make a call, unless these threads are closed. Return whether it will be made."""
        with self.lock:
            if self.closed:
                return False
            self.busy += 1
            if len(self.threads) < min(self.busy, owner.most):
                name = f"{owner.name}-{len(self.threads) + 1}"
                thread = threading.Thread(target=_work, args=(self,), name=name, daemon=True)
                thread.start()
                self.threads.append(thread)
            self.calls.put(pending)
        return True

    def close(self) -> None:
        """Let each thread end after the calls that were taken."""
        with self.lock:
            self.closed = True
            for _ in self.threads:
                self.calls.put(None)

    def done(self) -> None:
        with self.lock:
            self.busy -= 1


class DaemonThreads:
    """Up to ``most`` threads, started as they are needed. A fork's child starts its own.

    ``awaited``: a process that ends waits for the calls that run. Without it, a call that never returns does not keep
    the process from ending.
    """

    def __init__(self, name: str, most: int, awaited: bool = False) -> None:
        self.name = name
        self.most = most
        self._crew = _Crew()
        if awaited:
            _AWAITED.add(self)

    def submit(self, call: Callable[..., R], *arguments: Any) -> Future[R]:
        """Run a call on one of the threads."""
        from concurrent.futures import Future  # where it is used: few callers need it

        future: Future[R] = Future()
        taken = False
        while not taken:
            crew = self._crew
            if crew.process != forks.process():
                crew = self._crew = _Crew()
            taken = crew.take(
                (future, call, arguments), self
            )  # if not, ``close`` has put another crew in its place
        return future

    def close(self) -> list[threading.Thread]:
        """Let idle threads end, and busy ones after their calls. Return those of this process."""
        crew, self._crew = self._crew, _Crew()
        if crew.process != forks.process():
            return []
        crew.close()
        return crew.threads

    def __del__(self) -> None:
        for _ in self._crew.threads:
            self._crew.calls.put(None)


def _work(crew: _Crew) -> None:
    while (given := crew.calls.get()) is not None:
        future, call, arguments = given
        if not future.set_running_or_notify_cancel():
            crew.done()
            continue
        try:
            result = call(*arguments)
        except BaseException as error:  # noqa: BLE001 - it goes to the caller that waits for the future
            crew.done()
            future.set_exception(error)
        else:
            crew.done()
            future.set_result(result)
            del result
        del given, future, call, arguments  # an idle thread keeps nothing alive


class TimedCaller(Generic[R]):
    """Makes calls for any number of threads, each in the context of its caller and for a limited time.

    A call that does not return in time goes on on its thread, which ends with the call. It does not keep the process
    from ending. Between calls a thread sleeps.
    """

    def __init__(self) -> None:
        self._idle: list[_CallThread[R]] = []
        self._late: set[_CallThread[R]] = set()

    def call(self, function: Callable[[], R], seconds: float) -> R | None:
        """Return the result of a call, or raise its error. None if it does not return in time.

        Return None as well if too many calls are late. Then ``function`` is not called.
        """
        if len(self._late) >= LATE_MAX:
            self._late = {each for each in list(self._late) if each.thread.is_alive()}
            if len(self._late) >= LATE_MAX:
                return None
        line = self._free()
        line.calls.put(partial(copy_context().run, function))
        try:
            result, error = line.answers.get(timeout=seconds)
        except Empty:
            line.calls.put(None)  # the thread ends when the call does
            self._late.add(line)
            return None
        except BaseException:  # an interruption: the caller does not wait any more
            line.calls.put(None)
            self._late.add(line)
            raise
        self._idle.append(line)
        if error is not None:
            raise error
        return result

    def _free(self) -> _CallThread[R]:
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread has taken the last one
                break
            if line.process == forks.process():  # a fork has none of its parent's threads
                return line
        return _CallThread()


class _CallThread(Generic[R]):
    """A thread, the calls that it makes, and their results."""

    def __init__(self) -> None:
        self.process = forks.process()
        self.calls: SimpleQueue[Callable[[], R] | None] = SimpleQueue()
        self.answers: SimpleQueue[tuple[R | None, BaseException | None]] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="osqueue-call", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while (function := self.calls.get()) is not None:
            try:
                self.answers.put((function(), None))
            except BaseException as error:  # noqa: BLE001 - it goes to the caller
                self.answers.put((None, error))


@atexit.register
def _end_in_order() -> None:
    for each in [thread for threads in list(_AWAITED) for thread in threads.close()]:
        each.join()
