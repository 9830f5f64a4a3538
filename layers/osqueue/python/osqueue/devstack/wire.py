"""HTTP/1.1 as the stack's servers speak it."""

from __future__ import annotations

from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler

_LINE_BYTES_MAX = 1024


class BadRequest(Exception):
    """The request's framing cannot be understood."""


class BodyTooLarge(Exception):
    """The request's body is larger than the server takes."""


class HttpConnection(BaseHTTPRequestHandler):
    """A connection over which requests come, one after the other."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer leaves in one piece
    disable_nagle_algorithm = True

    def handle_expect_100(self) -> bool:
        """Ask for the body, at once: its sender may wait for that."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def read_body(self, bytes_max: int) -> bytes:
        """The request's body; raises BadRequest or TooLarge, after which the connection is of no more use."""
        coding = self.headers.get("Transfer-Encoding", "").strip().lower()
        if coding == "chunked":
            return self._read_chunks(bytes_max)
        if coding:
            raise BadRequest(f"transfer encoding {coding!r}")
        length = self.headers.get("Content-Length", "0").strip()
        if not (length.isascii() and length.isdigit()):
            raise BadRequest("Content-Length is no number")
        if len(length) > 18 or int(length) > bytes_max:
            raise BodyTooLarge
        return self._read_exactly(int(length))

    def _read_exactly(self, length: int) -> bytes:
        data = self.rfile.read(length)
        if len(data) < length:
            raise BadRequest("the body ends early")
        return data

    def _read_chunks(self, bytes_max: int) -> bytes:
        chunks: list[bytes] = []
        total = 0
        while True:
            size_line = self.rfile.readline(_LINE_BYTES_MAX).partition(b";")[0].strip()
            try:
                size = int(size_line, 16)
            except ValueError:
                raise BadRequest("a chunk has no size") from None
            if size < 0:
                raise BadRequest("a chunk has a size below zero")
            total += size
            if total > bytes_max:
                raise BodyTooLarge
            if size == 0:
                while self.rfile.readline(_LINE_BYTES_MAX).strip():
                    pass  # trailers
                return b"".join(chunks)
            chunks.append(self._read_exactly(size))
            self._read_exactly(2)

    def say(self, status: int, headers: Iterable[tuple[str, str]] = (), body: bytes = b"") -> None:
        """Answer the request."""
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if status >= 200 and status != 204:
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD" and status not in (204, 304):
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the stack keeps a log of its own."""
