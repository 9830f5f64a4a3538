"""Interval queues: callers anywhere act one interval apart, each at the moment that it reserved.

>>> from osqueue import Pacer
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .blocking import Pacer, Reservation

if TYPE_CHECKING:
    from .asynchronous import AsyncPacer, AsyncReservation


def __getattr__(name: str) -> Any:
    """What is for coroutines is loaded when first asked for: who blocks does not pay for asyncio."""
    if name in ("AsyncPacer", "AsyncReservation"):
        from . import asynchronous

        return getattr(asynchronous, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AsyncPacer", "AsyncReservation", "Pacer", "Reservation"]
