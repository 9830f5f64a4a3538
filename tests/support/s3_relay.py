"""In front of the S3 test server: a server that changes some requests, or answers them, and passes on the rest."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.patience import PATIENCE

OF_A_HOP = ("connection", "transfer-encoding", "content-length", "host", "expect")


class Relay(BaseHTTPRequestHandler):
    """Passes every request on as it came. Subclasses say what they do otherwise."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # an answer is two writes: the second would wait for the first one to be heard of
    )
    behind: str  # the endpoint of the S3 server

    def handle_any(self) -> None:
        self.relay(self.command, self.path, dict(self.headers.items()), self.body())

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = lambda self: self.handle_any()  # noqa: N815

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while length := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def relay(self, command: str, path: str, headers: dict[str, str], body: bytes) -> None:
        status, told, content = self.ask(command, path, headers, body)
        length = told["Content-Length"] if command == "HEAD" else len(content)
        self.tell(status, content, {**dict(told.items()), "Content-Length": str(length)})

    def ask(
        self, command: str, path: str, headers: dict[str, str], body: bytes = b""
    ) -> tuple[int, Message, bytes]:
        """What the server behind answers."""
        inner = http.client.HTTPConnection(urlsplit(self.behind).netloc, timeout=PATIENCE)
        with contextlib.closing(inner):
            inner.request(
                command, path, body, {name: text for name, text in headers.items() if not of_a_hop(name)}
            )
            answer = inner.getresponse()
            return answer.status, answer.headers, answer.read()

    def tell(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, text in (headers or {}).items():
            if not of_a_hop(name):
                self.send_header(name, text)
        self.send_header("Content-Length", (headers or {}).get("Content-Length") or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def of_a_hop(name: str) -> bool:
    return name.lower() in OF_A_HOP


@contextlib.contextmanager
def relaying(relay: type[Relay]) -> Iterator[str]:
    """Where it listens, as long as the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), relay)
    server.daemon_threads = True
    server.block_on_close = False  # clients keep connections open
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
