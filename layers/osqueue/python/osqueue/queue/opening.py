"""How a queue object comes to its store or API, and how long it may gather enqueues there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NotSupported, Rejected
from ..model.validation import milliseconds
from ..stores.address import is_remote, open_store
from ..stores.base import Store
from ..stores.counting import CountingStore

if TYPE_CHECKING:  # loaded where it is used
    from ..client.transports.base import Transport

WINDOW_MS_MAX = 10_000  # a caller that waits has to hear before its deadline


def open_place(address: str) -> Store | Transport:
    """Open the store or the API at an address. Raises Rejected."""
    if is_remote(address):
        from ..client.transports.address import open_transport

        return open_transport(address)
    return open_store(address)


def window_seconds(window: float, timeout_s: float, place: Store | Transport) -> float:
    """Check for how many seconds an operation waits for others. Raises Rejected and NotSupported."""
    seconds = milliseconds(window, "window", 0, WINDOW_MS_MAX) / 1000
    if seconds and not isinstance(place, CountingStore):
        raise NotSupported(
            "window: over an API its functions commit, and group what comes to them by themselves.",
            field="window",
        )
    if seconds > timeout_s / 2:
        raise Rejected(
            f"window: {seconds:g} s; a call has {timeout_s:g} s in all. Wait half of its timeout at most.",
            field="window",
        )
    return seconds
