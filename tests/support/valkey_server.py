"""A Valkey or Redis server of the system, on a port of its own, with its files in a folder of its own."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.patience import PATIENCE

HOST = "127.0.0.1"
BINARY = shutil.which("valkey-server") or shutil.which("redis-server")
HOW_TO_INSTALL = "needs valkey-server or redis-server (Debian: apt install valkey-server, or redis-server)"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")

_prefixes = itertools.count(1)


class ValkeyServer:
    """A server that can be killed and started again on what it has written."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.settings = settings
        with socket.create_server((HOST, 0)) as listener:
            self.port: int = listener.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def address(self, prefix: str | None = None, scheme: str = "valkey") -> str:
        """One that opens a part of the server; by default, one of its own."""
        return f"{scheme}://{HOST}:{self.port}/0/{prefix or f'test/{next(_prefixes)}'}"

    def start(self) -> None:
        """Start it, and wait until it has read what it wrote before."""
        assert BINARY is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(BINARY, "--bind", HOST, "--port", str(self.port), "--dir", str(self.folder)),
                    *("--save", "", "--daemonize", "no", *self.settings),
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while self.ask(b"PING") != b"+PONG":
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server does not answer: {(self.folder / 'log').read_text()[-500:]}")
            time.sleep(0.02)

    def ask(self, *words: bytes) -> bytes:
        """The first line of the answer to one command, without a client; nothing while it does not answer."""
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as connection:
                connection.sendall(b" ".join(words) + b"\r\n")
                return connection.makefile("rb").readline().rstrip(b"\r\n")
        except OSError:
            return b""

    def info(self, section: bytes) -> dict[bytes, bytes]:
        """What the server says of itself."""
        with socket.create_connection((HOST, self.port), timeout=PATIENCE) as connection:
            connection.sendall(b"INFO " + section + b"\r\nQUIT\r\n")
            lines = connection.makefile("rb").read().split(b"\r\n")
        return dict(line.split(b":", 1) for line in lines if b":" in line)

    def end(self, number: int = signal.SIGKILL) -> None:
        """By default as a power cut of this process alone."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)
            self.process = None


@contextlib.contextmanager
def valkey_server(folder: Path, *settings: str) -> Iterator[ValkeyServer]:
    """A server that lives as long as the block, unless it is killed in it."""
    server = ValkeyServer(folder, *settings)
    try:
        server.start()
        yield server
    finally:
        server.end()
