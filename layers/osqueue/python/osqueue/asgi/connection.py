"""A connection of the server: uvicorn's, with bounds on the head of a request. Its body is bounded by ``app``.

uvicorn waits for a head as long as it may trickle, and takes one of any size: a few callers could take all connections,
or all memory. A caller who goes on sending a body that was refused has as long as for a head, too.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..contract.error_codes import RequestTimeout, TooLarge, fault_of
from ..server.app import ApiResponse, failure

HEAD_BYTES_MAX = 64 * 1024  # the lines of a request before its body
HEAD_SECONDS = 20.0  # in which they have to come, from the first byte on; of a connection, from its begin on
GOODBYE_SECONDS = 1.0  # for which the end of a server waits on an idle connection

log = logging.getLogger("osqueue.serve.access")


class BoundedConnection(HttpToolsProtocol):
    """Speaks HTTP with one caller."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._in_head = True  # the next bytes belong to one
        self._head_bytes = 0  # of it are here
        self._due: asyncio.TimerHandle | None = None  # ends the connection of a caller who owes something

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin."""
        super().connection_made(transport)
        self._due = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._forgive()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends. Over TLS an idle connection would be closed only when its caller says goodbye, too."""
        super().shutdown()
        if self.transport.is_closing():
            self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take what a caller sends, of a head no more than it may have."""
        while data and not self.transport.is_closing():
            room = HEAD_BYTES_MAX - self._head_bytes if self._in_head else len(data)
            if not room:
                too_large = TooLarge(
                    f"the request has more than {HEAD_BYTES_MAX:,} bytes before its body. Send fewer or shorter"
                    " headers, and a shorter query."
                )
                self._refuse(failure(fault_of(too_large)), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return
            part, data = data[:room], data[room:]
            if self._in_head:
                self._head_bytes += len(part)
            super().data_received(part)
        if self._due is None and self._owes and not self.transport.is_closing():
            self._due = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def on_headers_complete(self) -> None:
        """A head is here."""
        self._in_head, self._head_bytes = False, 0
        self._forgive()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is here."""
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    @property
    def _owes(self) -> bool:
        """Has the caller begun a head, or goes on with a body that nobody reads any more?"""
        return self._head_bytes > 0 if self._in_head else self.cycle.response_complete

    def _forgive(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _too_late(self) -> None:
        if self._in_head and self._head_bytes:
            late = RequestTimeout(f"the head of the request was not here after {HEAD_SECONDS:g} s.")
            self._refuse(failure(fault_of(late)), HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def _refuse(self, response: ApiResponse, status: HTTPStatus) -> None:
        """Answer in place of the application, and hang up; no word while it answers an earlier request."""
        log.info(status.phrase, extra={"told": {"status": status, "code": response.code}})
        earlier: Any = self.cycle  # None at first, whatever its type says
        if earlier is None or earlier.response_complete:
            headers = {**response.headers, "content-length": str(len(response.body)), "connection": "close"}
            lines = [
                f"HTTP/1.1 {status} {status.phrase}",
                *(f"{name}: {text}" for name, text in headers.items()),
            ]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + response.body)
        self.transport.close()
