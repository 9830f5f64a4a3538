"""Commands that run until a signal ends them: SIGTERM, SIGINT (Ctrl-C) or SIGHUP, and a wait that ends then."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..clock import MACHINE


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a command. SIGHUP, of a closed terminal, ends none that ``nohup`` started."""
    both = (signal.SIGTERM, signal.SIGINT)
    return both if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*both, signal.SIGHUP)


class StopSignal:
    """Whether a signal asked for the end, and the main thread's wait for it.

    Python runs a signal's handler when the main thread comes to its next step, and a thread that waits for a lock
    comes to none: a signal between its last step and its falling asleep, or one that the system hands to another
    thread, leaves ``threading.Event.wait`` asleep. What ends this wait is a byte that the interpreter writes as the
    signal arrives, as in asyncio.
    """

    def __init__(self, ear: socket.socket) -> None:
        self._ear = ear
        self._asked = False

    def set(self) -> None:
        """Called by a signal's handler."""
        self._asked = True

    def is_set(self) -> bool:
        """Whether the end was asked for."""
        return self._asked

    def wait(self, timeout: float | None = None, *files: int) -> bool:
        """Wait until the end is asked for, for that many seconds, or until one of the files has something to read.

        Answers whether the end was asked for.
        """
        until = None if timeout is None else MACHINE.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            ear = self._ear.fileno()
            for each in (ear, *files):
                selector.register(each, selectors.EVENT_READ)
            while not self._asked:
                left = None if until is None else until - MACHINE.monotonic()
                if left is not None and left <= 0:
                    break
                ready = {key.fd for key, _ in selector.select(left)}
                if ear in ready:
                    self._ear.recv(4096)  # of whichever signals: those that ask for no end are waited through
                if ready - {ear}:
                    break
        return self._asked


@contextmanager
def ended_by(*numbers: signal.Signals) -> Iterator[StopSignal]:
    """Set by the first of these signals. The second does what it always does: there is no waiting then."""
    ear, bell = socket.socketpair()
    ending = StopSignal(ear)

    def end(number: int, frame: FrameType | None) -> None:
        ending.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            if handler is not None:  # else it was not set from Python, and cannot be
                signal.signal(number, handler)

    with ear, bell:
        bell.setblocking(False)
        bell_before = signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
        before = {number: signal.getsignal(number) for number in numbers}
        try:
            for number in numbers:
                signal.signal(number, end)
            yield ending
        finally:
            restore()
            signal.set_wakeup_fd(bell_before)
