"""A store that counts what is asked of it, the number that the S3 bill is made of, and the bytes that pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from .. import forks
from ..errors import NotSupported, Rejected, shown
from .base import (
    Delete,
    DeleteIfMatch,
    Found,
    Get,
    List,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Store,
    StoreReply,
    StoreRequest,
)
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
Opening = tuple[Callable[[str], Any], tuple[str]]  # a function and the address that it opens
_WRITES = (Put, PutIfAbsent, PutIfMatch)
T = TypeVar("T")


def kind_of(request: StoreRequest) -> str | None:
    """What S3 would call a request; None: it is none that anybody pays for, but a turn."""
    return _KINDS.get(type(request))


class CountingStore(WrappedStore):
    """Passes everything on and counts it by kind, failed requests too. A Delete of many keys is one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._counts = {"get": 0, "put": 0, "list": 0, "delete": 0}
        self._read = self._written = 0
        self._lock = forks.lock()
        self.opening: Opening | None = None  # how another process opens it; None: it cannot

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the address, secrets in it included."""
        if self.opening is None:
            raise NotSupported(
                "this object cannot be sent to another process: its store is in the memory of this process,"
                " or was not opened by an address. Remedy: open it by an address that other processes reach, such as"
                " Queue.connect('file:///var/lib/jobs', …).",
                field="address",
            )
        return self.opening

    @property
    def requests(self) -> dict[str, int]:
        """Requests so far, by kind: a copy that does not change any more."""
        with self._lock:
            return dict(self._counts)

    def hearing(self, queue: str, tell: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
        """Who hears of each head of one shard of a queue, with its version: ``tell``, and who counts more before it."""
        return tell

    @property
    def bytes_read(self) -> int:
        """Bytes of objects that were read so far."""
        return self._read

    @property
    def bytes_written(self) -> int:
        """Bytes of objects that were sent to be written so far."""
        return self._written

    def perform(self, request: StoreRequest) -> StoreReply:
        self._count(request)
        return self._heard(self.inner.perform(request))

    async def perform_async(self, request: StoreRequest) -> StoreReply:
        self._count(request)
        return self._heard(await self.inner.perform_async(request))

    def _count(self, request: StoreRequest) -> None:
        kind = kind_of(request)
        if kind is None:
            return
        with self._lock:
            self._counts[kind] += 1
            if isinstance(request, _WRITES):
                self._written += len(request.body)

    def _heard(self, reply: StoreReply) -> StoreReply:
        if isinstance(reply, Found):
            with self._lock:
                self._read += len(reply.body)
        return reply


@overload
def counted(place: Store) -> CountingStore: ...
@overload
def counted(place: Store | T) -> CountingStore | T: ...
def counted(place: Any) -> Any:
    """Return a store that counts its requests; a transport counts by itself. Raises Rejected for an address."""
    if isinstance(place, str):
        raise Rejected(
            f"store: {shown(place)} is an address. Call connect(address, name), or pass"
            " osqueue.stores.address.open_store(address).",
            field="store",
        )
    return (
        CountingStore(place) if isinstance(place, Store) and not isinstance(place, CountingStore) else place
    )
