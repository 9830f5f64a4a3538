"""Connections to an API that urllib3 keeps: one that was idle for too long is not used again.

The network between may forget an idle connection without a notice to either side, and a frozen process does not see
that the other side closes it. A request on such a connection would wait for its whole time-out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...clock import Machine, Moment
from ...limits import HTTP_IDLE_MS_MAX
from .base import CALLS_AT_ONCE_MAX

if TYPE_CHECKING:
    from urllib3 import PoolManager


def open_pools(machine: Machine, hosts: int, **tls: Any) -> PoolManager:
    """Return pools of connections to at most ``hosts`` hosts. ``tls`` holds the files for TLS by urllib3's names."""
    from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool, PoolManager
    from urllib3.connection import HTTPConnection, HTTPSConnection

    class KeptConnection(HTTPConnection):
        """A connection that knows how long it was idle."""

        used: Moment | None = None  # when its latest response began

        @property
        def is_connected(self) -> bool:
            """Whether it may be used again. Otherwise the pool connects it again."""
            idle_ms = machine.ms_since(self.used) if self.used is not None else 0
            return idle_ms < HTTP_IDLE_MS_MAX and super().is_connected

        def getresponse(self) -> HTTPResponse:  # type: ignore[override]
            response = super().getresponse()
            self.used = machine.moment()
            return response

    class KeptTlsConnection(KeptConnection, HTTPSConnection):
        """The same over TLS."""

    class KeptPool(HTTPConnectionPool):
        ConnectionCls = KeptConnection

    class KeptTlsPool(HTTPSConnectionPool):
        ConnectionCls = KeptTlsConnection

    pools = PoolManager(num_pools=hosts, maxsize=CALLS_AT_ONCE_MAX, **tls)
    pools.pool_classes_by_scheme = {"http": KeptPool, "https": KeptTlsPool}
    return pools
