"""Transfers past the API, by urllib3: without credentials, since what the API signed is all that they need."""

from __future__ import annotations

from typing import Any

from ...clock import Machine
from ...errors import Timeout, Unavailable
from .base import (
    CALL_SECONDS_DEFAULT,
    CONNECT_SECONDS_MAX,
    ApiAnswer,
    CallOutcome,
    LostCall,
    Transfer,
    host_of,
)
from .connections import open_pools
from .credentials import not_installed

HOSTS = 2  # whose connections are kept
FAULT_BYTES_MAX = 4_000  # of an answer that is read to its end, so that its connection may be used again


class Carrier:
    """The connections of one transport to stores."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._pools: tuple[int, Any] | None = None  # with the process whose connections they are

    def carry(self, transfer: Transfer, base: str = "") -> CallOutcome:
        """Make a transfer. Raises Unavailable where nobody knows where the API is."""
        if transfer.url.startswith("/") and not base:
            raise Unavailable("the API names a path of its own, and its host is not known.", permanent=True)
        process = self._machine.process()
        pools = self._pools
        if pools is None or pools[0] != process:  # a fork's child opens its own
            try:
                pools = self._pools = process, open_pools(self._machine, HOSTS)
            except ImportError:
                raise not_installed("payloads and results of this size", "urllib3") from None
        url = base + transfer.url if transfer.url.startswith("/") else transfer.url
        return carried(pools[1], url, transfer)

    def close(self) -> None:
        """Release connections."""
        pools, self._pools = self._pools, None
        if pools is not None and pools[0] == self._machine.process():
            pools[1].clear()


def carried(connections: Any, url: str, transfer: Transfer) -> CallOutcome:
    """One request and its answer. A message names the host alone: who has the URL may do what it says."""
    from urllib3 import Timeout as Limits
    from urllib3 import exceptions as of

    seconds = transfer.timeout or CALL_SECONDS_DEFAULT
    try:
        response = connections.request(
            transfer.method,
            url,
            body=transfer.body or None,
            headers=transfer.headers,
            timeout=Limits(connect=min(seconds, CONNECT_SECONDS_MAX), read=seconds),
            retries=False,
            redirect=False,
            preload_content=False,
        )
        with response:
            wanted = transfer.bytes_max if response.status < 300 else 0
            data = response.read(max(wanted + 1, FAULT_BYTES_MAX), decode_content=False)
    except of.TimeoutError:
        return LostCall(Timeout(f"{host_of(url)} did not take or give a large content in time."))
    except of.HTTPError as error:
        kind = type(error).__name__
        return LostCall(Unavailable(f"the connection to {host_of(url)} for a large content broke ({kind})."))
    return ApiAnswer(response.status, data)
