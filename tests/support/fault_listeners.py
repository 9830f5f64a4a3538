"""Listeners on loopback in front of stores, whose requests meet the fault of a switch."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from osqueue.stores import valkey
from osqueue.stores.valkey_turns import LEAVE, PASS, TAKE
from tests.support.fault_switch import FaultSwitch
from tests.support.gcs_server import GcsServer
from tests.support.patience import PATIENCE

HOST = "127.0.0.1"
Reply = tuple[int, str]  # HTTP's status and the store's word for it


class Listener:
    """A port that serves each connection in a thread, and can refuse connections for a while."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._socket = socket.create_server((HOST, 0))
        self.port: int = self._socket.getsockname()[1]
        self.open()

    def open(self) -> None:
        """Take connections from now on."""
        self._socket.listen(128)
        threading.Thread(target=self._accept, args=(self._socket,), daemon=True).start()

    def refuse(self) -> None:
        """Break all connections, and refuse new ones. The port stays taken."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((HOST, self.port))
        with self._lock:
            connections = list(self._connections)
        for each in connections:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            with contextlib.suppress(OSError, ValueError, EOFError):
                self._serve(connection)
        finally:
            with self._lock:
                self._connections.discard(connection)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


# ── HTTP ─────────────────────────────────────────────────────────────────────
class FaultyHandler(BaseHTTPRequestHandler):
    """A handler of HTTP whose requests may meet a fault. It stands before the handler of a store's stand-in."""

    protocol_version = "HTTP/1.1"
    switch: FaultSwitch | None  # None: no request meets a fault
    replies: Mapping[str, Reply]  # by fault: what the store replies
    accepted: Callable[[Mapping[str, str]], bool]  # whether it knows the credentials in a request's headers

    def faulty(self) -> None:
        fault = None if self.switch is None else self.switch.draw()
        if not self.accepted(self.headers):
            self.reply(*self.replies["credentials"])
        elif fault in (None, "rotated") or (fault == "full" and self.command != "PUT"):
            self.well()
        elif fault in self.replies:
            self.reply(*self.replies[fault])
        elif fault == "cut":
            self.cut()
        else:
            self.close_connection = True
            if fault == "hung" and self.switch is not None:
                self.switch.hang()
                self.switch.ended.wait(PATIENCE)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = lambda self: self.faulty()  # noqa: N815

    def well(self) -> None:
        """Do what the stand-in does."""
        super().handle_any()  # type: ignore[misc] # of the class behind it

    def reply(self, status: int, code: str) -> None:
        """Refuse the request. Its body stays unread, so the connection ends."""
        body = f"<Error><Code>{code}</Code><Message>So the test says.</Message></Error>".encode()
        with contextlib.suppress(OSError):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        self.send_header("x-ms-error-code", code)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def cut(self) -> None:
        """Carry the request out, and end the connection in the middle of the reply."""
        whole, self.wfile = self.wfile, io.BytesIO()  # type: ignore[assignment]
        try:
            self.well()
        finally:
            written, self.wfile = self.wfile.getvalue(), whole  # type: ignore[attr-defined]
        self.wfile.write(written[: len(written) // 2])
        self.close_connection = True

    def finish(self) -> None:
        super().finish()
        self.connection.close()  # over TLS it is not the one that was accepted

    def log_message(self, *_: Any) -> None:
        """Tests have their own output."""


class ObjectHandler(BaseHTTPRequestHandler):
    """Requests to a stand-in that is in this process."""

    objects: GcsServer

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.objects.answer(self.command, self.path, self.headers, body)
        self.send_response(answer.status)
        for name, text in answer.headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


def listen_http(
    handler: type[BaseHTTPRequestHandler],
    switch: FaultSwitch | None,
    replies: Mapping[str, Reply],
    accepted: Callable[[Mapping[str, str]], bool] = lambda headers: True,
    **attributes: Any,
) -> Listener:
    """Serve requests by a handler, some of which meet a fault."""
    own = {"switch": switch, "replies": replies, "accepted": staticmethod(accepted), **attributes}
    kind = type("Handler", (FaultyHandler, handler), own)
    return Listener(lambda connection: _serve(kind, connection))


def _serve(kind: Any, connection: socket.socket) -> None:
    kind(connection, connection.getpeername(), None)


# ── RESP ─────────────────────────────────────────────────────────────────────
# What a server without room refuses, by hash or as text. The server itself would refuse the other writer of a test too.
_WRITES = [
    text
    for script in (valkey._WRITE, *(valkey._TURN_SCRIPTS[each] for each in (TAKE, PASS, LEAVE)))
    for text in (script.sha.encode(), script.text.encode())
]


def listen_resp(port: int, switch: FaultSwitch) -> Listener:
    """Pass commands on to a Valkey server, but for those that meet a fault."""
    return Listener(lambda connection: _pass_commands(connection, port, switch))


def _pass_commands(client: socket.socket, port: int, switch: FaultSwitch) -> None:
    with socket.create_connection((HOST, port)) as server, client.makefile("rb") as incoming:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        state = _Passing()
        threading.Thread(target=_pass_replies, args=(server, client, state), daemon=True).start()
        try:
            while True:
                packet = _read_command(incoming)
                if not packet:
                    return
                fault = switch.draw()
                if fault == "throttled":
                    client.sendall(b"-BUSY Redis is busy running a script.\r\n")
                    continue
                if fault == "full" and any(each in packet for each in _WRITES):
                    client.sendall(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n")
                    continue
                if fault == "hung":
                    switch.hang()
                    switch.ended.wait(PATIENCE)
                    return
                if fault == "gone":
                    return
                state.cut = fault == "cut"
                server.sendall(packet)
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


class _Passing:
    cut = False


def _pass_replies(server: socket.socket, client: socket.socket, state: _Passing) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(1 << 16):
            if state.cut:
                client.sendall(data[: len(data) // 2])
                break
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)


def _read_command(incoming: Any) -> bytes:
    """The bytes of the next command; none at the end of the connection."""
    line: bytes = incoming.readline()
    packet = bytearray(line)
    for _ in range(int(line[1:]) if line else 0):
        head = incoming.readline()
        packet += head + incoming.read(int(head[1:]) + 2)
    return bytes(packet)
