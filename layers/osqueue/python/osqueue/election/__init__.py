"""Leader election: of many candidates at most one leads, for as long as it says so.

>>> from osqueue.election import Election
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .blocking import Election

if TYPE_CHECKING:
    from .asynchronous import AsyncElection


def __getattr__(name: str) -> Any:
    """AsyncElection is loaded when first asked for: who blocks does not pay for asyncio."""
    if name == "AsyncElection":
        from .asynchronous import AsyncElection

        return AsyncElection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AsyncElection", "Election"]
