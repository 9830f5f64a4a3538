"""A store that counts what is asked of it: the number that the S3 bill is made of."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from .. import forks
from .base import Delete, DeleteIfMatch, Get, List, Put, PutIfAbsent, PutIfMatch, Reply, Request, Store
from .wrapped import WrappedStore

_KINDS: dict[type, str] = {
    Get: "get",
    Put: "put",
    PutIfAbsent: "put",
    PutIfMatch: "put",
    List: "list",
    Delete: "delete",
    DeleteIfMatch: "delete",
}


class CountingStore(WrappedStore):
    """Passes everything on and counts it by kind, failed requests too. A Delete of many keys is one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._counts = {"get": 0, "put": 0, "list": 0, "delete": 0}
        self._lock = forks.lock()

    @property
    def requests(self) -> dict[str, int]:
        """Requests so far, by kind: a copy that does not change any more."""
        with self._lock:
            return dict(self._counts)

    def perform(self, request: Request) -> Reply:
        self._count(request)
        return self.inner.perform(request)

    def perform_async(self, request: Request) -> Coroutine[Any, Any, Reply]:
        self._count(request)
        return self.inner.perform_async(request)

    def _count(self, request: Request) -> None:
        kind = _KINDS[type(request)]
        with self._lock:
            self._counts[kind] += 1
