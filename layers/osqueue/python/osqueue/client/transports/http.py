"""Calls over HTTP, by urllib3: connections are kept and shared by threads, redirects not followed, nothing repeated."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from ...clock import MACHINE, Machine, Moment
from ...contract.route import Repeat
from ...errors import Rejected, Timeout, Unavailable
from ...limits import HTTP_IDLE_MS_MAX
from .base import (
    CALL_SECONDS_DEFAULT,
    CONNECT_SECONDS_MAX,
    ApiAnswer,
    ApiCall,
    CallOutcome,
    LostCall,
    Transfer,
    Transport,
    host_of,
    path_of,
    unreached,
)
from .connections import open_pools
from .credentials import Credentials, not_installed
from .transfers import Carrier, carried

FIRST_BYTE_SECONDS = 3.0  # on a kept connection, which may be dead
PROMPT_BYTES_MAX = 64 * 1024  # of a body that any API works off within that time
ANSWER_BYTES_MAX = 16 * 1024 * 1024  # API Gateway gives up to 10 MB, Lambda 6 MB


class TlsFiles(Struct, frozen=True):
    """Files in PEM that connections over TLS are made with; None: as the machine does it."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def check(self) -> None:
        """Raises Rejected where one is not there, or is missing."""
        if self.key is not None and self.cert is None:
            raise Rejected("key: it goes with cert, the certificate that it belongs to", field="key")
        for name, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if path is not None and not os.path.isfile(path):
                raise Rejected(f"{name}: there is no file {path}", field=name)


class HttpTransport(Transport):
    """An API at a URL."""

    def __init__(
        self, url: str, credentials: Credentials, machine: Machine = MACHINE, tls: TlsFiles | None = None
    ) -> None:
        super().__init__(machine)
        self._tls = tls or TlsFiles()
        self.url = url
        self._carrier = Carrier(machine)
        self._credentials = credentials
        self._pools: tuple[int, Any] | None = None  # with the process whose connections they are
        self._answered: Moment | None = None  # when the latest response came

    @property
    def place(self) -> object:
        return self.url

    def send(self, call: ApiCall) -> CallOutcome:
        """One request and its response."""
        try:
            from urllib3 import Timeout as Limits
            from urllib3.exceptions import HTTPError
        except ImportError:
            raise not_installed("http:// and https:// addresses", "urllib3") from None

        url = self.url + path_of(call)
        if call.query:
            url += "?" + urlencode(call.query, quote_via=quote)
        seconds = call.timeout or CALL_SECONDS_DEFAULT
        plain = {"accept": "application/json", "user-agent": "osqueue"}
        if call.body:
            plain["content-type"] = "application/json"
        headers = self._credentials.headers(call.route.method, url, plain, call.body)
        pools = self._connections()
        prompt = seconds > FIRST_BYTE_SECONDS and is_prompt(call) and self._keeps_connections()
        try:
            response = pools.request(
                call.route.method,
                url,
                body=call.body or None,
                headers=headers,
                timeout=Limits(
                    connect=min(seconds, CONNECT_SECONDS_MAX), read=FIRST_BYTE_SECONDS if prompt else seconds
                ),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            with response:
                data = response.read(ANSWER_BYTES_MAX + 1)
        except HTTPError as error:
            if prompt:  # the other connections may be dead, too: the repeat opens one
                self._answered = None
                pools.clear()
            return _lost(self.url, error)
        self._answered = self._machine.moment()
        if response.status in (401, 403):
            self._credentials.refused()
        if len(data) > ANSWER_BYTES_MAX:
            return LostCall(
                Unavailable(f"the API's answer is longer than {ANSWER_BYTES_MAX:,} bytes", permanent=True)
            )
        return ApiAnswer(response.status, data)

    def carry(self, transfer: Transfer) -> CallOutcome:
        if not transfer.url.startswith("/"):  # the store's, whom our certificates do not concern
            return self._carrier.carry(transfer)
        return carried(self._connections(), self.url + transfer.url, transfer)

    def close(self) -> None:
        super().close()
        self._carrier.close()
        with self._lock:
            pools, self._pools = self._pools, None
        if pools is not None and pools[0] == self._machine.process():
            pools[1].clear()

    def _keeps_connections(self) -> bool:
        """Return whether the next call may use a kept connection."""
        answered = self._answered
        return answered is not None and self._machine.ms_since(answered) < HTTP_IDLE_MS_MAX

    def _connections(self) -> Any:
        process = self._machine.process()
        with self._lock:
            if self._pools is None or self._pools[0] != process:  # a fork's child opens its own
                tls = self._tls
                pool = open_pools(self._machine, 1, ca_certs=tls.ca, cert_file=tls.cert, key_file=tls.key)
                self._pools = (process, pool)
            return self._pools[1]


def is_prompt(call: ApiCall) -> bool:
    """Return whether a response comes soon, and the call may be repeated if it does not."""
    waits = any(name == "wait" for name, _ in call.query)
    return call.route.repeat is Repeat.ALWAYS and not waits and len(call.body) <= PROMPT_BYTES_MAX


def _lost(url: str, error: Exception) -> LostCall:
    """The error for a failed connection. Of the address it names the host only."""
    from urllib3 import exceptions as of

    match error:
        case of.SSLError():
            return LostCall(
                Unavailable(
                    "the API's certificate, or the one that was shown to it, or the way of encrypting is not accepted."
                    " Check the host in the address, and the files that ?ca=, ?cert= and ?key= name.",
                    permanent=True,
                ),
                sent=False,
            )
        case of.NameResolutionError():
            text = f"{host_of(url)} cannot be reached: the name of the host cannot be resolved. Check the address."
            return LostCall(Unavailable(text), sent=False)
        case of.NewConnectionError():
            return unreached(url, error)
        case of.ConnectTimeoutError():
            text = f"{host_of(url)} cannot be reached: the connection timed out. Check the address."
            return LostCall(Unavailable(text), sent=False)
        case of.TimeoutError():
            return LostCall(Timeout("the API did not answer in time. The operation may still be applied."))
        case _:
            return LostCall(
                Unavailable(
                    f"the connection to the API broke ({type(error).__name__}) before its answer came"
                )
            )
