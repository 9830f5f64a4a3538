"""Hearing from a Valkey or Redis server that an object was replaced: one connection and one thread for a store.

A courtesy: whoever listens looks at the object now and then all the same. A message may be lost with its connection,
and a user may not be allowed to subscribe. After a fork the child has no such thread, and begins one of its own when it
listens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .. import forks
from .base import Hinted, Told

RECONNECT_SECONDS = 1.0


class NewsListener:
    """Subscribes to channels, and tells those who asked of each message."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect  # answers a connection of our own, not yet connected
        self._lock = forks.lock()
        self._told: dict[bytes, list[Told]] = {}
        self._connection: Any = None  # that is subscribed
        self._confirmed: frozenset[bytes] = frozenset()  # channels that the server sends at present
        self._over = threading.Event()

    def add(self, channel: str, told: Told) -> Hinted:
        """Call ``told`` with each new version on another thread, until it returns False."""
        name = channel.encode()
        with self._lock:
            began, new = bool(self._told), name not in self._told
            self._told.setdefault(name, []).append(told)
            if began and new and self._connection is not None:
                try:
                    self._connection.send_command("SUBSCRIBE", name)
                except Exception:  # noqa: BLE001 - the thread sees it as well, and subscribes to all anew
                    self._connection = None
        if not began:
            threading.Thread(target=self._run, name="osqueue-valkey-news", daemon=True).start()
        return lambda: name in self._confirmed

    def end(self) -> None:
        """Hear nothing more."""
        self._over.set()
        self._confirmed = frozenset()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _run(self) -> None:
        while not self._over.is_set():
            connection = self._connect()
            try:
                connection.connect()
                with self._lock:
                    connection.send_command("SUBSCRIBE", *self._told)
                    self._connection = connection
                while not self._over.is_set():
                    self._hear(connection.read_response())
            except Exception:  # noqa: BLE001 - whatever it was, those who wait look at the store by themselves
                with self._lock:
                    self._connection = None
            finally:
                self._confirmed = frozenset()
                connection.disconnect()
            self._over.wait(RECONNECT_SECONDS)

    def _hear(self, message: Any) -> None:
        kind, name, version = message
        if kind == b"subscribe":
            self._confirmed |= {name}
        if kind != b"message":
            return
        with self._lock:
            asked = list(self._told.get(name, ()))
        gone = [told for told in asked if not told(version.decode("ascii"))]
        if gone:
            with self._lock:
                self._told[name] = [each for each in self._told[name] if each not in gone]
