"""A server that answers as it is told, in the words of an object store, and keeps a list of what arrived."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.patience import PATIENCE


@dataclass
class ToldServer:
    """``respond`` answers; ``arrived`` has a line for each request, and ``headers`` what came with it."""

    endpoint: str = ""
    arrived: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)  # their names in small letters
    respond: Callable[[BaseHTTPRequestHandler, bytes], None] = lambda handler, body: None
    released: threading.Event = field(default_factory=threading.Event)

    def answers(self, status: int, code: str = "", body: str | None = None) -> None:
        text = body if body is not None else f"<Error><Code>{code}</Code><Message>Told to.</Message></Error>"

        def respond(handler: BaseHTTPRequestHandler, _: bytes) -> None:
            content = b"" if status == 304 or handler.command == "HEAD" else text.encode()
            handler.send_response(status)
            handler.send_header("Content-Type", "application/xml")
            handler.send_header("x-ms-error-code", code)  # as Azure says it also where there is no body
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)

        self.respond = respond

    def hangs(self) -> None:
        self.respond = lambda handler, _: self._hang(handler)

    def hangs_up(self) -> None:
        self.respond = lambda handler, _: setattr(handler, "close_connection", True)

    def applies_and_hangs_up(self, endpoint: str) -> None:
        def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
            real = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=PATIENCE)
            real.request(handler.command, handler.path, body, dict(handler.headers.items()))
            assert real.getresponse().status < 300
            real.close()
            handler.close_connection = True

        self.respond = respond

    def heard(self) -> bool:
        """Has a request arrived? One that was sent may still be on its way."""
        until = time.monotonic() + PATIENCE
        while not self.arrived and time.monotonic() < until:
            time.sleep(0.01)
        return bool(self.arrived)

    def _hang(self, handler: BaseHTTPRequestHandler) -> None:
        self.released.wait(PATIENCE)
        handler.close_connection = True


@contextmanager
def told_server(tls: ssl.SSLContext | None = None) -> Iterator[ToldServer]:
    """One that runs while the block lasts."""
    told = ToldServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            told.arrived.append(f"{self.command} {self.path}")
            told.headers.append({name.lower(): text for name, text in self.headers.items()})
            told.respond(self, body)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.endpoint = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    if tls is not None:  # each connection's handshake is made by its own thread, with the first byte read
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that hangs up on it is no error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield told
    finally:
        told.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
