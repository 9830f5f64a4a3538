"""Wait in a command until a signal ends it."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ..clock import MACHINE
from ..signals import has_no_effect


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
    """Return what the first of these signals sets. The second does what it did before; a second SIGHUP does nothing."""
    ear, bell = socket.socketpair()
    ending = StopSignal(ear)

    def end(number: int, frame: FrameType | None) -> None:
        ending.set()
        for each in numbers:
            if not has_no_effect(each, ending=True):
                restore(each)

    def restore(number: signal.Signals) -> None:
        if (handler := before[number]) is not None:  # else it was not set from Python, and cannot be
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
            for number in numbers:
                restore(number)
            signal.set_wakeup_fd(bell_before)
