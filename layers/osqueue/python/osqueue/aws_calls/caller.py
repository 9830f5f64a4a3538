"""Sends signed requests to a service of AWS over connections that are kept.

No header tells of a trace: each call begins a chain of its own, so that Lambda does not take a function that invokes
its own successor for a loop.
"""

from __future__ import annotations

import http.client
import select
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import Struct

from .. import forks
from ..clock import MACHINE, Machine, Moment
from ..errors import Unavailable
from ..limits import HTTP_IDLE_MS_MAX
from .identity import endpoint_of_environment, found_credentials, own_credentials, region_of_environment
from .sigv4 import SigningScope, signed_headers

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0
ANSWER_BYTES_MAX = 1024 * 1024


class AwsAnswer(Struct, frozen=True):
    """What a service answered."""

    status: int
    body: bytes


class _Kept(Struct, eq=False):
    """A connection, and since when it rests."""

    connection: http.client.HTTPConnection
    since: Moment


class AwsCaller:
    """Calls one service. Many threads may use one object; each call has a connection for itself.

    ``region`` and ``endpoint`` are those of the environment where they are not given. Where somebody names the
    endpoint, a request without credentials in the environment goes there unsigned.
    """

    def __init__(
        self,
        service: str,
        region: str | None = None,
        endpoint: str | None = None,
        machine: Machine = MACHINE,
    ) -> None:
        self._machine = machine
        self._scope = SigningScope(service, region or region_of_environment())
        self._named = endpoint or endpoint_of_environment(service)
        ending = ".cn" if self._scope.region.startswith("cn-") else ""
        self._url = urlsplit(self._named or f"https://{service}.{self._scope.region}.amazonaws.com{ending}")
        self._lock = forks.lock()
        self._kept: list[_Kept] = []
        self._process = machine.process()
        self._tls: ssl.SSLContext | None = None

    def post(self, path: str, headers: dict[str, str], body: bytes) -> AwsAnswer:
        """Send a request once, and once more where a kept connection was closed meanwhile. Raises Unavailable."""
        plain = {"host": self._url.netloc, **headers}
        credentials = own_credentials() if self._named else found_credentials()
        if credentials is not None:
            now = self._machine.now_ms()
            plain = signed_headers("POST", path, plain, body, credentials, self._scope, now)
        plain["user-agent"] = "osqueue"
        kept = self._taken()
        if kept is not None:
            with suppress(ConnectionError, http.client.BadStatusLine):
                return self._send(kept, path, plain, body)
        return self._send(self._opened(), path, plain, body)

    def close(self) -> None:
        """Close what is kept. The object may be used again."""
        with self._lock:
            kept, self._kept = self._kept, []
        for each in kept:
            each.connection.close()

    def _send(
        self, connection: http.client.HTTPConnection, path: str, headers: dict[str, str], body: bytes
    ) -> AwsAnswer:
        fresh = connection.sock is None
        try:
            if fresh:
                connection.connect()
                connection.sock.settimeout(ANSWER_SECONDS)
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = AwsAnswer(response.status, response.read(ANSWER_BYTES_MAX))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if not fresh and isinstance(error, (ConnectionError, http.client.BadStatusLine)):
                raise
            name = type(error).__name__
            raise Unavailable(f"{self._url.hostname} gave no answer ({name})") from None
        if response.will_close or not response.isclosed():
            connection.close()
        else:
            with self._lock:
                self._kept.append(_Kept(connection, self._machine.moment()))
        return answer

    def _taken(self) -> http.client.HTTPConnection | None:
        """A kept connection that is still good."""
        with self._lock:
            if self._process != self._machine.process():  # a fork's child opens its own
                self._process, self._kept = self._machine.process(), []
            while self._kept:
                kept = self._kept.pop()
                if self._machine.ms_since(kept.since) < HTTP_IDLE_MS_MAX and not _was_closed(kept.connection):
                    return kept.connection
                kept.connection.close()
        return None

    def _opened(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=self._tls)


def _was_closed(connection: http.client.HTTPConnection) -> bool:
    """Nobody sends anything unasked, so what can be read is the other side's end."""
    return bool(select.select([connection.sock], [], [], 0)[0])
