"""The log: every line that a function's process writes, with the function's name before it."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TextIO

OnLine = Callable[[str, str], None]  # called with who wrote it ("claim", "gateway", "stack") and the line

log = logging.getLogger("osqueue.devstack")


class ProcessLog:
    """Where lines go: to a stream, and to a listener. Safe to use from any thread."""

    def __init__(self, stream: TextIO | None = None, on_line: OnLine | None = None) -> None:
        self._stream = stream
        self._on_line = on_line
        self._lock = threading.Lock()

    def write(self, who: str, line: str) -> None:
        """Keep one line. One that the stream does not take is lost: the threads that write have more to do."""
        with self._lock:
            if self._stream is not None:
                with contextlib.suppress(
                    OSError, ValueError
                ):  # its disk is full, its reader gone, it is closed
                    self._stream.write(f"[{who}] {line}\n")
                    self._stream.flush()
            if self._on_line is not None:
                try:
                    self._on_line(who, line)
                except Exception:  # whatever it is, the process that wrote the line goes on
                    log.exception("on_line failed")
