"""A store that refuses requests for good until a test allows them again."""

from __future__ import annotations

from collections.abc import Callable

from osqueue import Unavailable
from osqueue.stores.base import Failed, Get, Store, StoreReply, StoreRequest
from osqueue.stores.wrapped import WrappedStore

Which = Callable[[StoreRequest], bool]


def every_request(request: StoreRequest) -> bool:
    """Return True."""
    return True


def head_reads(request: StoreRequest) -> bool:
    """Return whether a request reads a head."""
    return isinstance(request, Get) and request.key.endswith("/head")


def clock_requests(request: StoreRequest) -> bool:
    """Return whether a request measures the store's clock."""
    return getattr(request, "key", "").endswith("/clock")


class RefusingStore(WrappedStore):
    """Refuses some requests while ``refuses`` is set, and counts all of them."""

    def __init__(self, inner: Store, which: Which = every_request) -> None:
        super().__init__(inner)
        self.which = which
        self.refuses = False
        self.asked = 0

    def perform(self, request: StoreRequest) -> StoreReply:
        return self._refusal(request) or self.inner.perform(request)

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        return self._refusal(request) or await self.inner.perform_async(request)

    def _refusal(self, request: StoreRequest) -> Failed | None:
        self.asked += 1
        if not (self.refuses and self.which(request)):
            return None
        return Failed(Unavailable("403 AccessDenied (injected)", permanent=True))
