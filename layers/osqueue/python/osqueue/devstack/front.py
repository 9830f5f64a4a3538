"""The one port of the stack: a server of HTTP with a thread for each connection."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from ..clock import MACHINE
from ..contract.functions import CONTENT_BYTES_MAX
from ..errors import Rejected, shown
from ..stores.relay import PATH as TRANSFERS
from .gateway import REQUEST_BYTES_MAX, StackRequest, StackResponse, message
from .log import ProcessLog
from .wire import BadRequest, BodyTooLarge, HttpConnection

IDLE_S_MAX = 60.0  # a connection without a request is closed after that


class FrontServer(ThreadingHTTPServer):
    """Listens, and answers every request with what ``reply`` makes of it. Raises Rejected for a host that is none."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, host: str, port: int, reply: Callable[[StackRequest], StackResponse], log: ProcessLog
    ) -> None:
        self.host = _checked(host)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Connection)
        self.reply = reply
        self.log = log
        self._idle = threading.Condition()
        self._running = 0
        self._closing = False
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="front", daemon=True)

    def server_bind(self) -> None:
        """Bind, without asking the network for this machine's name as HTTPServer does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    @property
    def authority(self) -> str:
        """Host and port, as they stand in a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.server_address[1]}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self, drain_s: float) -> bool:
        """Take no more requests, and let those that run finish for a while. Answers whether all did."""
        with self._idle:
            self._closing = True
        if self._thread.is_alive():
            self.shutdown()
        self.server_close()
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, drain_s)

    @property
    def running(self) -> int:
        """How many requests are being answered."""
        with self._idle:
            return self._running

    @contextlib.contextmanager
    def admitted(self) -> Iterator[bool]:
        """While a request is answered; False when the stack is stopping."""
        with self._idle:
            may = not self._closing
            self._running += may
        try:
            yield may
        finally:
            with self._idle:
                self._running -= may
                self._idle.notify_all()

    def is_ours(self, host: str, origin: str) -> bool:
        """Whether a request comes from a program or a page of ours: no page of another site may reach in here."""
        if origin and origin.partition("://")[2] != host:
            return False
        return not _is_loopback(self.host) or _is_loopback(host)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is its caller's affair; anything else is a defect, and told."""
        import sys
        import traceback

        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            self.log.write("gateway", "".join(traceback.format_exception(error)).rstrip())


def _checked(host: str) -> str:
    """To a socket an empty host is every address of the machine: nobody is to open all of them by leaving one out."""
    try:
        named = bool(host.encode("idna"))
    except UnicodeError:
        named = False
    if not named:
        raise Rejected(
            f"host: {shown(host)} names no address. Write 127.0.0.1 for this machine alone, 0.0.0.0 for every address"
            " it has.",
            field="host",
        )
    return host


def _is_loopback(host: str) -> bool:
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host
    if name.count(":") == 1:
        name = name.partition(":")[0]
    if name in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _Connection(HttpConnection):
    """A caller's connection."""

    server: FrontServer
    timeout = IDLE_S_MAX

    def _answer(self) -> None:
        with self.server.admitted() as may:
            if not may:
                self.close_connection = True
                self._say(message(503, "Service Unavailable"))
                return
            begun = MACHINE.monotonic()
            try:
                answer = self._answered()
            except BodyTooLarge:
                self.close_connection = True
                answer = message(413, "Request Entity Too Large")
            except BadRequest:
                self.close_connection = True
                answer = message(400, "Bad Request")
            self._say(answer)
            took_ms = (MACHINE.monotonic() - begun) * 1000
            path = self.path.partition("?")[0]
            self.server.log.write("gateway", f"{self.command} {path!r} {answer.status} {took_ms:.1f} ms")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815

    def _answered(self) -> StackResponse:
        large = self.path.startswith(TRANSFERS)
        body = self.read_body(CONTENT_BYTES_MAX if large else REQUEST_BYTES_MAX)
        hosts = self.headers.get_all("Host", [""])
        if len(hosts) > 1 or not self.server.is_ours(hosts[0], self.headers.get("Origin", "")):
            return message(403, "Forbidden")
        request = StackRequest(
            method=self.command,
            target=self.path,
            headers=tuple(self.headers.items()),
            body=body,
            source=self.client_address[0],
            protocol=self.request_version,
        )
        return self.server.reply(request)

    def _say(self, answer: StackResponse) -> None:
        self.say(answer.status, answer.headers, answer.body)
