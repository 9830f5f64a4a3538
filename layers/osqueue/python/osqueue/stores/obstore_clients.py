"""obstore's clients of one store: one keeps its connections, one opens a connection for each request.

A kept connection may be dead without a notice: the network between forgets it, or the process was frozen when the
other side closed it. So the client drops a connection that was idle for some seconds, and a request on a kept
connection waits only briefly for the first byte. Then the other client repeats it on a fresh connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from .. import forks
from ..clock import MACHINE, Moment, clocks_disagree
from ..errors import pass_on_interruption
from ..limits import KB, STORE_IDLE_MS_MAX
from .faults import Timeouts

R = TypeVar("R")
Y = TypeVar("Y")

PROMPT_BYTES_MAX = 512 * KB  # of a body that is uploaded within the limit of the first byte, at 1.5 Mbit/s


class ObstoreClients:
    """The clients of one store. ``open_client`` opens the client that keeps connections if its argument is True."""

    def __init__(self, open_client: Callable[[bool], Any]) -> None:
        self._open_client = open_client
        self._used: Moment | None = None  # when ``kept`` was called last
        self._kept: Any = None
        self._fresh: Any = None

    def kept(self) -> Any:
        """Return the client that keeps its connections.

        obstore measures by the monotonic clock how long a connection was idle. After a freeze that stopped this clock
        all connections are dropped.
        """
        now = MACHINE.moment()
        if self._used is not None and clocks_disagree(self._used, now):
            self._kept = None
        self._used = now
        client = self._kept
        if client is None:
            client = self._kept = self._open_client(True)
        return client

    def fresh(self) -> Any:
        """Return the client that opens a connection for each request."""
        client = self._fresh
        if client is None:
            client = self._fresh = self._open_client(False)
        return client

    def tried(
        self, attempt: Callable[[Any], Generator[Y, Any, R]], timeouts: Timeouts, body: bytes | None = None
    ) -> Generator[Y, Any, R]:
        """Make an attempt with a client, and repeat it once if a kept connection brings no first byte in time.

        ``body`` is that of a write. If a repeated write fails, the error of the first attempt is raised: that one may
        have taken effect, and then a condition of the repeat does not hold.
        """
        if body is not None and len(body) > PROMPT_BYTES_MAX:
            return (yield from attempt(self.fresh()))
        client = self.kept()
        try:
            return (yield from attempt(client))
        except Exception as error:
            if timeouts.first_byte_s is None or not _is_silence(error):
                raise
            silence = error
        if self._kept is client:
            self._kept = None  # its other connections may be dead, too
        try:
            return (yield from attempt(self.fresh()))
        except Exception as error:
            pass_on_interruption(error)
            if body is None:
                raise
            raise silence from None

    def close(self) -> None:
        """Drop all clients. Later requests open others."""
        self._kept = self._fresh = None


def connection_options(timeouts: Timeouts, keeps: bool) -> dict[str, Any]:
    """Return obstore's options of a client that keeps its connections, or of one that does not."""
    from datetime import timedelta

    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=timeouts.connect_s),
        "timeout": timedelta(seconds=timeouts.request_s),
    }
    if not keeps:
        return options | {"pool_max_idle_per_host": "0"}
    options["pool_idle_timeout"] = timedelta(milliseconds=STORE_IDLE_MS_MAX)
    if timeouts.first_byte_s is not None:
        options["read_timeout"] = timedelta(seconds=timeouts.first_byte_s)
    return options


def _is_silence(error: Exception) -> bool:
    """Return whether obstore raised an error because a connection that stood brought no byte in time."""
    text = str(error)
    return "kind: Timeout" in text and "ConnectError" not in text


class _Runtime:
    """obstore's threads. A fork's child has no copy of them, so calls of obstore would never return there."""

    def __init__(self) -> None:
        self._process: int | None = None  # in which they run; None: not started

    def start(self) -> None:
        """Note that a client is about to start them."""
        if self._process is None:
            self._process = forks.process()

    def is_lost(self) -> bool:
        """Return whether they were started in a parent of this process."""
        return self._process is not None and self._process != forks.process()


RUNTIME = _Runtime()
