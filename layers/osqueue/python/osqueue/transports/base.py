"""The port of transports: one call in, one answer out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from msgspec import Struct

from ..api.routes import BY_NAME, Route


class Call(Struct, frozen=True):
    """One request of the API, as an effect."""

    route: Route
    path: dict[str, str]  # the path's parameters
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""  # JSON; empty: none
    timeout: float | None = None  # seconds; None: the transport's own


class Answer(Struct, frozen=True):
    """What came back: a status of HTTP and a JSON body."""

    status: int
    body: bytes = b""


class Transport(ABC):
    """Performs calls. Raises Unavailable (nothing was sent, or nobody can tell what became of it) and Timeout."""

    remote = True  # for drivers: calls take long enough to be made side by side

    @property
    @abstractmethod
    def place(self) -> object:
        """Tells this API from others."""

    @property
    @abstractmethod
    def requests(self) -> dict[str, int]:
        """How many calls were made, by method of HTTP in lower case."""

    @abstractmethod
    def perform(self, call: Call) -> Answer:
        """Make one call and wait for its answer."""

    async def perform_async(self, call: Call) -> Answer:
        """The same for a coroutine."""
        import asyncio  # here, because blocking callers never need it

        return await asyncio.to_thread(self.perform, call)

    def close(self) -> None:  # noqa: B027 - most hold nothing to release
        """Release connections."""


def call(name: str, **more: Any) -> Call:
    """A call of the route of this name."""
    return Call(BY_NAME[name], **more)
