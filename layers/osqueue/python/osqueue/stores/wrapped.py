"""Two ways to make a store out of one method: ``perform`` alone, and ``perform`` around another store."""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

from .base import (
    AnnouncedPut,
    Delete,
    Deleted,
    DeleteIfMatch,
    Failed,
    Found,
    Get,
    Hinted,
    List,
    Listed,
    Missing,
    PresignedRequest,
    Put,
    PutIfAbsent,
    PutIfMatch,
    Refused,
    Remark,
    Store,
    StoreReply,
    StoreRequest,
    Told,
    Unchanged,
    Written,
)


class PerformingStore(Store):
    """A store whose subclasses say what ``perform`` does; the seven methods follow from it."""

    @abstractmethod
    def perform(self, request: StoreRequest) -> StoreReply: ...

    @abstractmethod
    async def perform_async(self, request: StoreRequest) -> StoreReply: ...

    def get(self, request: Get) -> Found | Missing | Unchanged:
        return cast("Found | Missing | Unchanged", self._definite(request))

    def put(self, request: Put) -> Written:
        return cast("Written", self._definite(request))

    def put_if_absent(self, request: PutIfAbsent) -> Written | Refused:
        return cast("Written | Refused", self._definite(request))

    def put_if_match(self, request: PutIfMatch) -> Written | Refused:
        return cast("Written | Refused", self._definite(request))

    def list(self, request: List) -> Listed:
        return cast("Listed", self._definite(request))

    def delete(self, request: Delete) -> Deleted:
        return cast("Deleted", self._definite(request))

    def delete_if_match(self, request: DeleteIfMatch) -> Deleted | Refused:
        return cast("Deleted | Refused", self._definite(request))

    def _definite(self, request: StoreRequest) -> StoreReply:
        reply = self.perform(request)
        if isinstance(reply, Failed):
            raise reply.error
        return reply


class WrappedStore(PerformingStore):
    """A store around another: the base of those that count, delay or fail."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.key_bytes_max = inner.key_bytes_max
        self.name_bytes_max = inner.name_bytes_max
        self.ordered = inner.ordered
        self.remote = inner.remote
        self.reply_s_max = inner.reply_s_max
        self.shared = inner.shared
        self.look_pace = inner.look_pace
        self.clock_tick_ms = inner.clock_tick_ms
        self.flushes = inner.flushes
        self.turns = inner.turns
        self.swap_gap_s = inner.swap_gap_s

    @property
    def place(self) -> object:
        return self.inner.place

    def presigned(self, request: Get | AnnouncedPut, seconds: int) -> PresignedRequest | None:
        return self.inner.presigned(request, seconds)

    def clock_ms(self) -> int | None:
        return self.inner.clock_ms()

    def listen(self, key: str, told: Told) -> Hinted:
        return self.inner.listen(key, told)

    def remarks(self) -> tuple[Remark, ...]:
        return self.inner.remarks()

    def close(self) -> None:
        self.inner.close()
