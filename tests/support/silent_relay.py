"""A relay of TCP whose connections can fall silent without an end, as where a network between forgets them."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"(GET|HEAD|PUT|POST|DELETE|PATCH) ")


class Relayed(NamedTuple):
    """A request as it arrived at the relay."""

    connection: int  # its number, from 0
    method: str
    passed: bool  # whether it was passed on; False: the connection is silent


class SilentRelay:
    """Passes bytes between its clients and one server. ``requests`` holds what arrived, in order."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._server = parts.hostname or "", parts.port or 80
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.endpoint = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.requests: list[Relayed] = []
        self.connections = 0
        self.silent_below = 0  # connections with a lower number are silent

    def fall_silent(self, future: bool = False) -> None:
        """Pass nothing on over the connections that exist; with ``future`` over later ones neither."""
        self.silent_below = 1_000_000 if future else self.connections

    @property
    def unanswered(self) -> list[Relayed]:
        """The requests that arrived on silent connections."""
        return [each for each in self.requests if not each.passed]

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                number, self.connections = self.connections, self.connections + 1
                server = socket.create_connection(self._server)
                self._open += [client, server]
                for one, other in ((client, server), (server, client)):
                    work = one, other, number, one is client
                    threading.Thread(target=self._pass_on, args=work, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, number: int, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                passes = number >= self.silent_below
                if asks and (found := _REQUEST.match(data)):
                    self.requests.append(Relayed(number, found[1].decode(), passes))
                if passes:
                    target.sendall(data)
            if number >= self.silent_below:
                target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for each in (self._socket, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextlib.contextmanager
def relaying_to(endpoint: str) -> Iterator[SilentRelay]:
    """Relay to a server at ``endpoint`` while the block lasts."""
    relay = SilentRelay(endpoint)
    threading.Thread(target=relay.serve, daemon=True).start()
    try:
        yield relay
    finally:
        relay.close()
