"""When a store opens another client after a refusal.

A client keeps the credentials that it was opened with. Those of the environment, of a file or of the machine's role may
be newer. To open a client costs up to 0.1 s and a request for credentials, so refusals of one caller must not cost all
others their client each time.
"""

from __future__ import annotations

import os

from ..clock import MACHINE
from ..errors import OsqueueError, Unavailable

REOPEN_SECONDS = 5.0  # between two clients in the same environment


class Reopening:
    """Remembers when a client was opened again, and in which environment."""

    def __init__(self) -> None:
        self._environment: frozenset[tuple[str, str]] = frozenset()
        self._at = float("-inf")  # monotonic seconds: when another client was opened
        self._refused_at = float("-inf")  # monotonic seconds: the latest refusal that opened no other client

    def is_stale(self) -> bool:
        """Return whether the client is older than the environment, and remember that another one is opened.

        Only for some seconds after a refusal, since each request asks.
        """
        if self._refused_at == float("-inf"):
            return False
        environment, now = frozenset(os.environ.items()), MACHINE.monotonic()
        if environment != self._environment:
            self._environment, self._at = environment, now
            self._refused_at = float("-inf")
            return True
        if now - self._refused_at >= REOPEN_SECONDS:
            self._refused_at = float("-inf")
        return False

    def is_due(self, error: OsqueueError) -> bool:
        """Return whether an error is a reason to open another client now, and remember that it was opened."""
        if not error.permanent or not isinstance(error, Unavailable):
            return False
        environment, now = frozenset(os.environ.items()), MACHINE.monotonic()
        if environment == self._environment and now - self._at < REOPEN_SECONDS:
            self._refused_at = now
            return False
        self._environment, self._at = environment, now
        return True
