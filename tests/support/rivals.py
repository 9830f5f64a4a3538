"""A store on which somebody else commits at the worst moment."""

from __future__ import annotations

from collections.abc import Callable

from osqueue.stores import base
from osqueue.stores.wrapped import WrappedStore


class Rivalled(WrappedStore):
    """A store whose callers, which never await, lose a race when the test says so."""

    def __init__(self, inner: base.Store) -> None:
        super().__init__(inner)
        self.rival: Callable[[], object] | None = None  # commits just before the next commit that comes here

    async def perform_async(self, request: base.StoreRequest) -> base.StoreReply:
        raise NotImplementedError

    def perform(self, request: base.StoreRequest) -> base.StoreReply:
        if isinstance(request, base.PutIfMatch) and request.key.endswith("/head") and self.rival is not None:
            rival, self.rival = self.rival, None
            rival()
        return self.inner.perform(request)
