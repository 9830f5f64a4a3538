"""A server on loopback that says, byte for byte, what a test tells it to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

HANG_UP = b""  # close the connection without a word


class Heard(NamedTuple):
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int  # which one, from 0


def response(status: int, body: bytes = b"", **headers: str) -> bytes:
    """An answer in HTTP."""
    more = {
        "content-length": str(len(body)),
        **{name.replace("_", "-"): each for name, each in headers.items()},
    }
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {each}" for name, each in more.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Speaker:
    """Answers request after request with what is left to say; None: nothing, while the connection stays."""

    def __init__(self, *says: bytes | None) -> None:
        self.says = list(says)
        self.heard: list[Heard] = []
        self.over = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        self.greeting = b""  # said before anything was asked
        self.hangs_up = False  # after every answer

    @property
    def port(self) -> int:
        port: int = self.socket.getsockname()[1]
        return port

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                thread = threading.Thread(target=self.talk, args=(connection, self.connections), daemon=True)
                self.connections += 1
                thread.start()

    def talk(self, connection: socket.socket, number: int) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            if self.greeting:
                connection.sendall(self.greeting)
                return
            while head := stream.readline():
                method, target, _ = head.decode().split(" ")
                headers: dict[str, str] = {}
                while line := stream.readline().strip():
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", "0")))
                self.heard.append(Heard(method, target, headers, body, number))
                say = self.says.pop(0) if len(self.says) > 1 else self.says[0]
                if say is None:
                    self.over.wait()
                    return
                if not say:
                    return
                connection.sendall(say)
                if self.hangs_up:
                    return


@contextmanager
def speaking(*says: bytes | None) -> Iterator[Speaker]:
    """While the block lasts, a server says these things in turn, the last one again and again."""
    speaker = Speaker(*says)
    thread = threading.Thread(target=speaker.serve, daemon=True)
    thread.start()
    try:
        yield speaker
    finally:
        speaker.over.set()
        with contextlib.suppress(OSError):
            speaker.socket.shutdown(socket.SHUT_RDWR)
        speaker.socket.close()
        thread.join()
