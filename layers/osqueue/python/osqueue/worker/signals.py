"""SIGTERM and SIGINT for all workers of one event loop: each hears every signal, and the last to go tidies up.

An event loop keeps one handler for a signal. So the workers share it, and a handler that the program gave to the loop
itself is left alone: only the program knows what else has to end then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)

OnSignal = Callable[[signal.Signals], None]

log = logging.getLogger("osqueue.worker")

_listeners: dict[tuple[asyncio.AbstractEventLoop, signal.Signals], _SignalListener] = {}


@contextlib.contextmanager
def listening(on_signal: OnSignal) -> Iterator[None]:
    """Have ``on_signal`` called by the running loop at each signal; not in a thread, where none arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    heard = [each for number in SIGNALS if (each := _ear(loop, number)) is not None]
    for ear in heard:
        ear.listeners.append(on_signal)
    try:
        yield
    finally:
        for ear in heard:
            ear.leave(on_signal)


class _SignalListener:
    """One signal of one loop, from the first worker to the last."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        self.loop = loop
        self.number = number
        self.listeners: list[OnSignal] = []
        self._before: Any = signal.getsignal(number)
        loop.add_signal_handler(number, self._tell)

    def _tell(self) -> None:
        for on_signal in list(self.listeners):
            on_signal(self.number)

    def leave(self, on_signal: OnSignal) -> None:
        self.listeners.remove(on_signal)
        if self.listeners:
            return
        del _listeners[self.loop, self.number]
        self.loop.remove_signal_handler(self.number)
        left_over = getattr(self._before, "__module__", "") == "asyncio.unix_events"  # of a loop that is gone
        if self._before is not None and not left_over:  # None: it was not set from Python
            signal.signal(self.number, self._before)


def _ear(loop: asyncio.AbstractEventLoop, number: signal.Signals) -> _SignalListener | None:
    ear = _listeners.get((loop, number))
    if ear is None:
        if number in getattr(loop, "_signal_handlers", ()):  # there is no public way to ask
            log.info("%s: the program's own handler stays; it has to stop the worker", number.name)
            return None
        ear = _listeners[loop, number] = _SignalListener(loop, number)
    return ear
