"""SIGTERM, SIGINT and SIGHUP for all workers of one event loop.

An event loop keeps one handler for a signal, so the workers share it, and the last worker to end restores what was set
before. A program's own handlers go on working:

* A handler set with ``signal.signal``, such as a web server's, is called as well, after the workers. What it raises,
  such as SystemExit, is raised when the last worker has ended: at once, it would end the loop and lose the drain.
* A handler that the program gave to the loop itself stays, and no worker receives the signal: the program stops them.

SIGHUP, which a closed terminal sends, ends a worker like SIGTERM if nothing else is set for it: not under ``nohup``,
and not in a program that handles SIGTERM or SIGHUP itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

OnSignal = Callable[[signal.Signals], None]

log = logging.getLogger("osqueue.worker")

_listeners: dict[tuple[asyncio.AbstractEventLoop, signal.Signals], _SignalListener] = {}


@contextlib.contextmanager
def listening(on_signal: OnSignal) -> Iterator[None]:
    """Have the running loop call ``on_signal`` at each signal. In another thread than the main one none arrive.

    The last context to end raises what a handler of the program raised meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    joined = [each for number in SIGNALS if (each := _listener_of(loop, number)) is not None]
    for listener in joined:
        listener.callbacks.append(on_signal)
    try:
        yield
    finally:
        raised = [error for each in joined if (error := each.leave(on_signal)) is not None]
        if raised:
            raise raised.pop(0)


class _SignalListener:
    """One signal of one loop, from the first worker to the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        self.loop = loop
        self.number = number
        self.callbacks: list[OnSignal] = []
        self._raised: BaseException | None = None  # by the program's handler, the first time
        self._before: Any = signal.getsignal(number)
        loop.add_signal_handler(number, self._notify)
        self._own: Any = signal.getsignal(number)  # the loop's, in the place of the one before

    @property
    def replaces_handler(self) -> bool:
        """Whether the program set a handler of its own with ``signal.signal``."""
        return _is_programs(self._before)

    def _notify(self) -> None:
        for on_signal in list(self.callbacks):
            on_signal(self.number)
        # If the program has set another handler since, Python has called that one.
        if self.replaces_handler and signal.getsignal(self.number) == self._own:
            try:
                self._before(self.number, None)
            except BaseException as error:  # noqa: BLE001 - the last worker to leave raises it
                if self._raised is None:
                    self._raised = error

    def leave(self, on_signal: OnSignal) -> BaseException | None:
        """Call ``on_signal`` no more. The last to leave restores the program's handler, and receives what it raised."""
        self.callbacks.remove(on_signal)
        if self.callbacks:
            return None
        del _listeners[self.loop, self.number]
        self._restore()
        return self._raised

    def _restore(self) -> None:
        now = signal.getsignal(self.number)
        if _handles(self.loop, self.number) not in (None, self._notify, self._own):
            return  # the program has given the loop another one since
        self.loop.remove_signal_handler(self.number)
        handler = self._before if now == self._own else now
        if handler is not None and not _is_loops(handler):  # None: it was not set from Python
            signal.signal(self.number, handler)


def _is_programs(handler: Any) -> bool:
    """Return whether a handler is the program's own, neither Python's nor asyncio's."""
    runner = getattr(getattr(handler, "func", None), "__self__", None)  # of asyncio.run, for SIGINT
    return (
        callable(handler)
        and handler is not signal.default_int_handler
        and not isinstance(handler, signal.Handlers)
        and not isinstance(runner, asyncio.Runner)
        and not _is_loops(handler)
    )


def _is_loops(handler: Any) -> bool:
    """Return whether a handler only wakes a loop, perhaps one that has ended."""
    return (getattr(handler, "__module__", "") or "").partition(".")[0] in ("asyncio", "uvloop")


def _handles(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> Any:
    """Return what the loop calls at a signal, or whatever stands for it; None if there is nothing."""
    handle = getattr(loop, "_signal_handlers", {}).get(number)  # there is no public way to ask
    if handle is not None:
        return getattr(handle, "_callback", handle)
    handler = signal.getsignal(number)  # a loop of uvloop shows this alone
    return handler if getattr(handler, "__self__", None) is loop else None


def _listener_of(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> _SignalListener | None:
    listener = _listeners.get((loop, number))
    if listener is not None:
        return listener
    if number is signal.SIGHUP:
        terminated = _listeners.get((loop, signal.SIGTERM))
        if (
            terminated is None
            or terminated.replaces_handler
            or signal.getsignal(number) is not signal.SIG_DFL
        ):
            return None
    if _handles(loop, number) is not None:
        log.info("%s: the program's own handler stays; the program has to stop the worker", number.name)
        return None
    listener = _listeners[loop, number] = _SignalListener(loop, number)
    return listener
